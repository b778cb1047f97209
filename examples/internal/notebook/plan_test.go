package notebook

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// Without a GPU a plan's output is the host's, and its times are the recorded
// ones.
func TestRunPlan(t *testing.T) {
	text := `{"device": "NVIDIA X", "date": "2026-01-02", "digest": "0123", "figures": {
		"sum, mean": {"value": 12.5, "unit": "us"}, "sum, spread": {"value": 0.5, "unit": "us"}}}`
	x := []float32{1, 2, 3, 4.5}
	err := Run(Options{Device: "cpu"}, new(bytes.Buffer), "t", []byte(text), func(p *Page) error {
		plan := kernels.Sum(p.Target(), kernels.Float32, []int{len(x)}, []int{0}, false)
		ran, err := p.Run("sum", plan, [][]byte{kernels.Bytes(x)}, 9)
		if err != nil {
			return err
		}
		if ran.Mean.String() != "12.5 us" || ran.Spread.Value != 0.5 || kernels.Elements[float32](ran.Out)[0] != 10.5 {
			t.Errorf("got %v, %v and %v, want the recorded 12.5 us and 0.5 us, and 10.5", ran.Mean, ran.Spread, ran.Out)
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
	for us, want := range map[float64]string{12.5: "12.5 us", 173456: "173 ms", 2.5e6: "2.50 s", math.NaN(): "-"} {
		if got := Micros(us).String(); got != want {
			t.Errorf("%v us is printed as %s, want %s", us, got, want)
		}
	}
	if mean, spread := Moments([]time.Duration{1000, 3000}); mean != 2 || spread != 1 {
		t.Errorf("1 and 3 us: mean %v, spread %v, want 2 and 1", mean, spread)
	}
}
