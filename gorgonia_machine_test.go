//go:build cuda

package stheno_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/compare"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// This file runs every op of package opspec on Gorgonia's own machines, on a device.
// internal/tagrecord records which cases passed: results.TagTests names the
// tests that must have passed for every op.

// gorgonias: on a device the tests of this file run Gorgonia's machine. Without
// one its machines are those of a plain build, panics with Read aside.
var gorgonias = map[bool][]machine{
	false: nil,
	true: {
		{"TapeMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) }},
		{"LispMachine", lispForward},
	},
}[tape.Available() != nil]

func lispForward(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
	return tape.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
}

// locked is Gorgonia's machine as it is, used as docs/cuda-tag.md says it must
// be: the goroutine, that of the test, keeps its thread.
func locked(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
	runtime.LockOSThread()
	return gorgonia.NewTapeMachine(g), nil
}

// Gorgonia's CUDA machine starts a context for each graph, which takes some
// tenths of a second, so here all cases of an op and type are one graph.

// A batch is cases of an op with numbers of a type for their inputs.
type batch struct {
	spec  opspec.Spec
	dt    kernels.Dtype
	cases []opspec.Case
	in    [][][]float64 // by case and input
}

// eachBatch calls f on the cases of at most limit elements, the random ones
// included, of every op that is wanted, in every type.
func eachBatch(t *testing.T, limit int, want func(opspec.Spec) bool, f func(t *testing.T, b batch)) {
	gpu(t)
	if err := tape.Available(); err != nil {
		t.Fatal(err)
	}
	for _, s := range opspec.All() {
		if !want(s) {
			continue
		}
		for _, dt := range s.Types {
			t.Run(fmt.Sprintf("%s/%v", s.Name, dt), func(t *testing.T) {
				r := random(t)
				b := batch{spec: s, dt: dt}
				for _, c := range testCases(t, s) {
					if slices.Contains(c.Types, dt) && c.Elements() <= limit {
						b.cases = append(b.cases, c)
						b.in = append(b.in, opspec.Short.Draw(r, c, dt))
					}
				}
				if len(b.cases) == 0 {
					t.Fatal("no case is small enough")
				}
				f(t, b)
			})
		}
	}
}

func everyOp(opspec.Spec) bool { return true }

func withGradient(s opspec.Spec) bool { return !s.NoGradient }

// floatOp leaves out ops that give integers: a LispMachine makes a derivative for
// each value, and has none for integers.
func floatOp(s opspec.Spec) bool { return !s.Exact }

// tolerance is what an element may be off, in units of the type's epsilon of the
// sum of the absolute values of its terms.
func (b batch) tolerance() float64 {
	if b.dt == kernels.Float64 && b.spec.Tolerance > 0 {
		return b.spec.Tolerance + 3 // as in checkCase: every addition rounds
	}
	return b.spec.Tolerance
}

// A bundle is the graph of a batch.
type bundle struct {
	batch
	graph   *gorgonia.ExprGraph
	inputs  []gorgonia.Nodes // by case
	all     gorgonia.Nodes   // of inputs
	outputs gorgonia.Nodes   // by case
	weights gorgonia.Nodes   // by case, where the graph has gradients
}

func (b batch) bundle() (*bundle, error) {
	g := &bundle{batch: b, graph: gorgonia.NewGraph()}
	for i, c := range b.cases {
		var in gorgonia.Nodes
		for k, v := range c.Values(b.dt, b.in[i]) {
			in = append(in, g.node(fmt.Sprintf("in%d_%d", i, k), v))
		}
		out, err := c.Build(in...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		g.inputs, g.all, g.outputs = append(g.inputs, in), append(g.all, in...), append(g.outputs, out)
	}
	return g, nil
}

func (g *bundle) node(name string, v gorgonia.Value) *gorgonia.Node {
	return gorgonia.NewTensor(g.graph, v.Dtype(), v.Shape().Dims(), gorgonia.WithShape(v.Shape()...),
		gorgonia.WithName(name), gorgonia.WithValue(v))
}

// weigh adds the derivatives of the loss by the outputs as inputs.
func (g *bundle) weigh() {
	for i, out := range g.outputs {
		w := make([]float64, out.Shape().TotalSize())
		for k := range w {
			w[k] = float64((k+12)%17-8) / 4 // 1 for a scalar
		}
		v, mem := values.New(g.dt, out.Shape())
		copy(mem, opspec.Encode(g.dt, w))
		g.weights = append(g.weights, g.node(fmt.Sprint("weights", i), v))
	}
}

// loss is the sum of all outputs, weighted by an op of Gorgonia's.
func (g *bundle) loss() (sum *gorgonia.Node, err error) {
	g.weigh()
	for i, out := range g.outputs {
		weighted, err := gorgonia.HadamardProd(out, g.weights[i])
		if err != nil {
			return nil, err
		}
		term, err := ops.Sum(weighted)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			sum = term
		} else if sum, err = ops.Add(sum, term); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// gradients runs a machine once and gives the gradients of the inputs, by case.
func (g *bundle) gradients(vm gorgonia.VM) ([][][]float64, error) {
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	all := make([][][]float64, len(g.cases))
	for i, in := range g.inputs {
		for _, n := range in {
			v, err := n.Grad()
			if err != nil {
				return nil, err
			}
			x, err := numbers(v)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], x)
		}
	}
	return all, vm.Close()
}

// differentiated is the graph of a batch with the gradients by Grad.
func (b batch) differentiated() (*bundle, error) {
	g, err := b.bundle()
	if err != nil {
		return nil, err
	}
	loss, err := g.loss()
	if err != nil {
		return nil, err
	}
	_, err = gorgonia.Grad(loss, g.all...)
	return g, err
}

// onHost gives the gradients by Grad on Stheno's host backend.
func (b batch) onHost() ([][][]float64, error) {
	g, err := b.differentiated()
	if err != nil {
		return nil, err
	}
	vm, err := cudaops.NewVM(g.graph, cudaops.OnHost())
	if err != nil {
		return nil, err
	}
	return g.gradients(vm)
}

// checkGradients holds gradients, of one run or several, against those on the
// host, which TestGradients holds against differences.
func (b batch) checkGradients(t *testing.T, runs ...[][][]float64) {
	want, err := b.onHost()
	if err != nil {
		t.Fatal(err)
	}
	// Both sides are off, by the tolerance of each op that rounds: at most three
	// make a gradient, two chains and their product in Iterate. Those of an op that
	// only copies are sums, within 1.
	epsilon := compare.Epsilon[float64]()
	if b.dt == kernels.Float32 {
		epsilon = compare.Epsilon[float32]()
	}
	tolerance := 2 * 3 * max(b.tolerance(), 1) * epsilon
	for i, c := range b.cases {
		t.Run(c.Name, func(t *testing.T) {
			largest := 0.0 // elements that cancel have no precision of their own
			for _, x := range want[i] {
				for _, v := range x {
					largest = max(largest, math.Abs(v))
				}
			}
			for run, got := range runs {
				for k := range want[i] {
					if err := compare.Close(got[i][k], want[i][k], nil, 0, tolerance*largest); err != nil {
						t.Errorf("run %d, input %d: %v", run+1, k, err)
					}
				}
			}
		})
	}
}

// checkValues runs a batch twice: both times the values of the plain reference,
// with the same bits.
func (b batch) checkValues(t *testing.T, make func(*gorgonia.ExprGraph) (gorgonia.VM, error)) {
	g, err := b.bundle()
	if err != nil {
		t.Fatal(err)
	}
	vm, err := make(g.graph)
	if err != nil {
		t.Fatal(err)
	}
	var runs [2][][]byte
	for i := range runs {
		if i > 0 {
			vm.Reset()
		}
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		for k, n := range g.outputs {
			mem, err := values.Bytes(n.Value())
			if err != nil {
				t.Fatalf("%s: %v", b.cases[k].Name, err)
			}
			runs[i] = append(runs[i], bytes.Clone(mem))
		}
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
	for i, c := range b.cases {
		t.Run(c.Name, func(t *testing.T) {
			out := g.outputs[i]
			if _, ok := out.Op().(gorgonia.CUDADoer); !ok {
				t.Errorf("the op is a %T, no gorgonia.CUDADoer", out.Op())
			}
			result, _ := values.Dtype(out.Dtype())
			if !c.Atomic && !bytes.Equal(runs[0][i], runs[1][i]) {
				t.Errorf("the second run gave other bits: %v", identical(result, runs[1][i], runs[0][i]))
			}
			ref, magnitude := c.Reference(b.in[i]...)
			for run := range runs {
				if err := closeTo(result, aligned(runs[run][i]), ref, magnitude, b.tolerance()); err != nil {
					t.Errorf("run %d: %v", run+1, err)
				}
			}
		})
	}
}

const (
	valueElements    = 1 << 18 // of a case's inputs, for values
	gradientElements = 5000    // for gradients
)

// TestGorgoniaMachine: values on Gorgonia's tape machine, put right by package
// tape.
func TestGorgoniaMachine(t *testing.T) {
	eachBatch(t, valueElements, everyOp, func(t *testing.T, b batch) {
		b.checkValues(t, func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) })
	})
}

