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

	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type build func(in ...*gorgonia.Node) (*gorgonia.Node, error)

// hostCase is the same work by a Stheno op and by Gorgonia's own.
type hostCase struct {
	name         string
	shapes       []tensor.Shape
	ours, theirs build
}

func hostCases() []hostCase {
	square := func(n int) tensor.Shape { return tensor.Shape{n, n} }
	pair := func(s tensor.Shape) []tensor.Shape { return []tensor.Shape{s, s} }
	add := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Add(in[0], in[1]) }
	mul := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Mul(in[0], in[1]) }
	sum := func(along ...int) (ours, theirs build) {
		return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Sum(in[0], along...) },
			func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Sum(in[0], along...) }
	}
	all, gAll := sum()
	rows, gRows := sum(1)
	cols, gCols := sum(0)
	middle, gMiddle := sum(1)
	dot := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Dot(in[0], in[1]) }
	matmul := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(in[0], in[1]) }
	return []hostCase{
		{"Add 2^22", pair(tensor.Shape{1 << 22}), func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[1]) }, add},
		{"Sum all 2^22", []tensor.Shape{{1 << 22}}, all, gAll},
		{"Sum rows 2048x2048", []tensor.Shape{square(2048)}, rows, gRows},
		{"Sum columns 2048x2048", []tensor.Shape{square(2048)}, cols, gCols},
		{"Sum middle of 64x256x256", []tensor.Shape{{64, 256, 256}}, middle, gMiddle},
		{"Mean all 2^22", []tensor.Shape{{1 << 22}}, func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Mean(in[0]) },
			func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Mean(in[0]) }},
		{"Dot 2^22", pair(tensor.Shape{1 << 22}), dot, mul},
		{"MatMul 128", pair(square(128)), matmul, mul},
		{"MatMul 512", pair(square(512)), matmul, mul},
		{"MatMul 1024", pair(square(1024)), matmul, mul},
		{"MatMul 2048x2048 by vector", []tensor.Shape{square(2048), {2048}}, matmul, mul},
		{"MatMul batch 64 of 64", pair(tensor.Shape{64, 64, 64}), matmul, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.BatchedMatMul(in[0], in[1])
		}},
	}
}

// benchHost times the host's bodies against Gorgonia's own ops, each a graph of
// one op on gorgonia.NewTapeMachine, and prints the best
// times: a median counts what else the machine does.
func benchHost(w io.Writer, selected *regexp.Regexp, runs int) error {
	if gorgonia.CUDA {
		return errors.New("bench: no GPU to time, and to compare with Gorgonia on the CPU needs a build without the tag cuda")
	}
	fmt.Fprintf(w, "host bodies against Gorgonia's own ops on gorgonia.NewTapeMachine, %d cores, best of %d runs\n\n", runtime.GOMAXPROCS(0), runs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "case\tStheno\tGorgonia\tspeed of Gorgonia's")
	block := newRandomBlock(1)
	for _, c := range hostCases() {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			name := fmt.Sprintf("%s %v", c.name, dt)
			if !selected.MatchString(name) {
				continue
			}
			ours, theirs, err := timeHost(c, dt, block, runs)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%.0f %%\n", name, results.Micros(micros(ours)), results.Micros(micros(theirs)), 100*float64(theirs)/float64(ours))
		}
	}
	return nil
}

// timeHost gives the best times of running the case's two graphs, which take
// turns.
func timeHost(c hostCase, dt tensor.Dtype, block randomBlock, runs int) (ours, theirs time.Duration, err error) {
	var vms [2]gorgonia.VM
	for i, b := range []build{c.ours, c.theirs} {
		if vms[i], err = hostMachine(b, dt, c.shapes, block); err != nil {
			return 0, 0, err
		}
		defer vms[i].Close()
	}
	best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range runs {
		for i, vm := range vms {
			start := time.Now()
			err := vm.RunAll()
			d := time.Since(start)
			vm.Reset()
			if err != nil {
				return 0, 0, err
			}
			best[i] = min(best[i], d)
		}
	}
	return best[0], best[1], nil
}

// hostMachine is a machine for a graph of one op on random inputs.
func hostMachine(b build, dt tensor.Dtype, shapes []tensor.Shape, block randomBlock) (gorgonia.VM, error) {
	g := gorgonia.NewGraph()
	in := make([]*gorgonia.Node, len(shapes))
	for i, s := range shapes {
		var backing any = kernels.Elements[float32](block.fill(kernels.Float32, int64(s.TotalSize())*4, i))
		if dt == tensor.Float64 {
			backing = kernels.Elements[float64](block.fill(kernels.Float64, int64(s.TotalSize())*8, i))
		}
		in[i] = gorgonia.NewTensor(g, dt, s.Dims(), gorgonia.WithShape(s...), gorgonia.WithName(fmt.Sprintf("in%d", i)),
			gorgonia.WithValue(tensor.New(tensor.WithShape(s...), tensor.WithBacking(backing))))
	}
	if _, err := b(in...); err != nil {
		return nil, err
	}
	return gorgonia.NewTapeMachine(g), nil
}
