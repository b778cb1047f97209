package passes

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// convolved is a graph of convolutions with BatchNorm, ReLU and a sum between them, and the gradients w.r.t. all filters, of drawn sizes.
func convolved(t testing.TB, r *rand.Rand) *G.ExprGraph {
	g, node := G.NewGraph(), testutil.Get[*G.Node](t)
	input := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithInit(G.Gaussian(0, 1)))
	}
	channels, filters := 8*(1+r.IntN(2)), 8*(1+r.IntN(2))
	x := input("x", 2+r.IntN(3), 1+r.IntN(4), 4+r.IntN(6), 4+r.IntN(6))
	w := []*G.Node{input("w0", channels, x.Shape()[1], 3, 3), input("w1", filters, channels, 3, 3), input("w2", filters, filters, 3, 1), input("w3", filters, channels, 1, 1)}
	s := ops.Stride(1 + r.IntN(2))
	y := node(G.Rectify(normedOf(t, node(ops.Conv2d(x, w[0], nil, ops.Padding(1))))))
	z := node(G.Rectify(normedOf(t, node(ops.Conv2d(y, w[1], nil, ops.Padding(1), s)))))
	z = node(ops.Add(node(ops.Conv2d(z, w[2], nil, ops.Padding(1, 1, 0, 0))), node(ops.Conv2d(y, w[3], nil, s))))
	loss := node(ops.Mean(node(ops.Map("a * tanh(a)", z))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, w...))
	return g
}

// pooled is a graph of convolutions, some with biases, each with ReLU and max-pooling, and the gradients w.r.t. all filters, of drawn sizes. The channels of the second pooling leave the
// chain in the graph's order.
func pooled(t testing.TB, r *rand.Rand) *G.ExprGraph {
	g, node := G.NewGraph(), testutil.Get[*G.Node](t)
	input := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithInit(G.Gaussian(0, 1)))
	}
	channels, filters := 8*(1+r.IntN(2)), 8*(1+r.IntN(2))
	x := input("x", 2+r.IntN(3), 1+r.IntN(4), 6+r.IntN(6), 6+r.IntN(6))
	w := []*G.Node{input("w0", channels, x.Shape()[1], 3, 3), input("w1", filters, channels, 3, 3)}
	biased := r.IntN(2) == 0
	for i := range 2 {
		x = node(ops.Conv2d(x, w[i], nil, ops.Padding(1)))
		if biased {
			w = append(w, input("b", 1, x.Shape()[1], 1, 1))
			x = node(ops.Add(x, w[len(w)-1]))
		}
		x = node(G.MaxPool2D(node(G.Rectify(x)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	}
	flat := x.Shape()[1] * x.Shape()[2] * x.Shape()[3]
	w = append(w, input("v", flat, 8))
	x = node(G.Mul(node(G.Reshape(x, tensor.Shape{x.Shape()[0], flat})), w[len(w)-1]))
	testutil.Get[G.Nodes](t)(G.Grad(node(ops.Mean(node(ops.Map("a * tanh(a)", x)))), w...))
	return g
}

// TestPools: a ReLU that only a max-pooling and its gradient read has no launch, nor has its derivative, and each pass keeps the bits.
func TestPools(t *testing.T) {
	for range 10 {
		r := rand.New(rand.NewPCG(rand.Uint64(), 0))
		graph := pooled(t, r)
		keepsResults(t, graph, nil)
		g := testutil.Get[*lower.Graph](t)(lower.New(graph, nil))
		testutil.Do(t, Run(g.Program, Target{Device: H200}, nil))
		pools := 0
		for _, in := range g.Program.Instrs {
			if p, ok := program.MaxPoolingOf(in.Op); ok && p.ReLU {
				pools++
			}
			if op := in.Op.String(); strings.Contains(op, "select(") || strings.Contains(op, "<=") {
				t.Errorf("got %s, want neither ReLUs nor derivatives", op)
			}
		}
		if pools != 4 {
			t.Errorf("got %d max-poolings of ReLUs and gradients of them, want 4:\n%v", pools, g.Program)
		}
	}
}

// TestPoolsKeep: a ReLU that anything else reads is stored, and one of windows that have no kernel for it.
func TestPoolsKeep(t *testing.T) {
	for _, kind := range []string{"read by a sum", "kept", "of other windows"} {
		g, node := G.NewGraph(), testutil.Get[*G.Node](t)
		x := G.NewTensor(g, tensor.Float32, 4, G.WithName("x"), G.WithShape(2, 3, 6, 6), G.WithInit(G.Gaussian(0, 1)))
		size := tensor.Shape{2, 2}
		if kind == "of other windows" {
			size = tensor.Shape{3, 3}
		}
		relu := node(G.Rectify(x))
		loss := node(ops.Sum(node(G.MaxPool2D(relu, size, []int{0, 0}, []int{2, 2}))))
		if kind == "read by a sum" {
			loss = node(G.Add(loss, node(ops.Sum(node(G.Tanh(relu))))))
		}
		testutil.Get[G.Nodes](t)(G.Grad(loss, x))
		w := &lower.Wanted{}
		if kind == "kept" {
			w.Keep = G.Nodes{relu}
		}
		keepsResults(t, g, w)
		l := testutil.Get[*lower.Graph](t)(lower.New(g, w))
		testutil.Do(t, Run(l.Program, Target{Device: H200}, nil))
		for _, in := range l.Program.Instrs {
			if p, ok := program.MaxPoolingOf(in.Op); ok && p.ReLU {
				t.Errorf("%s: got %v, want one of the stored ReLU", kind, p)
			}
		}
	}
}

// normedOf normalizes the channels of x.
func normedOf(t testing.TB, x *G.Node) *G.Node {
	c := G.NewVector(x.Graph(), tensor.Float32, G.WithShape(x.Shape()[1]), G.WithInit(G.Uniform(0.5, 2)), G.WithName("c "+x.Name()))
	y, _, _, err := ops.BatchNorm(x, c, c, c, c, 0.1, 1e-3)
	testutil.Do(t, err)
	return y
}

// TestReLUFromResult: of a ReLU between convolutions no derivative is stored: the gradient computes it of the ReLU's result, with the same bits.
func TestReLUFromResult(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	g := testutil.Get[*lower.Graph](t)(lower.New(convolved(t, r), nil))
	var want []G.Value
	relus := 0
	for _, pass := range All[:1+slices.IndexFunc(All, func(p Pass) bool { return p.Name == "fuse" })] {
		testutil.Do(t, pass.Run(g.Program, Target{Device: H200}))
		testutil.Do(t, program.Verify(g.Program))
		got := testutil.Get[[]G.Value](t)(g.Program.Eval(inputsOf(g)))
		if want == nil {
			want = got
		}
		if !equal(t, got, want) {
			t.Fatalf("after %s the program computes something else:\n%v", pass.Name, g.Program)
		}
	}
	for _, in := range g.Program.Instrs {
		if strings.Contains(in.Op.String(), "select(") {
			if relus++; len(elementwise(in)) != 1 {
				t.Errorf("%v has %d results of elements, want the ReLU alone", in.Op, len(elementwise(in)))
			}
		}
	}
	if relus != 2 {
		t.Errorf("got %d ReLUs, want 2:\n%v", relus, g.Program)
	}
}
