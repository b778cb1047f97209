package solver

import (
	"math"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Scaler has the options of dynamic loss scaling.
type Scaler struct {
	Growth, Backoff float64 // factors of the scale
	Interval        int     // steps without an overflow before the scale grows
}

// Func returns the function that decides whether a step is made, in double precision except for the scale, which is a float32. Its operands
// are the sum of the squares of all scaled gradients, whether the run is to make a step, 0 or 1, and the states: the scale, the steps made since the scale has changed, all steps made,
// and the steps skipped since one was made. The scale stays at 1 or above, where gradients that are finite when scaled are finite. Its results are the next states, whether the step is made, and whether a gradient is not finite.
func (s Scaler) Func() (expr.Func, error) {
	const d = expr.Float64
	b := expr.NewBuilder(d, d, expr.Float32, d, d, d)
	number := func(v float64) expr.Value { return b.Constant(d, v) }
	pick := func(c, x, y expr.Value) expr.Value { return b.Apply(expr.Select, c, x, y) }
	one, zero := number(1), number(0)
	finite := b.Apply(expr.Lt, b.Operand(0), number(math.Inf(1))) // NaN is not
	steps := b.Apply(expr.Ne, b.Operand(1), zero)
	made, skipped := b.Apply(expr.And, steps, finite), b.Apply(expr.And, steps, b.Apply(expr.Not, finite))

	scale, good := b.Convert(b.Operand(2), d), b.Apply(expr.Add, b.Operand(3), one)
	grown := b.Convert(b.Convert(b.Apply(expr.Mul, scale, number(s.Growth)), expr.Float32), d)
	grown = pick(b.Apply(expr.Lt, grown, number(math.Inf(1))), grown, scale)
	full := b.Apply(expr.Ge, good, number(float64(s.Interval)))
	after := pick(made, pick(full, grown, scale), pick(skipped, b.Apply(expr.Max, one, b.Apply(expr.Mul, scale, number(s.Backoff))), scale))
	return b.Func(
		b.Convert(after, expr.Float32),
		pick(made, pick(full, zero, good), pick(skipped, zero, b.Operand(3))),
		b.Apply(expr.Add, b.Operand(4), pick(made, one, zero)),
		pick(made, zero, b.Apply(expr.Add, b.Operand(5), pick(skipped, one, zero))),
		pick(made, one, zero),
		pick(finite, zero, one),
	)
}

// NormScaleOf is [NormScale] for gradients that are scaled, with the scale as a third operand.
func NormScaleOf(d expr.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(expr.Float64, expr.Float64, expr.Float32)
	limit, norm := b.Operand(0), b.Apply(expr.Div, b.Apply(expr.Sqrt, b.Operand(1)), b.Convert(b.Operand(2), expr.Float64))
	return b.Func(b.Convert(b.Apply(expr.Div, limit, b.Apply(expr.Max, limit, norm)), d))
}

// StepFunc returns the function that computes the operands of a counted rule that depend on the scaler, in the order of the list. Its own operands are
// whether the step is made, the steps made before, the solver's Beta1 and Beta2, in double precision, and the scale, of which those in kept exist.
func (r Rule) StepFunc() (f expr.Func, list []Operand, kept []int, err error) {
	const d = expr.Float64
	b := expr.NewBuilder(append(doubles(4), expr.Float32)...)
	one := b.Constant(d, 1)
	var results []expr.Value
	for _, o := range r.Operands {
		if o != Made && o != Unscale && !o.ofStep() {
			continue
		}
		v := b.Operand(0)
		switch o {
		case Unscale:
			v = b.Apply(expr.Div, one, b.Convert(b.Operand(4), d))
		case correction1, correction2:
			beta := b.Operand(2 + int(o-correction1))
			v = b.Apply(expr.Sub, one, b.Apply(expr.Pow, beta, b.Apply(expr.Add, b.Operand(1), one)))
			v = b.Apply(expr.Div, one, b.Convert(b.Convert(v, r.dtype), d))
		case averageWeight:
			v = b.Apply(expr.Select, b.Apply(expr.Eq, b.Operand(1), b.Constant(d, 0)), one, b.Constant(d, 1-r.ema))
		}
		list, results = append(list, o), append(results, b.Convert(v, r.dtype))
	}
	if f, err = b.Func(results...); err == nil {
		f, kept = f.Trim()
	}
	return f, list, kept, err
}
