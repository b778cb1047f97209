package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
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
func unary(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	name, ok := internal.Unary(n.Op())
	op, known := unaries[name]
	if !ok || !known {
		return nil
	}
	return l.mapped(def, n, t, func(b *expr.Builder) expr.Value { return b.Apply(op, b.Operand(0)) })
}

// binary lowers an element-wise op of two operands, of one shape or one of them a
// scalar. A comparison that gives bool stays on the host.
func binary(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	name, same, ok := internal.Binary(n.Op())
	op, known := binaries[name]
	if !ok || !known {
		return nil
	}
	return l.mapped(def, n, t, func(b *expr.Builder) expr.Value {
		v := b.Apply(op, b.Operand(0), b.Operand(1))
		if same {
			v = b.Convert(v, t.Dtype) // 1 and 0 of the operands' type
		}
		return v
	})
}

// between lowers MinBetween and MaxBetween.
func between(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	name, ok := internal.Between(n.Op())
	if !ok || len(def.In) != 2 {
		return nil
	}
	op := map[string]expr.Op{"min": expr.Min, "max": expr.Max}[name]
	return l.mapped(def, n, t, func(b *expr.Builder) expr.Value { return b.Apply(op, b.Operand(0), b.Operand(1)) })
}

// mapped makes the value of n a map of its inputs, of which scalars are repeated to
// the output's shape. It returns nil if an input is of another type or shape, or not
// of floating-point numbers.
func (l *lowerer) mapped(def *program.Instr, n *gorgonia.Node, t program.Type, f func(*expr.Builder) expr.Value) *program.Value {
	types := make([]kernels.Dtype, len(def.In))
	for i, v := range def.In {
		if !t.Numeric || !t.Dtype.IsFloat() || !v.Numeric || v.Dtype != t.Dtype || len(v.Shape) > 0 && !slices.Equal(v.Shape, t.Shape) {
			return nil
		}
		types[i] = v.Dtype
	}
	b := expr.NewBuilder(types...)
	fn, err := b.Func(f(b))
	if err != nil {
		return nil
	}
	for i, v := range def.In {
		def.In[i] = l.repeated(v, t)
	}
	def.Op = program.Map{Func: fn}
	return l.graph.Program.NewValue(def, n.Name(), t)
}

// repeated returns a scalar as a view of the shape of t, and any other value as it
// is.
func (l *lowerer) repeated(v *program.Value, t program.Type) *program.Value {
	if len(v.Shape) == len(t.Shape) {
		return v
	}
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
	l.graph.Program.Instrs = append(l.graph.Program.Instrs, def)
	view := program.View{Offset: v.View.Offset, Strides: make([]int64, len(t.Shape))}
	return l.graph.Program.NewAlias(def, v.Name, t, v, view)
}
