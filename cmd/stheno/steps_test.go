package main

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/results"
	"gorgonia.org/gorgonia"
)

// smallSteps are training steps as those that are timed, of small programs.
func smallSteps() (cases []stepCase) {
	for _, s := range graphspec.StepsOf(graphspec.MLP(20, 30, 40, 10), graphspec.LSTM(6, 5, 7, 9, 10)) {
		cases = append(cases, stepCase{evidence.TimedStep{Step: s}, &hostSteps{}})
	}
	return cases
}

// Steps that are right pass the check, and are timed; those of another solver do not.
func TestStepCase(t *testing.T) {
	for _, c := range smallSteps() {
		in := c.Values(newRandomBlock(1, 100_003).f32)
		row := results.Row{Graph: &results.Graph{}}
		if err := c.check(&row, in, cudaops.OnHost()); err != nil || row.Error > 1e-3 || row.Check != "3 steps" {
			t.Errorf("%v: %v, checked %s with error %g, want 3 steps with next to none", c.Key(), err, row.Check, row.Error)
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
		if err := c.check(&row, in, cudaops.OnHost()); err == nil || !strings.Contains(err.Error(), "wrong result") {
			t.Errorf("%v with another solver: %v, want an error that the result is wrong", c.Key(), err)
		}
	}
}

// Steps in reduced precision are held against those of all bits, and pass by a margin that shows that they were rounded.
func TestStepCaseInPrecision(t *testing.T) {
	host := &hostSteps{}
	for _, s := range graphspec.InPrecisions(graphspec.StepsOf(graphspec.MLP(20, 30, 40, 10))[0]) {
		c := stepCase{evidence.TimedStep{Step: s}, host}
		row := results.Row{Graph: &results.Graph{}}
		err := c.check(&row, c.Values(newRandomBlock(1, 100_003).f32), cudaops.OnHost())
		if err != nil || row.Graph.Off < 1e-5 || row.Error > 0.5 {
			t.Errorf("%v: %v, off by %g, with an error of %g, want one that rounding makes", c.Key(), err, row.Graph.Off, row.Error)
		}
		t.Log(c.Key(), row.Graph.Off)
	}
}

func TestTimedSteps(t *testing.T) {
	names := map[string]bool{}
	for _, c := range timedSteps() {
		if names[caseName(c)] {
			t.Errorf("there are two of %s", caseName(c))
		}
		names[caseName(c)] = true
	}
	for _, want := range []string{"MLP 784-512-512-10, SGD/batch 128/f32", "MLP 784-512-512-10, SGD, batch from the host/batch 4096/f32", "LSTM 64-256, 50 steps, SGD/batch 64/f32"} {
		if !names[want] {
			t.Errorf("no %s in %v", want, names)
		}
	}
}
