//go:build cuda

package tape_test

import (
	"fmt"
	"math"
	"reflect"

	"github.com/stheno-ml/stheno/cudaops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file compares the values of a graph on two machines.

// result is a copy of a value.
type result struct {
	of tensor.Dtype
	x  []float64
}

// compare runs a model on a machine and on Stheno's host backend.
func compare(build func() model, make newMachine, opts ...G.VMOpt) (err error) {
	values := func(make newMachine, seen func([]result), opts ...G.VMOpt) (vs []result) {
		m := build()
		if m.grads {
			ok(G.Grad(m.out[len(m.out)-1], m.leaves...))
		}
		reads := makeReads(m.out)
		vm := ok(make(m.g, opts...))
		defer func() { panicOn(vm.Close()) }()
		for range 2 {
			panicOn(vm.RunAll())
			vs = nil
			for _, v := range reads {
				vs = append(vs, result{(*v).Dtype(), numbers(*v)})
			}
			if m.grads {
				for _, n := range m.leaves {
					g := ok(n.Grad())
					vs = append(vs, result{g.Dtype(), numbers(g)})
					panicOn(g.(*tensor.Dense).Memset(0.0)) // as solvers do: bound gradients add up
				}
			}
			vm.Reset()
		}
		seen(vs)
		return vs
	}
	want := values(func(g *G.ExprGraph, _ ...G.VMOpt) (G.VM, error) { return cudaops.NewVM(g, cudaops.OnHost()) }, func([]result) {})
	values(make, func(got []result) { // before Close, which may hang
		if err = difference(got, want); err != nil {
			fmt.Println("found:", err)
		} else {
			fmt.Println("found: right values")
		}
	}, opts...)
	return err
}

// difference returns an error that names the first value that is not as wanted.
func difference(got, want []result) error {
	for i, want := range want {
		got := got[i]
		if got.of != want.of || len(got.x) != len(want.x) {
			return fmt.Errorf("value %d: got %d of %v, want %d of %v", i, len(got.x), got.of, len(want.x), want.of)
		}
		tolerance := 1e-12
		if want.of == tensor.Float32 {
			tolerance = 1e-5
		}
		for k, x := range want.x {
			if !(math.Abs(got.x[k]-x) <= tolerance*(1+math.Abs(x))) {
				return fmt.Errorf("value %d, element %d of %d: got %v, want %v", i, k, len(want.x), got.x[k], x)
			}
		}
	}
	return nil
}

// makeReads has a graph read the nodes' values.
func makeReads(nodes G.Nodes) (reads []*G.Value) {
	for _, n := range nodes {
		v := new(G.Value)
		G.Read(n, v)
		reads = append(reads, v)
	}
	return reads
}

// numbers is a copy of a value's elements, true as 1.
func numbers(v G.Value) []float64 {
	var x []float64
	all := reflect.ValueOf(v.Data())
	if all.Kind() != reflect.Slice { // a scalar
		all = reflect.Append(reflect.MakeSlice(reflect.SliceOf(all.Type()), 0, 1), all)
	}
	for i := range all.Len() {
		switch e := all.Index(i); {
		case e.CanFloat():
			x = append(x, e.Float())
		case e.CanInt():
			x = append(x, float64(e.Int()))
		case e.Bool():
			x = append(x, 1)
		default:
			x = append(x, 0)
		}
	}
	return x
}

// panicOn and ok are for programs, which run in a process of their own and panic where they fail.
func panicOn(err error) {
	if err != nil {
		panic(err)
	}
}

func ok[T any](v T, err error) T {
	panicOn(err)
	return v
}
