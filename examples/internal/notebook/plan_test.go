package notebook

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Without a GPU a plan's output is the host's, and its times are the recorded
// ones.
func TestRunPlan(t *testing.T) {
	text := `{"device": "NVIDIA X", "date": "2026-01-02", "kernels": {"sum": "0123"}, "figures": {
		"sum, mean": {"value": 12.5, "unit": "us"}, "sum, spread": {"value": 0.5, "unit": "us"}, "sum, runs": {"value": 9, "unit": ""}}}`
	x := []float32{1, 2, 3, 4.5}
	err := Run(Options{Device: "cpu"}, new(bytes.Buffer), "t", withRecord(text), func(p *Page) {
		plan := p.Sum(0, len(x))
		ran := p.Run("sum", plan, [][]byte{kernels.Bytes(x)}, 9)
		if ran.Mean.String() != "12.5 µs" || ran.Spread.Value != 0.5 || ran.Runs.String() != "9" || AddUp(ran.Out) != 10.5 {
			t.Errorf("got %v, %v of %v and %v, want the recorded 12.5 us and 0.5 us of 9, and 10.5", ran.Mean, ran.Spread, ran.Runs, ran.Out)
		}
		if ran := p.Run("unknown", p.Sum(5, len(x)), [][]byte{kernels.Bytes(x)}, 9); !math.IsNaN(ran.Mean.Value) || AddUp(ran.Out) != 10.5 {
			t.Errorf("a key that is not recorded: %v, want NaN and an output", ran)
		}
		if err := Try(func() { p.Run("bad", plan, nil, 9) }); err == nil || !strings.Contains(err.Error(), "bad") {
			t.Errorf("no inputs: %v, want an error that names the key", err)
		}
		if err := Try(func() { p.Run("sum", plan, [][]byte{kernels.Bytes(x)}, 9) }); err == nil {
			t.Error("one key was taken twice")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := AddUp(kernels.Bytes([]float64{1, 2, 4})); got != 7 {
		t.Errorf("three partial sums add up to %v, want 7", got)
	}
	for us, want := range map[float64]string{12.5: "12.5 µs", 173456: "173 ms", 2.5e6: "2.50 s", math.NaN(): "-"} {
		if got := Micros(us).String(); got != want {
			t.Errorf("%v us is printed as %s, want %s", us, got, want)
		}
	}
	gpu := &cudaops.Device{Device: kernels.Device{Name: "NVIDIA X"}}
	p := &Page{gpu: gpu, measured: newRecord(gpu)}
	if mean, spread := p.MeanAndSpread("a", func() []time.Duration { return []time.Duration{1000, 3000} }); mean.Value != 2 || spread.Value != 1 || !p.measured.has("a, spread") {
		t.Errorf("1 and 3 us: mean %v, spread %v, want 2 and 1, both recorded", mean, spread)
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
	us := endToEnd(s, plan, [][]byte{kernels.Bytes(x)}, 3, func(out []byte) {
		runs++
		if got := float64(kernels.Elements[float32](out)[0]); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		clear(out)
	})
	if !(us > 0) || runs != 4 {
		t.Errorf("got %v us and %d runs, want a time and four runs", us, runs)
	}
	if err := Try(func() { endToEnd(s, plan, [][]byte{kernels.Bytes(x)}, 3, func([]byte) { Fail("bad sum") }) }); err == nil || err.Error() != "bad sum" {
		t.Errorf("an error of finish: got %v", err)
	}
	if err := Try(func() { endToEnd(s, plan, nil, 3, nil) }); err == nil {
		t.Error("no inputs and no error")
	}
}
