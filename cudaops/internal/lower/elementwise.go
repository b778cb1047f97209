package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// The rules of this file lower Gorgonia's element-wise ops to maps.

// unaries are the operations of Gorgonia's ops of one operand.
var unaries = map[string]expr.Op{
	"abs": expr.Abs, "sign": expr.Sign, "ceil": expr.Ceil, "floor": expr.Floor, "sin": expr.Sin, "cos": expr.Cos, "exp": expr.Exp,
	"log": expr.Log, "log2": expr.Log2, "neg": expr.Neg, "square": expr.Square, "sqrt": expr.Sqrt, "inverse": expr.Inverse,
	"inversesqrt": expr.InverseSqrt, "cube": expr.Cube, "tanh": expr.Tanh, "sigmoid": expr.Sigmoid, "log1p": expr.Log1p,
	"expm1": expr.Expm1, "softplus": expr.Softplus,
}

// binaries are the operations of Gorgonia's ops of two operands.
var binaries = map[string]expr.Op{
	"add": expr.Add, "sub": expr.Sub, "mul": expr.Mul, "div": expr.Div, "pow": expr.Pow,
	"lt": expr.Lt, "gt": expr.Gt, "le": expr.Le, "ge": expr.Ge, "eq": expr.Eq, "ne": expr.Ne,
}

// unary lowers an element-wise op of one operand.
func unary(c *call) *program.Value {
	name, ok := internal.Unary(c.node.Op())
	op, known := unaries[name]
	if !ok || !known || !c.floats(1) {
		return nil
	}
	return c.pointwise(func(b *expr.Builder) expr.Value { return b.Apply(op, b.Operand(0)) })
}

// binary lowers an element-wise op of two operands, of one shape or one of them a
// scalar. A comparison that gives bool stays on the host.
func binary(c *call) *program.Value {
	name, same, ok := internal.Binary(c.node.Op())
	op, known := binaries[name]
	if !ok || !known || !c.floats(2) {
		return nil
	}
	return c.pointwise(func(b *expr.Builder) expr.Value {
		v := b.Apply(op, b.Operand(0), b.Operand(1))
		if same {
			v = b.Convert(v, c.Dtype) // 1 and 0 of the operands' type
		}
		return v
	})
}

// between lowers MinBetween and MaxBetween.
func between(c *call) *program.Value {
	name, ok := internal.Between(c.node.Op())
	if !ok || !c.floats(2) {
		return nil
	}
	op := map[string]expr.Op{"min": expr.Min, "max": expr.Max}[name]
	return c.pointwise(func(b *expr.Builder) expr.Value { return b.Apply(op, b.Operand(0), b.Operand(1)) })
}

// function lowers an op of another module that says which function of elements it is.
func function(c *call) *program.Value {
	op, ok := c.node.Op().(interface{ Pointwise() (expr.Func, bool) })
	if !ok || !c.Numeric {
		return nil
	}
	f, ok := op.Pointwise()
	if !ok || len(f.Operands()) != len(c.in) || len(f.Outputs()) != 1 || f.Outputs()[0] != c.Dtype {
		return nil
	}
	return c.pointwise(func(b *expr.Builder) expr.Value {
		operands := make([]expr.Value, len(c.in))
		for i := range operands {
			operands[i] = b.Operand(i)
		}
		return b.Inline(f, operands...)[0]
	})
}

// pointwise lowers the node to a map of its inputs, of which scalars are repeated to
// the shape of its value. It returns nil if an input has another shape.
func (c *call) pointwise(f func(*expr.Builder) expr.Value) *program.Value {
	for _, v := range c.in {
		if len(v.Shape) > 0 && !slices.Equal(v.Shape, c.Shape) {
			return nil
		}
	}
	in := make([]*program.Value, len(c.in))
	for i, v := range c.in {
		in[i] = c.repeated(v, c.Type)
	}
	return c.mapped(c.Type, f, in...)
}

// mapped emits a map of values that have the shape of t. It returns nil if f fails.
func (c *call) mapped(t program.Type, f func(*expr.Builder) expr.Value, in ...*program.Value) *program.Value {
	types := make([]kernels.Dtype, len(in))
	for i, v := range in {
		types[i] = v.Dtype
	}
	b := expr.NewBuilder(types...)
	fn, err := b.Func(f(b))
	if err != nil {
		return nil
	}
	return c.emit(program.Map{Func: fn}, t, in...)
}

// apply emits the map of one operation on values of one type.
func (c *call) apply(op expr.Op, in ...*program.Value) *program.Value {
	return c.mapped(in[0].Type, func(b *expr.Builder) expr.Value {
		args := make([]expr.Value, len(in))
		for i := range in {
			args[i] = b.Operand(i)
		}
		return b.Apply(op, args...)
	}, in...)
}

// repeated returns a scalar as a view of the shape of t, and any other value as it
// is.
func (c *call) repeated(v *program.Value, t program.Type) *program.Value {
	if len(v.Shape) == len(t.Shape) {
		return v
	}
	t.Dtype = v.Dtype
	return c.alias(v, t, program.View{Offset: v.View.Offset, Strides: make([]int64, len(t.Shape))})
}
