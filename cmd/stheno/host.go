package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var errNoTape = errors.New("to compare with Gorgonia on the processor needs a build without the tag cuda")

// benchHost times the host's bodies and Gorgonia's own ops, each as a graph of one op on
// gorgonia.NewTapeMachine, and prints the best times: a median would include whatever else the machine
// does.
type benchHost struct {
	selection
	timing
}

func (benchHost) Help() string {
	return `Runs each op of Stheno's that Gorgonia has too and Gorgonia's own in turn, both on gorgonia.NewTapeMachine
with the same inputs, and prints a line each as soon as it is measured: the best time of either, and
how many times as fast as Gorgonia's op Stheno's is. Below 1 it is slower.`
}

// hostCase is a case of an op that Gorgonia has too.
type hostCase struct {
	op string
	opspec.Case
	dtype kernels.Dtype
}

// hostCases are all of them.
func hostCases() (cases []hostCase) {
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Types {
				if c.Gorgonia != nil {
					cases = append(cases, hostCase{s.Name, c, dt})
				}
			}
		}
	}
	return cases
}

func hostName(c hostCase) string {
	return records.Key{Op: c.op, Case: c.Name, Dtype: c.dtype.String()}.String()
}

// Run times the ops.
func (b benchHost) Run(c *console) error {
	cases, err := choose(b.selection.Run, hostCases(), hostName)
	if err != nil {
		return err
	}
	if b.List {
		return list(c, b.timing, cases, hostName)
	}
	if gorgonia.CUDA {
		return errNoTape
	}
	seed := b.seed()
	fmt.Fprintf(c.out, "Stheno's ops on the host beside Gorgonia's own, %d cores, best of %d runs, seed %d\nproducts: Stheno's by %s; Gorgonia's by gonum\n\n",
		runtime.GOMAXPROCS(0), b.runs(), seed, hostblas.Describe(nil))
	random := maintain.NewBlock(seed, maintain.BlockOfHost)
	return beside(c, cases, func(h hostCase) (ours, theirs time.Duration, err error) { return h.time(random, b.runs()) })
}

// beside prints the times of cases, Stheno's and Gorgonia's.
func beside(c *console, cases []hostCase, measure func(hostCase) (ours, theirs time.Duration, err error)) (failed error) {
	t := newRows(c, len(cases), column{"case", longest(cases, hostName)}, column{"Stheno", 8}, column{"Gorgonia", 8}, column{"Stheno is", 19})
	defer t.end()
	for _, one := range cases {
		t.begin(hostName(one))
		ours, theirs, err := measure(one)
		if err != nil {
			t.fail(hostName(one), err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", hostName(one), err))
			continue
		}
		t.add(hostName(one), records.Micros(maintain.Micros(ours)), records.Micros(maintain.Micros(theirs)), timesAsFast(maintain.Micros(ours), maintain.Micros(theirs)))
	}
	return failed
}

// timesAsFast compares two times.
func timesAsFast(ours, theirs float64) string { return fmt.Sprintf("%.2f times as fast", theirs/ours) }

// time returns the best times of running the case's two graphs by turns.
func (h hostCase) time(block maintain.Block, runs int) (ours, theirs time.Duration, err error) {
	var vms [2]gorgonia.VM
	for i, b := range []opspec.Build{h.Build, h.Gorgonia} {
		if vms[i], err = hostMachine(b, h.dtype, h.Shapes, block); err != nil {
			return 0, 0, err
		}
		defer vms[i].Close()
	}
	best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range runs {
		for k, vm := range vms {
			start := time.Now()
			err := vm.RunAll()
			took := time.Since(start)
			vm.Reset()
			if err != nil {
				return 0, 0, err
			}
			best[k] = min(best[k], took)
		}
	}
	return best[0], best[1], nil
}

// hostMachine is a machine for a graph of one op on random inputs.
func hostMachine(b opspec.Build, dt kernels.Dtype, shapes []tensor.Shape, block maintain.Block) (gorgonia.VM, error) {
	c := opspec.Case{Shapes: shapes, Build: b}
	vs := make([]gorgonia.Value, len(shapes))
	for i, s := range shapes {
		var mem []byte
		vs[i], mem = values.New(dt, s)
		copy(mem, block.Fill(dt, int64(len(mem)), i))
	}
	_, out, err := c.Nodes(dt, vs)
	if err != nil {
		return nil, err
	}
	return gorgonia.NewTapeMachine(out.Graph()), nil
}
