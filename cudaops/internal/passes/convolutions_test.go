package passes

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
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
		testutil.Do(t, g.Program.Verify())
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
