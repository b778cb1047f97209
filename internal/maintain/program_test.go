package maintain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/gorgonia"
)

// smallSteps are training steps as those that are timed, of small programs.
func smallSteps() (cases []Program) {
	for _, s := range graphspec.StepsOf(graphspec.MLP(20, 30, 40, 10), graphspec.LSTM(6, 5, 7, 9, 10)) {
		cases = append(cases, Program{s, &trained{}})
	}
	return cases
}

// Steps that are right pass the check, and are timed; those of another solver do not.
func TestStepCase(t *testing.T) {
	for _, c := range smallSteps() {
		in := c.Values(NewBlock(1, 100_003).F32)
		values := map[string]float64{}
		if checked, err := c.checkSteps(values, in, cudaops.OnHost()); err != nil || values["error"] > 1e-3 || checked != "3 steps" {
			t.Errorf("%v: %v, checked %s with error %g, want 3 steps with next to none", c.Key(), err, checked, values["error"])
		}
		for _, fromHost := range []bool{false, true} {
			if c.FromHost = fromHost; fromHost && strings.HasPrefix(c.Name, "LSTM") {
				continue // its vectors come step by step, not row by row
			}
			if times, err := c.timeSteps(in, 2, cudaops.OnHost()); err != nil || len(times) == 0 || times[0] <= 0 {
				t.Errorf("%v: times %v, %v", c.Key(), times, err)
			}
		}
		right, calls := c.Solver, 0
		c.Solver = func() gorgonia.Solver { // the machine under test gets another one than the host
			if calls++; calls == 1 {
				return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.003))
			}
			return right()
		}
		if _, err := c.checkSteps(values, in, cudaops.OnHost()); err == nil || !strings.Contains(err.Error(), "wrong result") {
			t.Errorf("%v with another solver: %v, want an error that the result is wrong", c.Key(), err)
		}
	}
}

// Steps in reduced precision are compared with full-precision steps. Their error is within the bound, and large enough to show rounding.
func TestStepCaseInPrecision(t *testing.T) {
	host := &trained{}
	for _, s := range graphspec.InPrecisions(graphspec.StepsOf(graphspec.MLP(20, 30, 40, 10))[0]) {
		c := Program{s, host}
		values := map[string]float64{}
		_, err := c.checkSteps(values, c.Values(NewBlock(1, 100_003).F32), cudaops.OnHost())
		if err != nil || values["off"] < 1e-5 || values["error"] > 0.5 {
			t.Errorf("%v: %v, off by %g, with an error of %g, want one that rounding makes", c.Key(), err, values["off"], values["error"])
		}
		t.Log(c.Key(), values["off"])
	}
}

// The cases of a set have names of their own, and describe themselves for other libraries.
func TestCases(t *testing.T) {
	for set, wanted := range map[string][]string{
		records.Ops: {"Sum/all 2^28/f64", "Sum/all 2^28 version 7/f32"}, records.Graphs: {"softmax/16384x1000/f32"}, records.Products: {"MatMul/uniform in [-1, 1), 256 x 256 x 256/f32"},
		records.Steps: {"MLP 784-512-512-10, SGD/batch 128/f32", "MLP 784-512-512-10, SGD, batch from the host/batch 4096/f32", "LSTM 64-256, 50 steps, SGD/batch 64/f32"},
	} {
		names := map[string]bool{}
		for _, c := range Cases(set, true) {
			name := c.Key().String()
			if names[name] {
				t.Errorf("there are two of %s", name)
			}
			names[name] = true
			var d struct{ Op, Case, Dtype, A string }
			text := testutil.Get[[]byte](t)(json.Marshal(c.Describe()))
			testutil.Do(t, json.Unmarshal(text, &d))
			if got := (records.Key{Op: d.Op, Case: d.Case, Dtype: d.Dtype}); got != c.Key() && set != records.Products {
				t.Errorf("%s is described as %s", name, text)
			}
		}
		for _, want := range wanted {
			if !names[want] {
				t.Errorf("no %s in %v", want, names)
			}
		}
	}
}
