package notebook

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Without a GPU a plan's output is the host's, and its times are the recorded
// ones.
func TestRunPlan(t *testing.T) {
	text := `{"device": "NVIDIA X", "date": "2026-01-02", "kernels": {"sum": "0123"}, "figures": {
		"sum, mean": {"value": 12.5, "unit": "us"}, "sum, spread": {"value": 0.5, "unit": "us"}, "sum, runs": {"value": 9, "unit": ""}}}`
	x := []float32{1, 2, 3, 4.5}
	err := Run(Options{Device: "cpu"}, new(bytes.Buffer), "t", []byte(text), func(p *Page) error {
		plan := reduce.Sum(p.Target(), kernels.Float32, []int{len(x)}, []int{0}, false)
		ran, err := p.Run("sum", plan, [][]byte{kernels.Bytes(x)}, 9)
		if err != nil {
			return err
		}
		if ran.Mean.String() != "12.5 µs" || ran.Spread.Value != 0.5 || ran.Runs.String() != "9" || kernels.Elements[float32](ran.Out)[0] != 10.5 {
			t.Errorf("got %v, %v of %v and %v, want the recorded 12.5 us and 0.5 us of 9, and 10.5", ran.Mean, ran.Spread, ran.Runs, ran.Out)
		}
		if ran, err = p.Run("unknown", plan, [][]byte{kernels.Bytes(x)}, 9); err != nil || !math.IsNaN(ran.Mean.Value) || len(ran.Out) != 4 {
			t.Errorf("a key that is not recorded: %v, %v, want NaN and an output", ran, err)
		}
		if _, err := p.Run("bad", plan, nil, 9); err == nil || !strings.Contains(err.Error(), "bad") {
			t.Errorf("no inputs: %v, want an error that names the key", err)
		}
		if _, err := p.Run("sum", plan, [][]byte{kernels.Bytes(x)}, 9); err == nil {
			t.Error("one key was taken twice")
		}
		if _, err := p.MeanTime(plan, nil, 1); err == nil {
			t.Error("a time of the GPU without one")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for us, want := range map[float64]string{12.5: "12.5 µs", 173456: "173 ms", 2.5e6: "2.50 s", math.NaN(): "-"} {
		if got := Micros(us).String(); got != want {
			t.Errorf("%v us is printed as %s, want %s", us, got, want)
		}
	}
	if mean, spread := Moments([]time.Duration{1000, 3000}); mean != 2 || spread != 1 {
		t.Errorf("1 and 3 us: mean %v, spread %v, want 2 and 1", mean, spread)
	}
}

// End to end, finish gets the output of each run, of plans with scratch memory too;
// here on a session of the host.
func TestEndToEnd(t *testing.T) {
	x, runs := make([]float32, 4099), 0
	for i := range x {
		x[i] = float32(i % 7)
	}
	want := 0.0
	for _, v := range x {
		want += float64(v)
	}
	s := cudaops.OpenHost()
	defer s.Close()
	plan, err := versions.Sum(kernels.HostDevice(), kernels.Float32, 8, []int{len(x)})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Scratch == 0 || len(plan.Launches) != 2 {
		t.Fatalf("the plan has %d launches and %d bytes of scratch, want two and some", len(plan.Launches), plan.Scratch)
	}
	us, err := endToEnd(s, plan, [][]byte{kernels.Bytes(x)}, 3, func(out []byte) error {
		runs++
		if got := float64(kernels.Elements[float32](out)[0]); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		clear(out)
		return nil
	})
	if err != nil || !(us > 0) || runs != 4 {
		t.Errorf("got %v us, %d runs and %v, want a time, four runs and no error", us, runs, err)
	}
	if _, err := endToEnd(s, plan, [][]byte{kernels.Bytes(x)}, 3, func([]byte) error { return errors.New("bad sum") }); err == nil || err.Error() != "bad sum" {
		t.Errorf("an error of finish: got %v", err)
	}
	if _, err := endToEnd(s, plan, nil, 3, nil); err == nil {
		t.Error("no inputs and no error")
	}
}
