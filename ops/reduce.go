package ops

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Reduce reduces a tensor of any shape to a scalar by an expression of a, the result so far, and b,
// the next element:
//
//	ops.Reduce(x, "a + b", 0)             the sum
//	ops.Reduce(x, "a + b*b", 0)           the sum of squares
//	ops.Reduce(x, "max(a, abs(b))", 0)    the largest magnitude
//
// The expression is in the language of [Map]. Chunks are reduced in parallel and then combined, so
// it must have the form a + f(b), a * f(b), max(a, f(b)) or min(a, f(b)), where f is any expression
// of b:
//
//	out = identity op f(x[0]) op f(x[1]) op ...
//
// It is computed in double precision and rounded once, in the same order in every run. identity is
// 0 for +, 1 for *, and any number for max and min. On a GPU the kernel is generated from the
// expression when the op first runs.
//
// An expression that cannot be read or does not have that form, or has more than 4096 characters,
// is an error with the position of the mistake, counted from 1. The gradient is derived from the
// expression; if several elements are the greatest or least, each of them gets the whole
// derivative.
func Reduce(x *gorgonia.Node, expression string, identity float64) (*gorgonia.Node, error) {
	r, err := codegen.ParseReduction(expression)
	if err != nil {
		return nil, fmt.Errorf("ops: Reduce(%.80q): %w", expression, err)
	}
	neutral := r.Identity()
	if math.IsNaN(identity) || !math.IsInf(neutral, 0) && identity != neutral {
		want := "a number"
		if !math.IsInf(neutral, 0) {
			want = fmt.Sprint(neutral)
		}
		return nil, fmt.Errorf("ops: Reduce(%q): got the identity %v, want %s for %v", expression, identity, want, r.Operator())
	}
	return Apply(reduction{r, identity}, x)
}

type reduction struct {
	codegen.Reduction
	identity float64
}

func (r reduction) String() string { return fmt.Sprintf("Reduce[%v, %v]", r.Reduction, r.identity) }

func (reduction) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	return Type{in[0].Dtype, tensor.ScalarShape()}, nil
}

func (r reduction) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return reduce.Reduce(dev, in[0].Dtype, in[0].Elements(), r.Reduction, r.identity), nil
}

// Adjoints: with out = f(x[0]) op f(x[1]) op ..., the derivative by x[i] of a sum is the derivative
// by out times f'(x[i]); of max and min the same where f(x[i]) is out; of a product the same times
// the product of the other factors.
func (r reduction) Adjoints(b *Backward) []Term {
	operands := []Term{b.In(0), b.Grad()}
	if op := r.Operator(); op == expr.Max || op == expr.Min {
		operands = append(operands, b.Out())
	} else if op == expr.Mul {
		nonzero, zeros, err := r.factors()
		if err != nil {
			return []Term{b.fail("%w", err)}
		}
		operands = append(operands, b.Apply(nonzero, b.In(0)), b.Apply(zeros, b.In(0)))
	}
	f, err := r.gradient(b.In(0).Type().Dtype, len(operands))
	if err != nil {
		return []Term{b.fail("%w", err)}
	}
	return []Term{b.Apply(mapping{f: f, shape: b.In(0).Type().Shape}, operands...)}
}

// factors returns the reductions that compute the product of the factors that are not 0 and the number
// of factors that are 0.
func (r reduction) factors() (nonzero, zeros reduction, err error) {
	make := func(op expr.Op, f func(b *expr.Builder, factor, zero, one expr.Value) expr.Value) reduction {
		b := expr.NewBuilder(kernels.Float64)
		factor, zero, one := b.Inline(r.Function(), b.Operand(0))[0], b.Constant(kernels.Float64, 0), b.Constant(kernels.Float64, 1)
		of, e := b.Func(f(b, factor, zero, one))
		reduced, e2 := codegen.NewReduction(op, of)
		err = errors.Join(err, e, e2)
		return reduction{reduced, reduced.Identity()}
	}
	nonzero = make(expr.Mul, func(b *expr.Builder, factor, zero, one expr.Value) expr.Value {
		return b.Apply(expr.Select, b.Apply(expr.Eq, factor, zero), one, factor)
	})
	zeros = make(expr.Add, func(b *expr.Builder, factor, zero, _ expr.Value) expr.Value {
		return b.Convert(b.Apply(expr.Eq, factor, zero), kernels.Float64)
	})
	return nonzero, zeros, err
}

// gradient returns the derivative by an element as a function of the element, the derivative by the
// output and the reductions of factors, all of type dt. It computes in double precision, as the
// reduction does.
func (r reduction) gradient(dt kernels.Dtype, operands int) (expr.Func, error) {
	derivative, err := r.Function().Gradient(0)
	if err != nil {
		return expr.Func{}, err
	}
	b := expr.NewBuilder(slices.Repeat([]kernels.Dtype{dt}, operands)...)
	double := func(i int) expr.Value { return b.Convert(b.Operand(i), kernels.Float64) }
	x, grad, zero, one := double(0), double(1), b.Constant(kernels.Float64, 0), b.Constant(kernels.Float64, 1)
	f := b.Inline(r.Function(), x)[0]
	switch r.Operator() {
	case expr.Max, expr.Min:
		chosen := b.Apply(expr.Eq, b.Convert(f, dt), b.Operand(2))
		grad = b.Apply(expr.Select, chosen, grad, zero)
	case expr.Mul: // the other factors: their product, or 0 if there is another zero
		nonzero, zeros := double(2), double(3)
		others := b.Apply(expr.Select, b.Apply(expr.Eq, zeros, zero), b.Apply(expr.Div, nonzero, f), zero)
		alone := b.Apply(expr.Select, b.Apply(expr.Eq, zeros, one), nonzero, zero)
		grad = b.Apply(expr.Mul, grad, b.Apply(expr.Select, b.Apply(expr.Eq, f, zero), alone, others))
	}
	return b.Func(b.Convert(b.Inline(derivative, x, grad)[0], dt))
}
