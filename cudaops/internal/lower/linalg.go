package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// The rules of this file lower Gorgonia's matmuls to Stheno's kernels.

// contraction is a product of two tensors, summed along some axes of both. The first axes of both may be batch axes.
type contraction struct {
	batch       int   // axes of the batch
	freeA, sumA []int // axes of the first operand
	freeB, sumB []int // axes of the second operand; sumB is in the order of sumA
}

// multiply lowers Gorgonia's products: of matrices, of matrix and vector, of vectors,
// inner and outer, and of batches of matrices.
func multiply(c *call) *program.Value {
	name, transA, transB, ok := internal.Product(c.node.Op())
	if !ok || !c.floats(2) {
		return nil
	}
	if d := outerProdDiff(c); d != nil {
		return d
	}
	a, b := c.in[0].Shape, c.in[1].Shape
	allA, allB := upTo(len(a)), upTo(len(b))
	p := contraction{}
	switch {
	case name == "outer":
		p.freeA, p.freeB = allA, allB
	case name == "dot":
		p.sumA, p.sumB = allA, allB
	case name == "matvec" && len(a) == 2:
		p.freeA, p.sumA, p.sumB = allA[:1], allA[1:], allB
	case len(a) == len(b) && (len(a) == 2 || name == "batchedmatmul" && len(a) > 2):
		p.batch = len(a) - 2
		p.freeA, p.sumA = allA[p.batch:p.batch+1], allA[p.batch+1:]
		p.sumB, p.freeB = allB[p.batch:p.batch+1], allB[p.batch+1:]
	default:
		return nil
	}
	if transA {
		p.freeA, p.sumA = p.sumA, p.freeA
	}
	if transB {
		p.freeB, p.sumB = p.sumB, p.freeB
	}
	return c.contract(p)
}

// tensorDot lowers Tensordot.
func tensorDot(c *call) *program.Value {
	sumA, sumB, ok := internal.Tensordot(c.node.Op())
	if !ok || !c.floats(2) || len(sumA) != len(sumB) {
		return nil
	}
	allA, allB := upTo(len(c.in[0].Shape)), upTo(len(c.in[1].Shape))
	p := contraction{freeA: program.Without(allA, sumA), freeB: program.Without(allB, sumB)}
	for _, axis := range allA { // in the axis order of the first operand
		if i := slices.Index(sumA, axis); i >= 0 {
			p.sumA, p.sumB = append(p.sumA, axis), append(p.sumB, sumB[i])
		}
	}
	if len(p.sumA) != len(sumA) || len(p.freeB)+len(p.sumB) != len(allB) {
		return nil // repeated axes, or axes beyond the rank
	}
	return c.contract(p)
}

// upTo returns 0, 1, ..., n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// contract emits a matmul of the inputs. It returns nil if their shapes do not fit, an error that the op's Do reports.
func (c *call) contract(p contraction) *program.Value {
	a, b := c.in[0], c.in[1]
	batch := upTo(p.batch)
	extents := func(v *program.Value, axes []int) []int {
		return program.Collect(axes, func(axis int) int { return v.Shape[axis] })
	}
	m, n := extents(a, p.freeA), extents(b, p.freeB)
	shape := slices.Concat(extents(a, batch), m, n)
	k := kernels.Count(extents(a, p.sumA))
	if k != kernels.Count(extents(b, p.sumB)) || !slices.Equal(extents(a, batch), extents(b, batch)) ||
		!slices.Equal(program.Squeezed(shape), program.Squeezed(c.Shape)) {
		return nil
	}
	planner := gemm.Product{Dtype: c.Dtype, Batch: kernels.Count(extents(a, batch)), M: kernels.Count(m), N: kernels.Count(n), K: k}
	a, planner.A.Trans = c.matrices(a, batch, p.freeA, p.sumA)
	b, planner.B.Trans = c.matrices(b, batch, p.sumB, p.freeB)
	return c.emit(program.Kernel{Planner: planner}, c.Type, a, b)
}

// matrices returns a value as a batch of row-major matrices whose rows and columns are some of its axes. It is a view,
// possibly transposed, if the strides allow it, otherwise a copy.
func (c *call) matrices(v *program.Value, batch, rows, columns []int) (m *program.Value, transposed bool) {
	for _, order := range [][]int{slices.Concat(batch, rows, columns), slices.Concat(batch, columns, rows)} {
		if t, view := permuted(v, order); (&program.Value{Type: t, View: view}).IsContiguous() {
			if v.IsContiguous() {
				return v, transposed
			}
			return c.alias(v, t, view), transposed
		}
		transposed = true
	}
	t, view := permuted(v, slices.Concat(batch, rows, columns))
	return c.dense(c.alias(v, t, view)), false
}

// permuted returns the type and the view of a value with permuted axes.
func permuted(v *program.Value, order []int) (program.Type, program.View) {
	t, view := v.Type, program.View{Offset: v.View.Offset, Strides: make([]int64, len(order))}
	t.Shape = make([]int, len(order))
	for i, axis := range order {
		t.Shape[i], view.Strides[i] = v.Shape[axis], v.View.Strides[axis]
	}
	return t, view
}
