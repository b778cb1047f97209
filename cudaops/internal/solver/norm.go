package solver

import (
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Values that depend on the elements of all parameters are computed in double precision: sums over each parameter, then a number
// computed from these sums.

// Squares returns the function of rows that computes the sum of the squares of a gradient with
// elements of type d.
func Squares(d expr.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(d)
	g := b.Convert(b.Operand(0), expr.Float64)
	return b.Func(b.Apply(expr.RowSum, b.Apply(expr.Mul, g, g)))
}

// Total returns the function that adds numbers in double precision, in their order.
func Total(n int) (expr.Func, error) {
	b := expr.NewBuilder(doubles(n)...)
	sum := b.Operand(0)
	for i := 1; i < n; i++ {
		sum = b.Apply(expr.Add, sum, b.Operand(i))
	}
	return b.Func(sum)
}

// NormScale returns the function of the maximum norm and the sum of all squares that computes the factor, in d, that limits the
// norm of the gradients to the maximum.
func NormScale(d expr.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(doubles(2)...)
	limit, norm := b.Operand(0), b.Apply(expr.Sqrt, b.Operand(1))
	return b.Func(b.Convert(b.Apply(expr.Div, limit, b.Apply(expr.Max, limit, norm)), d))
}

// Differences returns the function of rows of a gradient and a parameter, with elements of type d, and of both before the
// previous step. It computes the sum of the products of their differences and the sum of the squared differences of the
// gradient.
func Differences(d expr.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(d, d, d, d)
	double := func(i int) expr.Value { return b.Convert(b.Operand(i), expr.Float64) }
	g, p := b.Apply(expr.Sub, double(0), double(2)), b.Apply(expr.Sub, double(1), double(3))
	sum := func(x, y expr.Value) expr.Value { return b.Apply(expr.RowSum, b.Apply(expr.Mul, x, y)) }
	return b.Func(sum(p, g), sum(g, g))
}

// StepSize returns the function that computes the step size of Barzilai and Borwein in d. Its operands are the numbers of
// [StepNumbers], then the sums of [Differences] over all parameters.
func StepSize(s internal.Solver, d expr.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(doubles(5)...)
	first, rate, limit := b.Operand(0), b.Operand(1), b.Operand(2)
	zero := b.Constant(expr.Float64, 0)
	size := b.Apply(expr.Div, b.Operand(3), b.Operand(4))
	if s.UseClip {
		signed := b.Apply(expr.Select, b.Apply(expr.Lt, size, zero), b.Apply(expr.Neg, limit), limit)
		size = b.Apply(expr.Select, b.Apply(expr.Gt, b.Apply(expr.Abs, size), limit), signed, size)
	}
	return b.Func(b.Convert(b.Apply(expr.Select, b.Apply(expr.Ne, first, zero), rate, size), d))
}

// StepNumbers returns the operands of [StepSize] in a step, counted from 1: whether it is the first step, the learning rate,
// which is the size of the first step, and the maximum step size.
func StepNumbers(s internal.Solver, step int) []float64 {
	if step == 1 {
		return []float64{1, s.Rate, s.Clip}
	}
	return []float64{0, s.Rate, s.Clip}
}

// doubles returns the types of n numbers.
func doubles(n int) []expr.Dtype { return slices.Repeat([]expr.Dtype{expr.Float64}, n) }
