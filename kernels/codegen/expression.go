package codegen

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// A Reduction can be computed in parallel: a, the result so far, operator f of the next element. It
// is made by [ParseReduction] or [NewReduction]; equal reductions have equal results.
type Reduction struct {
	operator expr.Op   // Add, Mul, Max or Min
	f        expr.Func // of one Float64, and one as well
}

// NewReduction returns the reduction by an operator, expr.Add, Mul, Max or Min, of a function of one Float64 with one such output.
func NewReduction(operator expr.Op, f expr.Func) (Reduction, error) {
	switch operator {
	case expr.Add, expr.Mul, expr.Max, expr.Min:
	default:
		return Reduction{}, fmt.Errorf("kernels: got a reduction by %v, want +, *, max or min", operator)
	}
	if double := []kernels.Dtype{kernels.Float64}; !slices.Equal(f.Operands(), double) || !slices.Equal(f.Outputs(), double) {
		return Reduction{}, fmt.Errorf("kernels: got a reduction of %v, want a function of one f64 with one f64 as its output", f)
	}
	return Reduction{operator, f}, nil
}

// ParseReduction reads an expression of a, the result so far, and b, the next element, in the language of [expr.Parse]. Chunks of the input are
// reduced in parallel and their results combined, so the expression must have one of the forms
//
//	a + f(b)   a * f(b)   max(a, f(b))   min(a, f(b))
//
// with a once and any f of b, as in "a + b*b", "max(abs(b), a)" or "a - b/2 + 1". Any other expression, and one of more than 4096 characters, is an
// error that names the position, in characters from 1.
func ParseReduction(expression string) (Reduction, error) {
	op, f, err := expr.ParseReduction(expression)
	if err != nil {
		return Reduction{}, err
	}
	return NewReduction(op, f)
}

// Operator returns expr.Add, Mul, Max or Min.
func (r Reduction) Operator() expr.Op { return r.operator }

// Function returns f, a function of a Float64.
func (r Reduction) Function() expr.Func { return r.f }

// Identity is the operator's neutral element: 0, 1, -Inf or +Inf.
func (r Reduction) Identity() float64 {
	switch r.operator {
	case expr.Add:
		return 0
	case expr.Mul:
		return 1
	case expr.Max:
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// String returns the reduction in a normal form, the same for expressions that differ only in spaces and parentheses.
func (r Reduction) String() string {
	b := expr.NewBuilder(kernels.Float64, kernels.Float64)
	whole, err := b.Func(b.Apply(r.operator, append([]expr.Value{b.Operand(0)}, b.Inline(r.f, b.Operand(1))...)...))
	if err != nil { // the zero Reduction
		return fmt.Sprintf("%v, %v", r.operator, r.f)
	}
	return whole.Text("a", "b")
}

// Fold joins values, halves first, so that the rounding errors of long sums stay as small as those of the kernel's many accumulators.
func (r Reduction) Fold(values []float64) float64 {
	if n := len(values); n > 16 {
		return r.Join(r.Fold(values[:n/2]), r.Fold(values[n/2:]))
	}
	a := values[0]
	for _, b := range values[1:] {
		a = r.Join(a, b)
	}
	return a
}

func (r Reduction) Join(a, b float64) float64 {
	switch r.operator {
	case expr.Add:
		return a + b
	case expr.Mul:
		return a * b
	case expr.Max:
		return max(a, b)
	}
	return min(a, b)
}
