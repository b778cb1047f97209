package ops

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Map is an expression of its inputs, element by element, as one op. The inputs are
// named a, b, c, ... in order:
//
//	ops.Map("tanh(a*b) + c", a, b, c)
//	ops.Map("select(a > 0, a, 0.01*a)", x)
//	ops.Map("0.5 * a * (1 + erf(a * 0.70710678))", x)
//
// The inputs have float32 or float64, integer types or bool. They broadcast to one shape by numpy's rule: shapes are aligned at their last
// axes, and an input repeats along axes that it lacks and along its axes of one element. The expression holds numbers, + - * /,
// parentheses, comparisons, && || !, and the functions of [expr.Op], among them
//
//	abs sign ceil floor sqrt exp expm1 log log2 log1p sin cos tanh erf sigmoid
//	softplus neg square cube inverse inverseSqrt pow(x, y) min(x, y) max(x, y)
//	select(condition, x, y)
//
// Inputs of one floating-point type have outputs of this type, and comparisons of them return 1 or 0. Inputs of other types are combined
// by PyTorch's rules, which [expr.ParseTypes] documents: + - * of integers are integers that wrap, / and functions are floating-point
// numbers, and comparisons return bool.
//
// Each operation is rounded to the element type, so the result has the bits that one op per
// operation would. Package kernels/expr documents special values, such as NaN and Inf. The
// gradient is derived from the expression; sign, ceil, floor and comparisons have the derivative 0, and integers and bool none.
// On a GPU the kernel is generated from the expression when the op first runs.
//
// An expression that cannot be read, or has more than 4096 characters, is an error
// with the position of what is wrong, counted from 1.
func Map(expression string, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	return applyExpression(fmt.Sprintf("Map(%.80q)", expression), "", expression, inputs...)
}

// letters name the inputs in expressions.
const letters = "abcdefghijklmnopqrstuvwxyz"

// applyExpression applies an expression to inputs a, b, c, ... that broadcast to one shape. caller names the constructor in errors, and
// name, unless "", an op of one floating-point type.
func applyExpression(caller, name, expression string, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	if len(inputs) == 0 || len(inputs) > len(letters) {
		return nil, fmt.Errorf("ops: %s: got %d inputs, want 1 to %d", caller, len(inputs), len(letters))
	}
	m := mapping{name: name}
	types, err := anyTypesOf(inputs)
	if err == nil && name != "" {
		err = CheckFloats(types, len(types))
	}
	if err == nil {
		m.f, err = expr.ParseTypes(expression, dtypes(types), strings.Split(letters[:len(inputs)], "")...)
	}
	if err == nil {
		m.shape, err = broadcastShape(shapesOf(types)...)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %s: %w", caller, err)
	}
	return Apply(m, inputs...)
}

// mapping is a function of elements, with one output, of inputs that broadcast to a shape.
type mapping struct {
	f     expr.Func
	shape tensor.Shape
	name  string // "" for an expression of the user
}

func (m mapping) String() string {
	if m.name != "" {
		return m.name
	}
	return fmt.Sprintf("Map[%v]", m.f)
}

func (m mapping) Infer(in ...Type) (Type, error) {
	types := m.f.Operands()
	if len(in) != len(types) {
		return Type{}, fmt.Errorf("got %d inputs, want %d", len(in), len(types))
	}
	for i, t := range in {
		if t.Dtype != types[i] {
			return Type{}, fmt.Errorf("input %d: got %v, want %v", i, values.Tensor(t.Dtype), values.Tensor(types[i]))
		}
		if _, ok := broadcastView(t.Shape, m.shape); !ok {
			return Type{}, fmt.Errorf("input %d: got shape %v, want one that broadcasts to %v", i, t.Shape, m.shape)
		}
	}
	return Type{m.f.Outputs()[0], m.shape}, nil
}

func (m mapping) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	views := make([]codegen.View, len(in))
	for i, t := range in {
		views[i], _ = broadcastView(t.Shape, m.shape)
	}
	return codegen.Map(dev, m.f, m.shape, views...)
}

func (m mapping) Func(...Type) (expr.Func, error) { return m.f, nil }

func (m mapping) Adjoints(b *Backward) []Term {
	types := m.f.Operands()
	terms, operands := make([]Term, len(types)), make([]Term, len(types))
	for i := range operands {
		operands[i] = b.In(i)
	}
	for i, d := range types {
		if !d.IsFloat() || !m.f.Outputs()[0].IsFloat() {
			continue
		}
		g, err := m.f.Gradient(i)
		if err != nil {
			return []Term{b.fail("%w", err)}
		}
		terms[i] = adjoint(b, mapping{f: g, shape: m.shape}, append(operands, b.Grad()), b.In(i).Type())
	}
	return terms
}

// adjoint applies the derivative by an input to the operands that it depends on, the last of which
// is the derivative by the output. The derivative by an input that is used for several elements is
// their sum.
func adjoint(b *Backward, m mapping, operands []Term, of Type) Term {
	var kept []int
	m.f, kept = m.f.Trim()
	if len(kept) == 0 { // 0 everywhere
		kept = []int{len(operands) - 1}
		var err error
		if m.f, err = zero(operands[len(operands)-1].Type().Dtype, of.Dtype); err != nil {
			return b.fail("%w", err)
		}
	}
	used := make([]Term, len(kept))
	for i, k := range kept {
		used[i] = operands[k]
	}
	t := b.Apply(m, used...)
	if shape := t.Type().Shape; of.Shape.IsScalar() && !shape.IsScalar() {
		var axes []int
		for a := range shape {
			axes = append(axes, a)
		}
		return b.Apply(sum{axes: axes}, t)
	}
	return sumTo(b, t, of.Shape)
}

// zeros returns zeros of the type of a term.
func zeros(b *Backward, like Term) Term {
	t := like.Type()
	f, err := zero(t.Dtype, t.Dtype)
	if err != nil {
		return b.fail("%w", err)
	}
	return b.Apply(mapping{f: f, shape: t.Shape}, like)
}

// zero returns the function of one operand that is 0 everywhere.
func zero(operand, out kernels.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(operand)
	return b.Func(b.Constant(out, 0))
}

// number writes a number for an expression.
func number(v float64) string {
	if math.IsInf(v, 0) {
		return fmt.Sprintf("%d / 0", int(math.Copysign(1, v)))
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
