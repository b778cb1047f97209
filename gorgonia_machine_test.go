//go:build cuda

package stheno_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/compare"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// gorgonias: on a device the tests of this file run Gorgonia's machine. Without
// one its machines are those of a plain build, panics with Read aside.
var gorgonias = map[bool][]machine{
	false: nil,
	true: {
		{"TapeMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) }},
		{"LispMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
			return tape.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
		}},
	},
}[tape.Available() != nil]

// Gorgonia's CUDA machine starts a context for each graph, which takes most of a
// second, so here all cases of an op and type are one graph.

// cases are those of a spec, the random ones included, that are small enough.
func cases(t *testing.T, s ops.Spec, limit int) []ops.Case {
	r := random(t)
	all := append([]ops.Case(nil), s.Cases...)
	for range 6 {
		all = append(all, s.Random(r))
	}
	var cs []ops.Case
	for _, c := range all {
		if !c.Bench && elements(c) <= limit {
			cs = append(cs, c)
		}
	}
	if len(cs) == 0 {
		t.Fatal("no case is small enough")
	}
	return cs
}

// A bundle is a graph of many cases of an op.
type bundle struct {
	graph *gorgonia.ExprGraph
	in    []gorgonia.Nodes
	out   gorgonia.Nodes
	all   gorgonia.Nodes // of in
	cost  *gorgonia.Node
}

