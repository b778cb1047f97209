package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// rectified lowers the product that Rectify makes of x and 0 <= x, as a map of x alone, and returns
// nil for any other node. For x below zero the result is -0, and for x = -0 it is +0: so the result
// alone shows where x is below zero, and x need not be kept for that (see the pass epilogue).
func (c *call) rectified(op expr.Op) *program.Value {
	if op != expr.Mul || !c.floats(2) {
		return nil
	}
	step := func(b *expr.Builder, x, zero expr.Value) expr.Value {
		return b.Convert(b.Apply(expr.Ge, x, zero), c.Dtype)
	}
	for i, x := range c.in {
		factor := c.in[1-i].Def
		m, mapped := factor.Op.(program.Map)
		if !mapped || len(factor.In) != 2 || factor.In[0] != x || !isZero(factor.In[1]) || !slices.Equal(x.Shape, c.Shape) {
			continue
		}
		f, err := written(func(b *expr.Builder) expr.Value { return step(b, b.Operand(0), b.Operand(1)) }, factor.In...)
		if err != nil || f != m.Func {
			continue
		}
		v := c.mapped(c.Type, func(b *expr.Builder) expr.Value {
			x, zero := b.Operand(0), b.Constant(c.Dtype, 0)
			return b.Apply(expr.Mul, b.Apply(expr.Add, x, zero), step(b, x, zero))
		}, x)
		v.Def.Nodes = append(v.Def.Nodes, factor.Nodes...)
		return v
	}
	return nil
}

// isZero reports whether a value is the constant 0.
func isZero(v *program.Value) bool {
	op, constant := v.Base.Def.Op.(program.Constant)
	if !constant || v.IsBounded() || v.Base.Elements() != 1 {
		return false
	}
	n, number := values.Float(op.Value)
	return number && n == 0
}
