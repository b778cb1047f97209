//go:build cuda

package tape_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/tape"
	distance "github.com/stheno-ml/stheno/internal/test/compare"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/suite"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

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
	suite.GPU(t)
	if err := tape.Available(); err != nil {
		t.Fatal(err)
	}
	for _, s := range opspec.All() {
		if !want(s) {
			continue
		}
		for _, dt := range s.Types {
			t.Run(fmt.Sprintf("%s/%v", s.Name, dt), func(t *testing.T) {
				r := suite.Random(t)
				b := batch{spec: s, dt: dt}
				for _, c := range suite.Cases(t, s) {
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

// floatOp leaves out ops that return integers: a LispMachine makes a derivative for
// each value, and has none for integers.
func floatOp(s opspec.Spec) bool { return !s.Exact }

// tolerance is how far an element may be off, in units of the type's epsilon of the
// sum of the absolute values of its terms.
func (b batch) tolerance() float64 {
	if b.dt == kernels.Float64 && b.spec.Tolerance > 0 {
		return b.spec.Tolerance + 3 // as in checkCase: every addition rounds
	}
	return b.spec.Tolerance
}

// bundle is a batch with its graph.
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

// gradients runs a machine once and returns the gradients of the inputs, by case.
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
			x, err := suite.Numbers(v)
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

// onHost returns the gradients by Grad on Stheno's host backend.
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

// checkGradients compares the gradients of runs with the gradients on the host, which TestGradients checks by finite differences.
func (b batch) checkGradients(t *testing.T, runs ...[][][]float64) {
	want, err := b.onHost()
	if err != nil {
		t.Fatal(err)
	}
	// Both sides are off, by the tolerance of each op that rounds: at most three
	// make a gradient, two chains and their product in Iterate. Those of an op that
	// only copies are sums, within 1.
	epsilon := distance.Epsilon[float64]()
	if b.dt == kernels.Float32 {
		epsilon = distance.Epsilon[float32]()
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
					if err := distance.Close(got[i][k], want[i][k], nil, 0, tolerance*largest); err != nil {
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
				t.Errorf("the second run gave other bits: %v", suite.Identical(result, runs[1][i], runs[0][i]))
			}
			ref, magnitude := c.Reference(b.in[i]...)
			for run := range runs {
				if err := opspec.CloseTo(result, suite.Aligned(runs[run][i]), ref, magnitude, b.tolerance()); err != nil {
					t.Errorf("run %d: %v", run+1, err)
				}
			}
		})
	}
}
