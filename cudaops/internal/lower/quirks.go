package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// The functions of this file lower ops that Gorgonia composes wrongly to the intended ops.

// outerProdDiff lowers a gradient of an OuterProd x yᵀ w.r.t. x or y. With G the gradient w.r.t. the product, these are G y
// and Gᵀ x; Gorgonia makes Gᵀ x and Gᵀ y. It returns nil for other products, and if x is y.
func outerProdDiff(c *call) *program.Value {
	children, err := internal.Children(c.node)
	name, transA, transB, ok := internal.Product(c.node.Op())
	if err != nil || !ok || name != "matvec" || !transA || transB || !internal.IsDerivative(c.node) {
		return nil
	}
	g, by := children[0], children[1]
	x, y := outerFactors(g)
	if x == nil || x == y || by != x && by != y {
		return nil
	}
	d := *c
	d.Shape = by.Shape()
	p := contraction{freeA: []int{0}, sumA: []int{1}, sumB: []int{0}}
	other := y
	if by == y {
		p.freeA, p.sumA = p.sumA, p.freeA
		other = x
	}
	d.in = []*program.Value{c.valueOf[g], c.valueOf[other]}
	return d.contract(p)
}

// outerFactors returns the factors of the OuterProd of vectors whose gradient a node is, or nil.
func outerFactors(g *gorgonia.Node) (x, y *gorgonia.Node) {
	for _, z := range g.DerivOf() {
		if name, _, _, ok := internal.Product(z.Op()); !ok || name != "outer" {
			continue
		}
		factors, err := internal.Children(z)
		if err == nil && len(factors) == 2 && !slices.ContainsFunc(factors, func(f *gorgonia.Node) bool { return f.Dims() != 1 }) {
			return factors[0], factors[1]
		}
	}
	return nil, nil
}

// maxDiff lowers the gradient of a Max, which Gorgonia composes as the gradient w.r.t. the maximum times (x = maximum). A NaN
// equals nothing, so for a maximum of NaN no element would get the gradient; here each element that is NaN gets NaN. maxDiff
// returns nil for other nodes. The gradient of a product w.r.t. a factor of such a comparison has the comparison first.
func (c *call) maxDiff(op expr.Op) *program.Value {
	if op != expr.Mul || !c.floats(2) || !internal.IsDerivative(c.node) {
		return nil
	}
	mask := c.in[1].Def
	m, mapped := mask.Op.(program.Map)
	if !mapped || len(mask.In) != 2 || m.Func != comparison(expr.Eq, mask.In...) {
		return nil
	}
	maximum, x := mask.In[0], mask.In[1]
	if name, _, _ := internal.Reduction(maximum.Base.Def.Nodes[0].Op()); name != "max" && maximum.Base != x.Base {
		return nil
	}
	d := *c
	d.in = []*program.Value{c.in[0], maximum, x}
	v := d.pointwise(func(b *expr.Builder) expr.Value {
		grad, most, x := b.Operand(0), b.Operand(1), b.Operand(2)
		first := b.Apply(expr.Mul, grad, b.Convert(b.Apply(expr.Eq, most, x), c.Dtype))
		return b.Apply(expr.Select, b.Apply(expr.Eq, x, x), first, x)
	})
	if v != nil {
		v.Def.Nodes = append(v.Def.Nodes, mask.Nodes...)
	}
	return v
}
