package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
)

// The rules of this file lower Gorgonia's products to Stheno's kernels.

// product is a batch of matrix products as a planner: batch times (m x k) times
// (k x n), either operand stored transposed.
type product struct {
	dtype          kernels.Dtype
	batch, m, n, k int64
	transA, transB bool
}

// String names the product with what is stored transposed.
func (p product) String() string {
	switch {
	case p.transA && p.transB:
		return "product[TransA TransB]"
	case p.transA:
		return "product[TransA]"
	case p.transB:
		return "product[TransB]"
	}
	return "product"
}

// Plan implements kernels.Planner.
func (p product) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if p.batch == 1 && p.m == 1 && p.n == 1 {
		return kernels.Dot(dev, p.dtype, 1, p.k), nil
	}
	return kernels.MatMul(dev, p.dtype, p.batch, p.m, p.n, p.k, p.transA, p.transB), nil
}

// multiply lowers Gorgonia's products: of matrices, of matrix and vector, of vectors,
// inner and outer, and of batches of matrices.
func multiply(c *call) *program.Value {
	name, transA, transB, ok := internal.Product(c.node.Op())
	if !ok || !c.floats(2) {
		return nil
	}
	p, ok := newProduct(name, c.in[0].Shape, c.in[1].Shape, transA, transB)
	if p.dtype = c.Dtype; !ok || p.batch*p.m*p.n != c.Elements() {
		return nil
	}
	return c.emit(program.Kernel{Planner: p}, c.Type, c.in...)
}

// newProduct returns the product that an op of Gorgonia's does on operands of those
// shapes; ok is false if they do not fit, which is the op's to say.
func newProduct(name string, a, b []int, transA, transB bool) (p product, ok bool) {
	p = product{batch: 1, m: 1, n: 1, k: 1, transA: transA, transB: transB}
	switch {
	case name == "outer" && len(a) == 1 && len(b) == 1:
		p.m, p.n = int64(a[0]), int64(b[0])
		return p, true
	case name == "dot" && len(a) == 1 && len(b) == 1 && a[0] == b[0]:
		p.k = int64(a[0])
		return p, true
	case name == "matvec" && len(a) == 2 && len(b) == 1:
		b = []int{b[0], 1}
	case name == "matmul" && len(a) == 2 && len(b) == 2:
	case name == "batchedmatmul" && len(a) == len(b) && len(a) > 2 && slices.Equal(a[:len(a)-2], b[:len(b)-2]):
		p.batch = kernels.Count(a[:len(a)-2])
	default:
		return p, false
	}
	rows, k := int64(a[len(a)-2]), int64(a[len(a)-1])
	if transA {
		rows, k = k, rows
	}
	kb, columns := int64(b[len(b)-2]), int64(b[len(b)-1])
	if transB {
		kb, columns = columns, kb
	}
	p.m, p.n, p.k = rows, columns, k
	return p, k == kb
}
