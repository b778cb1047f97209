package passes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestRecompute: between two convolutions, of rows that are split and of whole ones, the gradient through BatchNorm and ReLU is stored once, as that w.r.t. BatchNorm's argument. The program computes the same bits.
func TestRecompute(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	node := testutil.Get[*G.Node](t)
	for _, c := range []struct {
		target       Target
		precision    kernels.Precision
		images, side int
	}{
		{Target{Device: kernels.Device{Name: "A100", Major: 8, SMs: 108}}, kernels.FullPrecision, 2, 190 + r.IntN(9)},
		{Target{Device: H200}, kernels.FullPrecision, 4 + r.IntN(3), 20 + r.IntN(9)}, // whole rows
		{Target{Device: H200, Mixed: kernels.BF16}, kernels.BF16, 4 + r.IntN(3), 20 + r.IntN(9)},
	} {
		g := G.NewGraph()
		input := func(name string, shape ...int) *G.Node {
			return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithInit(G.Gaussian(0, 1)))
		}
		x, w := input("x", c.images, 8, c.side, c.side), []*G.Node{input("w0", 8, 8, 1, 1), input("w1", 8, 8, 3, 1)}
		vector := node(G.Slice(input("parameters", 8+c.images*8*c.side*c.side), G.S(0, 8))) // of a base with more elements than x
		normed, _, _, err := ops.BatchNorm(node(ops.Conv2d(x, w[0], nil)), vector, vector, vector, vector, 0.1, 1e-3)
		testutil.Do(t, err)
		y := node(ops.Conv2d(node(G.Rectify(normed)), w[1], nil, ops.Padding(1, 1, 0, 0)))
		testutil.Get[G.Nodes](t)(G.Grad(node(ops.Mean(node(ops.Map("a * tanh(a)", y)))), w...))
		l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: c.precision}))
		var want []G.Value
		for _, pass := range All[:1+slices.IndexFunc(All, func(p Pass) bool { return p.Name == "fuse" })] {
			testutil.Do(t, pass.Run(l.Program, c.target))
			testutil.Do(t, program.Verify(l.Program))
			got := testutil.Get[[]G.Value](t)(l.Program.Eval(inputsOf(l)))
			if want == nil {
				want = got
			}
			if !equal(t, got, want) {
				t.Fatalf("after %s the program computes something else:\n%v", pass.Name, l.Program)
			}
		}
		stored, loaded := 0, 0 // loaded: the tensors with such elements that the last of these Maps reads
		// stored: results of Maps with an element for each of BatchNorm's, after the gradient w.r.t. the second convolution's images
		for _, in := range l.Program.Instrs {
			if v, ok := program.ConvOf(in.Op); ok && v.Result == gemm.ConvImages {
				stored = 0
			}
			for _, v := range elementwise(in) {
				if v.Elements() == int64(c.images*8*c.side*c.side) {
					stored++
					loaded = len(slices.DeleteFunc(slices.Clone(in.In), func(v *program.Value) bool { return v.Reach() < v.Elements() }))
				}
			}
		}
		if stored != 1 || loaded != 2 {
			t.Errorf("%s: got %d stored gradients through BatchNorm and ReLU, of %d tensors, want 1 of 2:\n%v", c.target.Device.Name, stored, loaded, l.Program)
		}
	}
}
