package suite

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/compare"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A Machine runs graphs.
type Machine struct {
	Name string
	New  func(*gorgonia.ExprGraph) (gorgonia.VM, error)
}

// Machines returns all that can run a graph here: Gorgonia's, Stheno's on the host and, if there is one, on the GPU.
func Machines() []Machine {
	ms := append(gorgonias[:len(gorgonias):len(gorgonias)],
		Machine{"stheno on the host", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return cudaops.NewVM(g, cudaops.OnHost()) }})
	if _, err := stheno.Devices(); err == nil {
		ms = append(ms,
			Machine{"stheno", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return stheno.NewVM(g) }},
			Machine{"stheno on a GPU, strict", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
				return cudaops.NewVM(g, cudaops.OnDevice(0), cudaops.Strict())
			}})
	}
	return ms
}

// A problem is a case with values of its inputs and the results that are wanted.
type problem struct {
	opspec.Case
	dt             kernels.Dtype
	values         []gorgonia.Value
	numbers        [][]float64 // the same
	ref, magnitude []float64
	tolerance      float64
}

func newProblem(s opspec.Spec, c opspec.Case, dt kernels.Dtype, vs []gorgonia.Value) (p problem, err error) {
	p = problem{Case: c, dt: dt, values: vs, tolerance: s.ToleranceOf(dt)}
	for _, v := range vs {
		x, err := Numbers(v)
		if err != nil {
			return p, err
		}
		p.numbers = append(p.numbers, x)
	}
	p.ref, p.magnitude = c.Reference(p.numbers...)
	return p, nil
}

// checkMachine runs a problem's graph on a machine twice. The inputs stay as they
// were.
func checkMachine(m Machine, p problem) (err error) {
	_, out, err := p.Nodes(p.dt, p.values)
	if err != nil {
		return err
	}
	result, _ := values.Dtype(out.Dtype())
	if m.Name == "LispMachine" && !result.IsFloat() { // it makes a derivative for each value, and none for integers
		return nil
	}
	vm, err := m.New(out.Graph())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	var first []byte
	for run := range 2 {
		if run > 0 {
			vm.Reset()
		}
		if err := vm.RunAll(); err != nil {
			return err
		}
		mem, err := values.Bytes(out.Value())
		if err != nil {
			return err
		}
		if !out.Value().Shape().Eq(out.Shape()) {
			return fmt.Errorf("the value has shape %v, the node %v", out.Value().Shape(), out.Shape())
		}
		if run == 0 {
			first = bytes.Clone(mem)
		} else if !p.Atomic && !bytes.Equal(first, mem) {
			return fmt.Errorf("the second run gave other bits: %w", Identical(result, mem, first))
		}
		if err := opspec.CloseTo(result, Aligned(mem), p.ref, p.magnitude, p.tolerance); err != nil {
			return fmt.Errorf("run %d: %w", run+1, err)
		}
	}
	for i, v := range p.values {
		after, err := Numbers(v)
		if err != nil {
			return err
		}
		if err := compare.Identical(after, p.numbers[i]); err != nil {
			return fmt.Errorf("input %d was written: %w", i, err)
		}
	}
	return nil
}

// onMachines runs a case on each machine.
func onMachines(t *testing.T, machines []Machine, s opspec.Spec, c opspec.Case, dt kernels.Dtype, vs []gorgonia.Value) {
	t.Helper()
	p, err := newProblem(s, c, dt, vs)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		if err := checkMachine(m, p); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// Values compares the value of every op on each machine with its reference, in two runs. A large case is checked in one type, which is drawn.
func Values(t *testing.T, machines ...Machine) {
	each(t, 1<<17, every, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		if c.Elements() > largeCase && !drawn(s, c, dt, "") {
			return
		}
		parallelOnHost(t)
		onMachines(t, machines, s, c, dt, c.Values(dt, opspec.Short.Draw(Random(t), c, dt)))
	})
}

// strided returns numbers as tensors whose memory is not their elements in order.
func strided(layout string, shape tensor.Shape, dt kernels.Dtype, x []float64) (gorgonia.Value, error) {
	if shape.TotalSize() <= 1 { // nothing to stride over; slices of one element are scalars
		return opspec.Case{Shapes: []tensor.Shape{shape}}.Values(dt, [][]float64{x})[0], nil
	}
	of := tensor.Of(values.Tensor(dt))
	var d *tensor.Dense
	switch layout {
	case "transposed":
		reversed := make([]int, len(shape))
		for a := range shape {
			reversed[a] = shape[len(shape)-1-a]
		}
		d = tensor.New(tensor.WithShape(reversed...), of)
		if err := d.T(); err != nil {
			return nil, err
		}
	case "column-major":
		d = tensor.New(tensor.WithShape(shape...), of, tensor.AsFortran(nil))
	case "sliced":
		outer, cut := make([]int, len(shape)), make([]tensor.Slice, len(shape))
		for a, e := range shape {
			if outer[a] = e; e > 1 { // a slice of one element would lose its axis
				outer[a], cut[a] = e+3, tensor.S(1, e+1)
			}
		}
		view, err := tensor.New(tensor.WithShape(outer...), of).Slice(cut...)
		if err != nil {
			return nil, err
		}
		d = view.(*tensor.Dense)
	}
	if !d.Shape().Eq(shape) {
		return nil, fmt.Errorf("the test made a %s tensor of shape %v, want %v", layout, d.Shape(), shape)
	}
	for k, v := range x {
		at, rest := make([]int, len(shape)), k
		for a := len(shape) - 1; a >= 0; a-- {
			at[a], rest = rest%shape[a], rest/shape[a]
		}
		e := reflect.ValueOf(v).Convert(values.Tensor(dt).Type)
		if err := d.SetAt(e.Interface(), at...); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Strides is [Values] with transposed, sliced and column-major tensors as inputs, each layout in one type, which is drawn.
func Strides(t *testing.T, machines ...Machine) {
	each(t, 1<<11, every, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		r := Random(t)
		for _, layout := range []string{"transposed", "sliced", "column-major"} {
			if !drawn(s, c, dt, layout) {
				continue
			}
			xs := opspec.Short.Draw(r, c, dt)
			vs := make([]gorgonia.Value, len(xs))
			for i := range xs {
				var err error
				if vs[i], err = strided(layout, c.Shapes[i], dt, xs[i]); err != nil {
					t.Fatal(err)
				}
				back, err := Numbers(vs[i])
				if err != nil {
					t.Fatal(err)
				}
				if err := compare.Identical(back, xs[i]); err != nil {
					t.Fatalf("%s input %d holds other numbers than the test's: %v", layout, i, err)
				}
			}
			onMachines(t, machines, s, c, dt, vs)
		}
	})
}
