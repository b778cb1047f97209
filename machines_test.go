package stheno_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/compare"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type machine struct {
	name string
	make func(*gorgonia.ExprGraph) (gorgonia.VM, error)
}

// machines are all that can run a graph here.
func machines() []machine {
	ms := append(gorgonias[:len(gorgonias):len(gorgonias)],
		machine{"stheno", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return stheno.NewVM(g) }},
		machine{"stheno on the host", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return cudaops.NewVM(g, cudaops.OnHost()) }},
	)
	if _, err := stheno.Devices(); err == nil {
		ms = append(ms, machine{"stheno on a GPU, strict", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
			return cudaops.NewVM(g, cudaops.OnDevice(0), cudaops.Strict())
		}})
	}
	return ms
}

// checkMachine runs a case's graph on a machine twice, on the values given,
// which stay as they were.
func checkMachine(m machine, s opspec.Spec, c opspec.Case, dt kernels.Dtype, vs []gorgonia.Value) (err error) {
	xs := make([][]float64, len(vs))
	for i, v := range vs {
		if xs[i], err = numbers(v); err != nil {
			return err
		}
	}
	ref, magnitude := c.Reference(xs...)
	_, out, err := c.Nodes(dt, vs)
	if err != nil {
		return err
	}
	result, _ := values.Dtype(out.Dtype())
	if m.name == "LispMachine" && !result.IsFloat() { // it makes a derivative for each value, and none for integers
		return nil
	}
	vm, err := m.make(out.Graph())
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
		} else if !c.Atomic && !bytes.Equal(first, mem) {
			return fmt.Errorf("the second run gave other bits: %w", identical(result, mem, first))
		}
		if err := closeTo(result, aligned(mem), ref, magnitude, s.Tolerance); err != nil {
			return fmt.Errorf("run %d: %w", run+1, err)
		}
	}
	for i, v := range vs {
		after, err := numbers(v)
		if err != nil {
			return err
		}
		if err := compare.Identical(after, xs[i]); err != nil {
			return fmt.Errorf("input %d was written: %w", i, err)
		}
	}
	return nil
}

// TestMachines: graphs of one op on every machine.
func TestMachines(t *testing.T) {
	each(t, 1<<17, every, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		r := random(t)
		for _, m := range machines() {
			if err := checkMachine(m, s, c, dt, c.Values(dt, opspec.Short.Draw(r, c, dt))); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	})
}

// strided gives numbers as tensors whose memory is not their elements in order.
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

// TestStrides: transposed, sliced and column-major tensors as inputs.
func TestStrides(t *testing.T) {
	each(t, 1<<11, every, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		r := random(t)
		for _, layout := range []string{"transposed", "sliced", "column-major"} {
			for _, m := range machines() {
				xs := opspec.Short.Draw(r, c, dt)
				vs := make([]gorgonia.Value, len(xs))
				for i := range xs {
					var err error
					if vs[i], err = strided(layout, c.Shapes[i], dt, xs[i]); err != nil {
						t.Fatal(err)
					}
					back, err := numbers(vs[i])
					if err != nil {
						t.Fatal(err)
					}
					if err := compare.Identical(back, xs[i]); err != nil {
						t.Fatalf("%s input %d holds other numbers than the test's: %v", layout, i, err)
					}
				}
				if err := checkMachine(m, s, c, dt, vs); err != nil {
					t.Errorf("%s on %s: %v", layout, m.name, err)
				}
			}
		}
	})
}
