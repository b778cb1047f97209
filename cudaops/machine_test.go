package cudaops

import (
	"hash"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// onBackends runs a test on the host backend and on the GPU. Without a GPU that
// half is skipped, or fails if STHENO_REQUIRE_GPU=1.
func onBackends(t *testing.T, test func(t *testing.T, on Option)) {
	t.Run("host", func(t *testing.T) { test(t, OnHost()) })
	t.Run("gpu", func(t *testing.T) {
		_, err := Devices()
		testutil.SkipUnless(t, "GPU", err)
		test(t, OnDevice(0))
	})
}

func machine(t testing.TB, g *G.ExprGraph, opts ...Option) *VM {
	t.Helper()
	vm, err := NewVM(g, opts...)
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, vm.Close()) })
	return vm
}

// draw returns a tensor of normal numbers.
func draw(r *rand.Rand, dt tensor.Dtype, shape ...int) *tensor.Dense {
	d := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	switch s := d.Data().(type) {
	case []float64:
		for i := range s {
			s[i] = r.NormFloat64()
		}
	case []float32:
		for i := range s {
			s[i] = float32(r.NormFloat64())
		}
	}
	return d
}

func floats(t testing.TB, v G.Value) []float64 {
	t.Helper()
	if v == nil {
		t.Fatal("no value")
	}
	b, err := values.Bytes(v)
	testutil.Do(t, err)
	var out []float64
	switch v.Dtype() {
	case tensor.Float64:
		return append(out, kernels.Elements[float64](b)...)
	case tensor.Bool:
		for _, x := range b {
			out = append(out, float64(x))
		}
		return out
	}
	for _, x := range kernels.Elements[float32](b) {
		out = append(out, float64(x))
	}
	return out
}

func equal(t testing.TB, what string, got, want G.Value, tolerance float64) {
	t.Helper()
	a, b := floats(t, got), floats(t, want)
	if len(a) != len(b) {
		t.Fatalf("%s: got %d elements, want %d", what, len(a), len(b))
	}
	for i := range a {
		if !(math.Abs(a[i]-b[i]) <= tolerance*(1+math.Abs(b[i]))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, a[i], b[i])
		}
	}
}

func tolerance(dt tensor.Dtype) float64 {
	if dt == tensor.Float32 {
		return 1e-4
	}
	return 1e-11
}

// An mlp is a classifier of ops of Stheno and of Gorgonia, with its gradients.
type mlp struct {
	g        *G.ExprGraph
	x, y     *G.Node
	weights  G.Nodes
	hidden   *G.Node
	cost     *G.Node
	costRead G.Value
}

func newMLP(t testing.TB, dt tensor.Dtype, batch, in, hid, out int) *mlp {
	r := rand.New(rand.NewPCG(11, 12))
	node := testutil.Get[*G.Node](t)
	m := &mlp{g: G.NewGraph()}
	matrix := func(name string, rows, cols int) *G.Node {
		return G.NewMatrix(m.g, dt, G.WithName(name), G.WithShape(rows, cols), G.WithValue(draw(r, dt, rows, cols)))
	}
	m.x, m.y = matrix("x", batch, in), matrix("y", batch, out)
	w0, w1 := matrix("w0", in, hid), matrix("w1", hid, out)
	b0 := matrix("b0", batch, hid)
	m.weights = G.Nodes{w0, b0, w1}
	m.hidden = node(G.Tanh(node(ops.Add(node(G.Mul(m.x, w0)), b0))))
	p := node(G.SoftMax(node(ops.MatMul(m.hidden, w1))))
	m.cost = node(G.Neg(node(ops.Mean(node(G.HadamardProd(m.y, p))))))
	G.Read(m.cost, &m.costRead)
	testutil.Get[G.Nodes](t)(G.Grad(m.cost, m.weights...))
	return m
}

// tapeMachine is Gorgonia's machine on the CPU, to compare with.
func tapeMachine(t *testing.T, g *G.ExprGraph, opts ...G.VMOpt) G.VM {
	t.Helper()
	if G.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's tape machine is its CUDA machine: cudaops/tape tests that")
	}
	return G.NewTapeMachine(g, opts...)
}

// sum2 is the graph z = a + b of vectors.
func sum2(t testing.TB, n int) (g *G.ExprGraph, a, b, z *G.Node) {
	g = G.NewGraph()
	a = G.NewVector(g, tensor.Float64, G.WithName("a"), G.WithShape(n))
	b = G.NewVector(g, tensor.Float64, G.WithName("b"), G.WithShape(n))
	return g, a, b, testutil.Get[*G.Node](t)(ops.Add(a, b))
}

// foreign returns tanh(x) by an op that only the host has, of float64.
func foreign(x *G.Node) (*G.Node, error) {
	of, err := G.Tanh(G.NewTensor(G.NewGraph(), G.Float64, x.Dims(), G.WithName("x"), G.WithShape(x.Shape()...)))
	if err != nil {
		return nil, err
	}
	return G.ApplyOp(foreignOp{of.Op()}, x)
}

// foreignOp is an op of another module.
type foreignOp struct{ G.Op }

// WriteHash distinguishes the op from the one that it wraps.
func (f foreignOp) WriteHash(h hash.Hash) { h.Write([]byte("foreign")); f.Op.WriteHash(h) }

func vector(x ...float64) *tensor.Dense { return tensor.New(tensor.WithBacking(x)) }
