package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// The rules of this file lower Gorgonia's products and sums to Stheno's kernels.

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
func multiply(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	name, transA, transB, ok := internal.Product(n.Op())
	if !ok || len(def.In) != 2 || !numbers(def, t) || !t.Dtype.IsFloat() || def.In[1].Dtype != t.Dtype {
		return nil
	}
	p, ok := newProduct(name, def.In[0].Shape, def.In[1].Shape, transA, transB)
	if p.dtype = t.Dtype; !ok || p.batch*p.m*p.n != t.Elements() {
		return nil
	}
	def.Op = program.Kernel{Planner: p}
	return l.graph.Program.NewValue(def, n.Name(), t)
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

// sum is a sum over axes as a planner.
type sum struct {
	dtype       kernels.Dtype
	shape, axes []int
}

// String names the sum with its axes.
func (s sum) String() string { return fmt.Sprintf("sum%v", s.axes) }

// Plan implements kernels.Planner.
func (s sum) Plan(dev kernels.Device) (*kernels.Plan, error) {
	return kernels.Sum(dev, s.dtype, s.shape, s.axes, false), nil
}

// reduce lowers Gorgonia's Sum. The sum is made in double precision, whatever the
// type.
func reduce(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	name, along, ok := internal.Reduction(n.Op())
	if !ok || name != "sum" || !numbers(def, t) || !t.Dtype.IsFloat() {
		return nil
	}
	shape := def.In[0].Shape
	axes := slices.Compact(slices.Sorted(slices.Values(along)))
	if len(axes) == 0 {
		for a := range shape {
			axes = append(axes, a)
		}
	}
	kept := int64(1)
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			kept *= int64(d)
		}
	}
	if len(shape) == 0 || axes[0] < 0 || axes[len(axes)-1] >= len(shape) || kept != t.Elements() {
		return nil
	}
	def.Op = program.Kernel{Planner: sum{t.Dtype, shape, axes}}
	return l.graph.Program.NewValue(def, n.Name(), t)
}
