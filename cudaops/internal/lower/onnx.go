package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

// onnxGemm lowers the Gemm of onnx-go, alpha A B + beta C, to a matmul and a Map, which becomes the epilogue of the matmul. As in its Do, C is a
// matrix, a row or a number, and is not read where beta is 0. Its Do writes the result into a C of the same size; here C keeps its value.
func onnxGemm(c *call) *program.Value {
	g, ok := internal.ONNXGemm(c.node.Op())
	if !ok || !c.floats(3) || len(c.Shape) != 2 || len(c.in[0].Shape) != 2 || len(c.in[1].Shape) != 2 || g.Alpha == 0 {
		return nil
	}
	row := c.in[2]
	view, last := program.View{Offset: row.View.Offset, Strides: make([]int64, 2)}, len(row.Shape)-1
	switch n := c.Shape[1]; {
	case row.Elements() == 1:
	case slices.Equal(row.Shape, c.Shape):
		copy(view.Strides, row.View.Strides)
	case row.Shape[last] == n && row.Elements() == int64(n):
		view.Strides[1] = row.View.Strides[last]
	default:
		return nil // an error of Do, or a column, which Do takes for a row
	}
	p := contraction{freeA: []int{0}, sumA: []int{1}, sumB: []int{0}, freeB: []int{1}}
	if g.TransA {
		p.freeA, p.sumA = p.sumA, p.freeA
	}
	if g.TransB {
		p.freeB, p.sumB = p.sumB, p.freeB
	}
	product := c.contract(p)
	if product == nil {
		return nil
	}
	scaled := func(b *expr.Builder, factor float64, x expr.Value) expr.Value {
		if factor == 1 {
			return x
		}
		return b.Apply(expr.Mul, b.Constant(c.Dtype, factor), x)
	}
	if g.Beta == 0 {
		return c.mapped(c.Type, func(b *expr.Builder) expr.Value { return scaled(b, g.Alpha, b.Operand(0)) }, product)
	}
	t := row.Type
	t.Shape = tensor.Shape(slices.Clone(c.Shape))
	return c.mapped(c.Type, func(b *expr.Builder) expr.Value {
		return b.Apply(expr.Add, scaled(b, g.Alpha, b.Operand(0)), scaled(b, g.Beta, b.Operand(1)))
	}, product, c.alias(row, t, view))
}