// bundleOf builds the cases on the given numbers. With gradients, the cost is
// the sum of all outputs, each weighted with numbers of its own by an op of
// Gorgonia's.
func bundleOf(cs []ops.Case, dt kernels.Dtype, xs [][][]float64, gradients bool) (*bundle, error) {
	b := &bundle{graph: gorgonia.NewGraph()}
	for i, c := range cs {
		var in gorgonia.Nodes
		for k, v := range valuesOf(c, dt, xs[i]) {
			in = append(in, gorgonia.NewTensor(b.graph, values.Tensor(dt), v.Shape().Dims(), gorgonia.WithShape(v.Shape()...),
				gorgonia.WithName(fmt.Sprintf("in%d_%d", i, k)), gorgonia.WithValue(v)))
		}
		out, err := c.Build(in...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		b.in, b.out, b.all = append(b.in, in), append(b.out, out), append(b.all, in...)
		if !gradients {
			continue
		}
		if !out.IsScalar() {
			w, mem := values.New(dt, out.Shape())
			weights := make([]float64, out.Shape().TotalSize())
			for k := range weights {
				weights[k] = float64(k%17-8) / 4
			}
			copy(mem, encode(dt, weights))
			wn := gorgonia.NewTensor(b.graph, values.Tensor(dt), out.Shape().Dims(), gorgonia.WithShape(out.Shape()...),
				gorgonia.WithName(fmt.Sprintf("weights%d", i)), gorgonia.WithValue(w))
			if out, err = gorgonia.HadamardProd(out, wn); err != nil {
				return nil, err
			}
		}
		term, err := ops.Sum(out)
		if err != nil {
			return nil, err
		}
		if b.cost == nil {
			b.cost = term
		} else if b.cost, err = ops.Add(b.cost, term); err != nil {
			return nil, err
		}
	}
	if gradients {
		if _, err := gorgonia.Grad(b.cost, b.all...); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// machineGPU skips the test, or fails it, where Gorgonia's machines have no
// device.
func machineGPU(t *testing.T) {
	t.Helper()
	gpu(t)
	if err := tape.Available(); err != nil {
		t.Fatal(err)
	}
}

// TestGorgoniaMachine: every case of every op forward on Gorgonia's own CUDA
// machine against the plain reference, twice, with the same bits.
func TestGorgoniaMachine(t *testing.T) {
	machineGPU(t)
	for _, s := range ops.All() {
		for _, dt := range s.Dtypes() {
			t.Run(fmt.Sprintf("%s/%v", s.Name, dt), func(t *testing.T) {
				cs := cases(t, s, 1<<18)
				r := random(t)
				xs := make([][][]float64, len(cs))
				for i, c := range cs {
					xs[i] = short.inputs(r, c, dt)
				}
				b, err := bundleOf(cs, dt, xs, false)
				if err != nil {
					t.Fatal(err)
				}
				for i, n := range b.out {
					if _, ok := n.Op().(gorgonia.CUDADoer); !ok {
						t.Errorf("%s: the op is a %T, no gorgonia.CUDADoer", cs[i].Name, n.Op())
					}
				}
				vm, err := tape.NewMachine(b.graph)
				if err != nil {
					t.Fatal(err)
				}
				first := make([][]byte, len(cs))
				for run := range 2 {
					if err := vm.RunAll(); err != nil {
						t.Fatal(err)
					}
					for i, c := range cs {
						mem, err := values.Bytes(b.out[i].Value())
						if err != nil {
							t.Fatalf("%s: %v", c.Name, err)
						}
						result, _ := values.Dtype(b.out[i].Dtype())
						if run == 0 {
							first[i] = bytes.Clone(mem)
						} else if !c.Atomic && !bytes.Equal(mem, first[i]) {
							t.Errorf("%s: the second run gave other bits: %v", c.Name, identical(result, mem, first[i]))
						}
						ref, magnitude := c.Reference(xs[i]...)
						if err := closeTo(result, aligned(mem), ref, magnitude, s.Tolerance); err != nil {
							t.Errorf("%s, run %d: %v", c.Name, run+1, err)
						}
					}
					vm.Reset()
				}
				if err := vm.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestGorgoniaMachineGradients: the gradients of every op there against those
// on the host, which TestGradients holds against differences.
func TestGorgoniaMachineGradients(t *testing.T) {
	machineGPU(t)
	for _, s := range ops.All() {
		if s.NoGradient {
			continue
		}
		for _, dt := range s.Dtypes() {
			for _, bound := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/bound %v", s.Name, dt, bound), func(t *testing.T) {
					cs := cases(t, s, 5000)
					r := random(t)
					xs := make([][][]float64, len(cs))
					for i, c := range cs {
						xs[i] = short.inputs(r, c, dt)
					}
					gradients := func(make func(*bundle) (gorgonia.VM, error)) (gs [][]float64) {
						b, err := bundleOf(cs, dt, xs, true)
						if err != nil {
							t.Fatal(err)
						}
						vm, err := make(b)
						if err != nil {
							t.Fatal(err)
						}
						if err := vm.RunAll(); err != nil {
							t.Fatal(err)
						}
						for _, n := range b.all {
							g, err := n.Grad()
							if err != nil {
								t.Fatal(err)
							}
							x, err := numbers(g)
							if err != nil {
								t.Fatal(err)
							}
							gs = append(gs, x)
						}
						if err := vm.Close(); err != nil {
							t.Error(err)
						}
						return gs
					}
					want := gradients(func(b *bundle) (gorgonia.VM, error) { return cudaops.NewVM(b.graph, cudaops.OnHost()) })
					got := gradients(func(b *bundle) (gorgonia.VM, error) {
						if bound {
							return tape.NewMachine(b.graph, gorgonia.BindDualValues(b.all...))
						}
						return tape.NewMachine(b.graph)
					})
					for i := range want {
						tolerance := 1e-5
						if dt == kernels.Float64 {
							tolerance = 1e-13
						}
						if err := compare.Close(got[i], want[i], nil, tolerance/0x1p-52, tolerance); err != nil {
							t.Errorf("input %d: %v", i, err)
						}
					}
				})
			}
		}
	}
}

// TestGorgoniaMachineLoop makes, runs and closes machines one after the other,
// within a time limit.
func TestGorgoniaMachineLoop(t *testing.T) {
	machineGPU(t)
	turns := 10
	if testing.Short() {
		turns = 3
	}
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			for range turns {
				g, out, err := graph()
				if err != nil {
					return err
				}
				vm, err := tape.NewMachine(g)
				if err != nil {
					return err
				}
				if err := vm.RunAll(); err != nil {
					return err
				}
				if err := vm.Close(); err != nil {
					return err
				}
				if x, err := numbers(out.Value()); err != nil || x[2] != 6 {
					return fmt.Errorf("got %v (%v), want 6 last", x, err)
				}
			}
			return nil
		}()
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		fmt.Fprintln(os.Stderr, "a machine hangs")
		panic("a machine hangs: the stacks follow")
	}
}
