package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// masks are the products of x and a comparison of x with 0 that Rectify and LeakyRelu consist of, as functions of x. They
// have the same values, except that an infinity times 0 becomes 0 instead of NaN.
//
// Rectify returns -0 for x below zero, and +0 for x = -0. So its result shows where x is below zero, and x need not be
// stored for the gradient (see the pass epilogue).
var masks = map[expr.Op]string{
	expr.Ge: "select(x < 0, -0, x + 0)",
	expr.Lt: "select(0 < x, 0, x)",
}

// masked lowers such a product to a Map of x. It returns nil for other nodes.
func (c *call) masked(op expr.Op) *program.Value {
	if op != expr.Mul || !c.floats(2) {
		return nil
	}
	for i, x := range c.in {
		factor := c.in[1-i].Def
		m, mapped := factor.Op.(program.Map)
		if !mapped || len(factor.In) != 2 || factor.In[0] != x || !isZero(factor.In[1]) || !slices.Equal(x.Shape, c.Shape) {
			continue
		}
		for compare, text := range masks {
			if m.Func != comparison(compare, factor.In...) {
				continue
			}
			v := c.emit(program.Map{Func: c.checked(expr.Parse(text, c.Dtype, "x")), Shape: c.Shape}, c.Type, x)
			v.Def.Nodes = append(v.Def.Nodes, factor.Nodes...)
			return v
		}
	}
	return nil
}

// comparison returns the function of two values of one type that is 1 if the comparison holds and 0 otherwise, in that type.
func comparison(op expr.Op, in ...*program.Value) expr.Func {
	f, err := written(func(b *expr.Builder) expr.Value {
		return b.Convert(b.Apply(op, b.Operand(0), b.Operand(1)), in[0].Dtype)
	}, in...)
	if err != nil {
		return expr.Func{} // operands of different types
	}
	return f
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
