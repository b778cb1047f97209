package passes

import (
	"maps"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Of the eight matmuls of a perceptron of three layers on an H200 the five large ones have rounded operands, each rounded once. In
// TF32 only operands that are not contiguous along K are rounded. In BF16 large matmuls of ten columns are rounded too.
func TestRoundedOnce(t *testing.T) {
	small, large := graphspec.MLP(4096, 784, 512, 512, 10), graphspec.MLP(4096, 784, 4096, 4096, 10)
	for _, c := range []struct {
		graphspec.Case
		by       kernels.Precision
		rounded  map[string]int
		products int
	}{
		{small, kernels.FullPrecision, map[string]int{}, 0},
		{small, kernels.BF16, map[string]int{"x": 1, "w0": 1, "w1": 1, "": 1}, 5}, // and the derivative that reaches the second layer; two products round their results themselves
		{small, kernels.TF32, map[string]int{"x": 1, "w0": 1, "w1": 1, "": 3}, 5}, // and the first layer's result, and the derivatives that reach both
		{large, kernels.BF16, map[string]int{"x": 1, "w0": 1, "w1": 1, "w2": 1, "": 2}, 7},
	} {
		by := c.by
		g, _ := c.Graph(c.Values([]float32{1}))
		l, err := lower.New(g, &lower.Wanted{Precision: by})
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(l.Program, Target{Device: H200}, nil); err != nil {
			t.Fatal(err)
		}
		got, products := map[string]int{}, 0
		for _, in := range l.Program.Instrs {
			k, _ := in.Op.(program.Kernel)
			switch of := k.Planner.(type) {
			case gemm.Prepare:
				name := in.Nodes[0].Name()
				if in.Nodes[0].Op() != nil {
					name = ""
				}
				if of.Form == gemm.Form(by) {
					got[name]++
				}
			case gemm.Product:
				if of.A.Form != gemm.Plain && of.A.Form == gemm.Form(by) {
					products++
				}
			}
		}
		if !maps.Equal(got, c.rounded) || products != c.products {
			t.Errorf("%s in %v: rounded %v for %d products, want %v for %d:\n%v", c.Name, by, got, products, c.rounded, c.products, l.Program)
		}
	}
}

// Products with a constant or a value of the host, of batches, of slices, of transposes, of parts of one value and of one value in two shapes compute the same
// after each pass.
func TestRoundedViews(t *testing.T) {
	for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16} {
		g := G.NewGraph()
		random := G.WithInit(G.Uniform(-2, 2))
		x := G.NewTensor(g, tensor.Float32, 3, G.WithName("x"), G.WithShape(4, 6, 10), random)
		w := G.NewTensor(g, tensor.Float32, 3, G.WithName("w"), G.WithShape(4, 10, 7), random)
		batch := G.Must(G.BatchedMatMul(x, w))
		first, last := G.Must(G.Slice(x, G.S(0))), G.Must(G.Slice(x, G.S(3)))
		whole := G.Must(G.Reshape(x, tensor.Shape{24, 10}))
		square := G.Must(G.Mul(G.Must(G.Transpose(whole, 1, 0)), whole))
		parts := G.Must(G.Mul(first, G.Must(G.Transpose(last, 1, 0))))
		ones := G.NewConstant(tensor.New(tensor.WithShape(10, 3), tensor.WithBacking(slices.Repeat([]float32{1.01}, 30))))
		scaled := G.Must(G.Mul(whole, ones))
		eights := func(rows, cols int) *G.Node {
			return G.NewConstant(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(slices.Repeat([]float32{0.99}, rows*cols))))
		}
		wide := G.Must(G.Mul(first, eights(10, 16)))
		shapes := G.Nodes{G.Must(G.Mul(wide, eights(16, 3))), G.Must(G.Mul(G.Must(G.Reshape(wide, tensor.Shape{12, 8})), eights(8, 3)))}
		keepsResults(t, g, &lower.Wanted{Keep: append(shapes, batch, square, parts, scaled), Precision: by})
	}
}
