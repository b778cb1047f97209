package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var errNoTape = errors.New("bench: no GPU to time, and to compare with Gorgonia on the CPU needs a build without the tag cuda")

// benchHost times the host's bodies against Gorgonia's own ops, each a graph of
// one op on gorgonia.NewTapeMachine, and prints the best
// times: a median counts what else the machine does.
func benchHost(w io.Writer, selected *regexp.Regexp, runs int) error {
	if gorgonia.CUDA {
		return errNoTape
	}
	fmt.Fprintf(w, "host bodies against Gorgonia's own ops on gorgonia.NewTapeMachine, %d cores, best of %d runs\n\n", runtime.GOMAXPROCS(0), runs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "case\tStheno\tGorgonia\tspeed of Gorgonia's")
	block := newRandomBlock(1)
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Types {
				name := fmt.Sprintf("%s %s %v", s.Name, c.Name, values.Tensor(dt))
				if c.Gorgonia == nil || !selected.MatchString(name) {
					continue
				}
				ours, theirs, err := timeHost(c, dt, block, runs)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%.0f %%\n", name, results.Micros(micros(ours)), results.Micros(micros(theirs)), 100*float64(theirs)/float64(ours))
			}
		}
	}
	return nil
}

// timeHost gives the best times of running the case's two graphs, which take
// turns.
func timeHost(c opspec.Case, dt kernels.Dtype, block randomBlock, runs int) (ours, theirs time.Duration, err error) {
	var vms [2]gorgonia.VM
	for i, b := range []opspec.Build{c.Build, c.Gorgonia} {
		if vms[i], err = hostMachine(b, dt, c.Shapes, block); err != nil {
			return 0, 0, err
		}
		defer vms[i].Close()
	}
	return takeTurns(vms[0], vms[1], runs, math.MaxInt64)
}

// takeTurns gives the best times of two machines that run by turns: so many runs of each,
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
func hostMachine(b opspec.Build, dt kernels.Dtype, shapes []tensor.Shape, block randomBlock) (gorgonia.VM, error) {
	c := opspec.Case{Shapes: shapes, Build: b}
	vs := make([]gorgonia.Value, len(shapes))
	for i, s := range shapes {
		var mem []byte
		vs[i], mem = values.New(dt, s)
		copy(mem, block.fill(dt, int64(len(mem)), i))
	}
	_, out, err := c.Nodes(dt, vs)
	if err != nil {
		return nil, err
	}
	return gorgonia.NewTapeMachine(out.Graph()), nil
}
