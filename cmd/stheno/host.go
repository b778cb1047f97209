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
	return timeOnHost(c, b.selection, b.timing, hostCases(), hostName, "Stheno's ops on the host beside Gorgonia's own, %d cores, best of %d runs, seed %d",
		func(h hostCase, random maintain.Block) (ours, theirs time.Duration, err error) {
			return h.time(random, b.runs())
		})
}

// timeOnHost times the cases that are selected on the host, or prints their names. The title has places for
// the numbers of cores and of runs, and for the seed.
func timeOnHost[T any](c *console, s selection, t timing, cases []T, name func(T) string, title string, measure func(one T, random maintain.Block) (ours, theirs time.Duration, err error)) error {
	cases, err := choose(s.Run, cases, name)
	if err != nil {
		return err
	}
	if s.List {
		return list(c, t, cases, name)
	}
	if gorgonia.CUDA {
		return errNoTape
	}
	seed := t.seed()
	fmt.Fprintf(c.out, title+"\nproducts: Stheno's by %s; Gorgonia's by gonum\n\n", runtime.GOMAXPROCS(0), t.runs(), seed, hostblas.Describe(nil))
	random := maintain.NewBlock(seed, maintain.BlockOfHost)
	return beside(c, cases, name, func(one T) (ours, theirs time.Duration, err error) { return measure(one, random) })
}

// beside prints the times of cases, Stheno's and Gorgonia's.
func beside[T any](c *console, cases []T, name func(T) string, measure func(T) (ours, theirs time.Duration, err error)) (failed error) {
	t := newRows(c, len(cases), column{"case", longest(cases, name)}, column{"Stheno", 8}, column{"Gorgonia", 8}, column{"Stheno is", 19})
	defer t.end()
	for _, one := range cases {
		t.begin(name(one))
		ours, theirs, err := measure(one)
		if err != nil {
			t.fail(name(one), err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name(one), err))
			continue
		}
		t.add(name(one), records.Micros(maintain.Micros(ours)), records.Micros(maintain.Micros(theirs)), timesAsFast(maintain.Micros(ours), maintain.Micros(theirs)))
	}
	return failed
}

// timesAsFast compares two times.
func timesAsFast(ours, theirs float64) string { return fmt.Sprintf("%.2f times as fast", theirs/ours) }

// time returns the best times of running the case's two graphs, which take
// turns.
func (h hostCase) time(block maintain.Block, runs int) (ours, theirs time.Duration, err error) {
	var vms [2]gorgonia.VM
	for i, b := range []opspec.Build{h.Build, h.Gorgonia} {
		if vms[i], err = hostMachine(b, h.dtype, h.Shapes, block); err != nil {
			return 0, 0, err
		}
		defer vms[i].Close()
	}
	return takeTurns(vms[0], vms[1], runs, math.MaxInt64)
}

// takeTurns returns the best times of two machines that run by turns: n runs of each,
// or those that fit into the budget, one at least.
func takeTurns(a, b gorgonia.VM, runs int, budget time.Duration) (bestA, bestB time.Duration, err error) {
	best, began := [2]time.Duration{math.MaxInt64, math.MaxInt64}, time.Now()
	for i := 0; i < runs && (i == 0 || time.Since(began) < budget); i++ {
		for k, vm := range []gorgonia.VM{a, b} {
			start := time.Now()
			err := vm.RunAll()
			d := time.Since(start)
			vm.Reset()
			if err != nil {
				return 0, 0, err
			}
			best[k] = min(best[k], d)
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