// TestGorgoniaMachineGradients: Grad there, in a graph with ops of Gorgonia's,
// with and without BindDualValues.
func TestGorgoniaMachineGradients(t *testing.T) {
	eachBatch(t, gradientElements, withGradient, func(t *testing.T, b batch) {
		var got [2][][][]float64
		for i := range got {
			g, err := b.differentiated()
			if err != nil {
				t.Fatal(err)
			}
			var opts []gorgonia.VMOpt
			if i == 1 {
				opts = append(opts, gorgonia.BindDualValues(g.all...))
			}
			vm, err := tape.NewMachine(g.graph, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if got[i], err = g.gradients(vm); err != nil {
				t.Fatalf("BindDualValues %v: %v", i == 1, err)
			}
		}
		b.checkGradients(t, got[0], got[1])
	})
}

// TestGorgoniaMachineLocked: values on Gorgonia's tape machine as it is.
func TestGorgoniaMachineLocked(t *testing.T) {
	eachBatch(t, valueElements, everyOp, func(t *testing.T, b batch) { b.checkValues(t, locked) })
}

// TestGorgoniaMachineLockedGradients: SymDiff there. No op of Gorgonia's is in the
// graph, since more than 20 of them in a row go wrong there, and nothing is bound
// by BindDualValues, which gives zeros there (docs/cuda-tag.md has both): the
// derivatives by the outputs are given to Backpropagate, which Grad calls with a 1
// for a loss.
func TestGorgoniaMachineLockedGradients(t *testing.T) {
	eachBatch(t, gradientElements, withGradient, func(t *testing.T, b batch) {
		g, err := b.bundle()
		if err != nil {
			t.Fatal(err)
		}
		g.weigh()
		if _, err := gorgonia.Backpropagate(g.outputs, g.weights, g.all); err != nil {
			t.Fatal(err)
		}
		vm, err := locked(g.graph)
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.gradients(vm)
		if err != nil {
			t.Fatal(err)
		}
		b.checkGradients(t, got)
	})
}

// TestGorgoniaMachineLisp: values on Gorgonia's LispMachine, on the host with the
// ops of a device's graph. gorgonia.NewLispMachine itself, on the device, has too
// small a pool, and gradients that start from undefined memory.
func TestGorgoniaMachineLisp(t *testing.T) {
	eachBatch(t, valueElements, floatOp, func(t *testing.T, b batch) { b.checkValues(t, lispForward) })
}

// TestGorgoniaMachineLispGradients: DoDiff there.
func TestGorgoniaMachineLispGradients(t *testing.T) {
	eachBatch(t, gradientElements, withGradient, func(t *testing.T, b batch) {
		g, err := b.bundle()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.loss(); err != nil {
			t.Fatal(err)
		}
		vm, err := tape.NewLispMachine(g.graph)
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.gradients(vm)
		if err != nil {
			t.Fatal(err)
		}
		b.checkGradients(t, got)
	})
}

// A preallocated op keeps what the machine gave it for its output, and what it
// gave the machine.
type preallocated struct {
	gorgonia.Op
	given, gave gorgonia.Value
}

func (p *preallocated) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	do, ok := p.Op.(gorgonia.CUDADoer)
	if !ok {
		return nil, fmt.Errorf("%v is a %T, no gorgonia.CUDADoer", p.Op, p.Op)
	}
	out, err := do.CUDADo(extern, dev, prealloc, in...)
	p.given, p.gave = prealloc, out
	return out, err
}

// TestGorgoniaMachinePreallocated: an op writes into the value that the machine
// gives it for its output, and gives that value back, no other one on its memory.
func TestGorgoniaMachinePreallocated(t *testing.T) {
	eachBatch(t, gradientElements, everyOp, func(t *testing.T, b batch) {
		seen := make([]*preallocated, len(b.cases))
		for i, c := range b.cases {
			if c.Composed {
				continue
			}
			_, out, err := c.Nodes(b.dt, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			seen[i] = &preallocated{Op: out.Op()}
			b.cases[i].Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ApplyOp(seen[i], in...) }
		}
		b.checkValues(t, func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) })
		for i, c := range b.cases {
			if p := seen[i]; p != nil && (p.given == nil || p.gave != p.given) {
				t.Errorf("%s: CUDADo gave %T %p for the preallocated %T %p", c.Name, p.gave, p.gave, p.given, p.given)
			}
		}
	})
}

// TestGorgoniaMachineLoop makes, runs and closes machines one after the other,
// within a time limit.
func TestGorgoniaMachineLoop(t *testing.T) {
	gpu(t)
	if err := tape.Available(); err != nil {
		t.Fatal(err)
	}
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
