package lower

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
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

// integral are the binary operations that integers have.
var integral = map[expr.Op]bool{expr.Add: true, expr.Sub: true, expr.Mul: true, expr.Lt: true, expr.Gt: true, expr.Le: true, expr.Ge: true, expr.Eq: true, expr.Ne: true}

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
// scalar. Comparisons return 1 and 0 of the operands' type, or bool.
func binary(c *call) *program.Value {
	name, same, ok := internal.Binary(c.node.Op())
	op, known := binaries[name]
	if !ok || !known || len(c.in) != 2 || !c.Numeric || !c.oneShape() {
		return nil
	}
	if v := c.masked(op); v != nil {
		return v
	}
	if v := c.maxDiff(op); v != nil {
		return v
	}
	if v := c.product(op); v != nil {
		return v
	}
	equality := op == expr.Eq || op == expr.Ne
	dtype := c.in[0].Dtype
	for _, v := range c.in {
		if !v.Numeric || v.Dtype != dtype || !dtype.IsFloat() && !(dtype == kernels.Bool && equality) && !(dtype.IsInteger() && integral[op]) {
			return nil
		}
	}
	return c.pointwise(func(b *expr.Builder) expr.Value {
		x, y := b.Operand(0), b.Operand(1)
		if dtype == kernels.Bool {
			x, y = b.Convert(x, kernels.Float32), b.Convert(y, kernels.Float32)
		}
		v := b.Apply(op, x, y)
		if same && dtype != kernels.Bool {
			v = b.Convert(v, dtype)
		}
		return v
	})
}

// oneShape reports whether the operands of an element-wise op of Gorgonia have equal shapes or one is a scalar. Otherwise it
// sets the node's error. The operands of a derivative may differ in axes of one element: gorgonia.Grad drops such an axis in
// the gradient of a repeat, and adds that to gradients with the axis.
func (c *call) oneShape() bool {
	a, b := c.in[0].Shape, c.in[1].Shape
	if len(a) == 0 || len(b) == 0 || slices.Equal(a, b) || internal.IsDerivative(c.node) && slices.Equal(program.Squeezed(a), program.Squeezed(b)) {
		return true
	}
	c.err = fmt.Errorf("got operands of shapes %v and %v, want equal shapes or a scalar", a, b)
	return false
}

// product lowers a product with 1, as in the gradient of a sum, to a view. It returns nil for other ops.
func (c *call) product(op expr.Op) *program.Value {
	for i, v := range c.in {
		one, constant := v.Base.Def.Op.(program.Constant)
		if op != expr.Mul || !constant || v.Base.Elements() != 1 || v.IsBounded() || !c.floats(2) {
			continue
		}
		if x, ok := values.Float(one.Value); !ok || x != 1 {
			continue
		}
		if view, ok := fitting(c.in[1-i], c.Shape); ok {
			return c.alias(c.in[1-i], c.Type, view)
		}
	}
	return nil
}

// convert lowers ConvType to float32 or float64, and from these to int and int64, where NaN becomes the least, as by Go on most processors.
func convert(c *call) *program.Value {
	if !internal.IsConversion(c.node.Op()) || !c.Numeric || len(c.in) != 1 || !c.in[0].Numeric {
		return nil
	}
	if !c.Dtype.IsFloat() && !(c.in[0].Dtype.IsFloat() && (c.Dtype == kernels.Int || c.Dtype == kernels.Int64)) {
		return nil
	}
	return c.pointwise(func(b *expr.Builder) expr.Value {
		x := b.Operand(0)
		v := b.Convert(x, c.Dtype)
		if c.Dtype.IsFloat() {
			return v
		}
		return b.Apply(expr.Select, b.Apply(expr.Eq, x, x), v, b.Integer(c.Dtype, math.MinInt64))
	})
}

// between lowers MinBetween and MaxBetween.
func between(c *call) *program.Value {
	name, ok := internal.Between(c.node.Op())
	if !ok || !c.oneShape() || !c.floats(2) {
		return nil
	}
	op := map[string]expr.Op{"min": expr.Min, "max": expr.Max}[name]
	return c.pointwise(func(b *expr.Builder) expr.Value { return b.Apply(op, b.Operand(0), b.Operand(1)) })
}

// function lowers an element-wise op of another module.
func function(c *call) *program.Value {
	op, ok := c.node.Op().(interface{ Pointwise() (expr.Func, bool) })
	if !ok || !c.Numeric {
		return nil
	}
	var f expr.Func
	if c.guarded("its Pointwise", func() { f, ok = op.Pointwise() }); c.err != nil {
		return nil
	}
	if !ok || len(f.Operands()) != len(c.in) || len(f.Outputs()) != 1 || f.Outputs()[0] != c.Dtype {
		return nil
	}
	return c.pointwise(func(b *expr.Builder) expr.Value { return b.Inline(f, b.Inputs()...)[0] })
}

// pointwise lowers the node to a Map of its inputs, broadcast to the shape of its value. It returns nil if an input does not
// fit or the function's element type is not the value's.
func (c *call) pointwise(f func(*expr.Builder) expr.Value) *program.Value {
	fn, err := written(f, c.in...)
	if err != nil || fn.Outputs()[0] != c.Dtype {
		return nil
	}
	in := c.broadcast(c.Shape, func(v *program.Value, shape tensor.Shape) (program.View, bool) {
		if view, ok := fitting(v, shape); ok {
			return view, true
		}
		return broadcastTo(v, shape)
	})
	if in == nil && len(c.in) > 0 {
		return nil
	}
	if k, is := fn.IsOperand(); is && !in[k].IsBounded() && !in[k].IsRandom() { // such as a gradient of a sum
		return c.alias(in[k], c.Type, in[k].View)
	}
	return c.emit(program.Map{Func: fn, Shape: c.Shape}, c.Type, in...)
}
