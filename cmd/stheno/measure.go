package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// benchCase is a case that is timed on a device, as one row.
type benchCase interface {
	Key() results.Key
	// measure times the case on the device and checks its result.
	measure(device cudaops.Device, block randomBlock, runs int) (results.Row, error)
}

// timedCase is a case of an op in one element type.
type timedCase struct{ evidence.Timed }

// timedCases returns all cases of ops that are timed on a GPU, with those of the numbered versions
// if wanted.
func timedCases(versions bool) (cases []benchCase) {
	for _, c := range evidence.Cases() {
		if versions || c.Case.Version == 0 {
			cases = append(cases, timedCase{c})
		}
	}
	return cases
}

// textCase is the histogram of the bytes of a text, repeated to the length of the text that a
// well-known listing counts.
func textCase(path string) (timedCase, error) {
	const size = 5_800_000
	text, err := os.ReadFile(path)
	if err != nil {
		return timedCase{}, fmt.Errorf("--text: %w", err)
	}
	if len(text) == 0 {
		return timedCase{}, fmt.Errorf("--text: %s is empty, want a text to count the bytes of", path)
	}
	all := timedCases(false)
	like := slices.IndexFunc(all, func(c benchCase) bool { return caseName(c) == "Histogram/2^30 bytes/u8" })
	if like < 0 {
		return timedCase{}, errors.New("--text: there is no case Histogram/2^30 bytes/u8 to make another one of")
	}
	bytes := all[like].(timedCase)
	bytes.Case.Name = "5.8 MB of text"
	bytes.Case.Shapes = []tensor.Shape{{size}}
	bytes.Case.Fill = func(operand []byte) {
		for i := 0; i < len(operand); i += copy(operand[i:], text) {
		}
	}
	return bytes, nil
}

// measure times the case on the device and compares the output of the last timed run with that of
// the host.
func (t timedCase) measure(device cudaops.Device, block randomBlock, runs int) (results.Row, error) {
	return t.measureWithin(device, block, runs, 3*time.Second, math.MaxInt64)
}

// measureWithin is measure with a limit for the time of the runs. The output of a case that moves
// more bytes than the limit for checks is not checked.
func (t timedCase) measureWithin(device cudaops.Device, block randomBlock, runs int, budget time.Duration, checked int64) (results.Row, error) {
	plan, _, err := t.Case.Plan(t.Dtype, device.Device)
	if err != nil {
		return results.Row{}, err
	}
	digests, err := plan.Digests()
	if err != nil {
		return results.Row{}, err
	}
	inputs := t.inputs(plan, block)
	timing, err := bench.TimeWithin(device.Ordinal, plan, inputs, runs, budget)
	if err != nil {
		return results.Row{}, err
	}
	slices.Sort(timing.Runs)
	row := results.Row{
		Key: t.Key(), Version: int(t.Case.Version), Kernels: digests, Bytes: t.Case.Bytes(plan, t.Dtype, device.Device), Flops: plan.Flops, Runs: len(timing.Runs),
		Micros: micros(timing.Runs[len(timing.Runs)/2]), Min: micros(timing.Runs[0]), Max: micros(timing.Runs[len(timing.Runs)-1]),
	}
	if plan.Bytes() > checked {
		row.Check = "no"
		return row, nil
	}
	err = t.checkInto(&row, plan, inputs, timing.Out)
	return row, err
}

// checkInto records in a row how an output was checked. A wrong output is an error.
func (t timedCase) checkInto(row *results.Row, plan *kernels.Plan, inputs [][]byte, out []byte) (err error) {
	if row.Check, row.Error, err = t.check(plan, inputs, out, affordable); err != nil {
		return err
	}
	if !(row.Error <= 1) {
		return fmt.Errorf("wrong result: an element of %s is off by %.3g times the error that the op allows", row.Check, row.Error)
	}
	return nil
}

// inputs returns the operands of a plan of the case.
func (t timedCase) inputs(plan *kernels.Plan, block randomBlock) [][]byte {
	inputs := make([][]byte, len(plan.Inputs))
	for i, n := range plan.Inputs {
		if t.Case.Fill != nil {
			inputs[i] = make([]byte, n)
			t.Case.Fill(inputs[i])
			continue
		}
		inputs[i] = block.fill(t.Dtype, n, i)
	}
	return inputs
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
