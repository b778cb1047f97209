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
	"gorgonia.org/gorgonia"
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

// hostCases returns the cases of ops that Gorgonia has too.
func hostCases() (cases []maintain.Case) {
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Types {
				if c.Gorgonia != nil {
					cases = append(cases, maintain.Op{Spec: s, Case: c, Dtype: dt})
				}
			}
		}
	}
	return cases
}

// Run times the ops.
func (b benchHost) Run(c *console) error {
	cases, err := b.choose(c, b.timing, hostCases())
	if err != nil || b.List {
		return err
	}
	if gorgonia.CUDA {
		return errNoTape
	}
	seed := b.seed()
	fmt.Fprintf(c.out, "Stheno's ops on the host beside Gorgonia's own, %d cores, best of %d runs, seed %d\nproducts: Stheno's by %s; Gorgonia's by gonum\n\n",
		runtime.GOMAXPROCS(0), b.runs(), seed, hostblas.Describe(nil))
	random := maintain.NewBlock(seed, maintain.BlockOfHost)
	t := newRows(c, len(cases), column{"case", longest(cases)}, column{"Stheno", 8}, column{"Gorgonia", 8}, column{"Stheno is", 19})
	defer t.end()
	var failed error
	for _, one := range cases {
		t.begin(caseName(one))
		times, err := hostTimes(one.(maintain.Op), random, b.runs())
		if err != nil {
			failed = errors.Join(failed, t.fail(one, err))
			continue
		}
		t.add(caseName(one), records.Micros(times[0]), records.Micros(times[1]), timesAsFast(times[0], times[1]))
	}
	return failed
}

// timesAsFast compares two times.
func timesAsFast(ours, theirs float64) string { return fmt.Sprintf("%.2f times as fast", theirs/ours) }

// hostTimes returns the best times, in us, of running Stheno's and Gorgonia's graph of a case by turns on the same inputs.
func hostTimes(o maintain.Op, block maintain.Block, runs int) (best [2]float64, err error) {
	var vms [2]gorgonia.VM
	for i, build := range []opspec.Build{o.Case.Build, o.Case.Gorgonia} {
		inputs := make([]gorgonia.Value, len(o.Case.Shapes))
		for k, s := range o.Case.Shapes {
			var mem []byte
			inputs[k], mem = values.New(o.Dtype, s)
			copy(mem, block.Fill(o.Dtype, int64(len(mem)), k))
		}
		_, out, err := (opspec.Case{Shapes: o.Case.Shapes, Build: build}).Nodes(o.Dtype, inputs)
		if err != nil {
			return best, err
		}
		vms[i], best[i] = gorgonia.NewTapeMachine(out.Graph()), math.Inf(1)
		defer vms[i].Close()
	}
	for range runs {
		for k, vm := range vms {
			start := time.Now()
			err := vm.RunAll()
			took := time.Since(start)
			vm.Reset()
			if err != nil {
				return best, err
			}
			best[k] = min(best[k], maintain.Micros(took))
		}
	}
	return best, nil
}
