package kernels

import (
	"math"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// A Reduction is a small expression of a, what has been reduced so far, and b, the
// next element, that can be reduced in parallel: a operator f(b). See
// [ParseReduction].
type Reduction struct {
	Operator expr.Op   // Add, Mul, Max or Min
	f        expr.Func // of a Float64
	name     string
}

// ParseReduction reads an expression of a and b in the language of [expr.Parse]. Chunks
// of the input are reduced side by side and their results joined, so that the
// expression must say how: it must come down to one of
//
//	a + f(b)   a * f(b)   max(a, f(b))   min(a, f(b))
//
// with a once and any f of b, as in "a + b*b", "max(abs(b), a)" or "a - b/2 + 1". Any other
// expression, and one of more than 4096 characters, is an error that names the
// position, in characters from 1.
func ParseReduction(expression string) (*Reduction, error) {
	op, f, err := expr.ParseReduction(expression)
	if err != nil {
		return nil, err
	}
	b := expr.NewBuilder(Float64, Float64)
	whole, err := b.Func(b.Apply(op, append([]expr.Value{b.Operand(0)}, b.Inline(f, b.Operand(1))...)...))
	if err != nil {
		return nil, err
	}
	return &Reduction{op, f, whole.Text("a", "b")}, nil
}

// Identity is the operator's neutral element: 0, 1, -Inf or +Inf.
func (r *Reduction) Identity() float64 {
	switch r.Operator {
	case expr.Add:
		return 0
	case expr.Mul:
		return 1
	case expr.Max:
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// String is the reduction in a normal form, which is the same for expressions
// that differ in spaces and parentheses alone.
func (r *Reduction) String() string { return r.name }

// fold joins values, halves first, so that the rounding errors of long sums stay
// as small as those of the kernel's many accumulators.
func (r *Reduction) fold(values []float64) float64 {
	if n := len(values); n > 16 {
		return r.join(r.fold(values[:n/2]), r.fold(values[n/2:]))
	}
	a := values[0]
	for _, b := range values[1:] {
		a = r.join(a, b)
	}
	return a
}

func (r *Reduction) join(a, b float64) float64 {
	switch r.Operator {
	case expr.Add:
		return a + b
	case expr.Mul:
		return a * b
	case expr.Max:
		return max(a, b)
	}
	return min(a, b)
}
