package ops

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Reduce reduces a tensor of any shape to a scalar by an expression of a, what has
// been reduced so far, and b, the next element:
//
//	ops.Reduce(x, "a + b", 0)             the sum
//	ops.Reduce(x, "a + b*b", 0)           the sum of squares
//	ops.Reduce(x, "max(a, abs(b))", 0)    the largest magnitude
//
// The expression takes numbers, + - * /, parentheses, and max(x, y), min(x, y), abs(x)
// and sqrt(x). Chunks are reduced side by side and then joined, so that it must
// come down to a + f(b), a * f(b), max(a, f(b)) or min(a, f(b)), f being any
// expression of b:
//
//	out = identity op f(x[0]) op f(x[1]) op ...
//
// It is computed in double precision and rounded once, in the same order in every
// run. identity is 0 for +, 1 for *, and any number for max and min. On a GPU the
// kernel is made of the expression when it first runs there.
//
// An expression that cannot be read or joined is an error with the position of what
// is wrong, counted from 1. Reduce has no gradient.
func Reduce(x *gorgonia.Node, expression string, identity float64) (*gorgonia.Node, error) {
	r, err := kernels.ParseReduction(expression)
	if err != nil {
		return nil, fmt.Errorf("ops: Reduce(%q): %w", expression, err)
	}
	neutral := r.Identity()
	if math.IsNaN(identity) || !math.IsInf(neutral, 0) && identity != neutral {
		want := "a number"
		if !math.IsInf(neutral, 0) {
			want = fmt.Sprint(neutral)
		}
		return nil, fmt.Errorf("ops: Reduce(%q): got the identity %v, want %s for %s", expression, identity, want, r.Operator)
	}
	return apply(reduction{r, identity}, x)
}

// reduction is a technique by its expression.
type reduction struct {
	*kernels.Reduction
	identity float64
}

func (r reduction) String() string { return fmt.Sprintf("Reduce[%v, %v]", r.Reduction, r.identity) }

func (r reduction) infer(in []tensor.Shape) (tensor.Shape, error) { return tensor.ScalarShape(), nil }

func (r reduction) plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	return kernels.Reduce(dev, dt, int64(in[0].TotalSize()), r.Reduction, r.identity)
}

func (r reduction) adjoints([]tensor.Shape) []adjoint { return nil }

func (r reduction) noGradient() string {
	return "its expression is not differentiated; Sum, Dot and Gorgonia's own ops have gradients"
}

// reduceExamples are expressions with their meaning in Go, and what a step's result is
// made of.
var reduceExamples = []struct {
	expression string
	identity   float64
	step       func(a, b float64) float64
	magnitude  func(a, b float64) float64
}{
	{"a + b", 0, func(a, b float64) float64 { return a + b }, func(a, b float64) float64 { return a + math.Abs(b) }},
	{"a + b*b", 0, func(a, b float64) float64 { return a + b*b }, func(a, b float64) float64 { return a + b*b }},
	{"(a - b / 2) + 1", 0, func(a, b float64) float64 { return a + (1 - b/2) }, func(a, b float64) float64 { return a + 1 + math.Abs(b/2) }},
	{"sqrt(abs(b)) + a", 0, func(a, b float64) float64 { return a + math.Sqrt(math.Abs(b)) }, func(a, b float64) float64 { return a + math.Sqrt(math.Abs(b)) }},
	{"max(a, b)", math.Inf(-1), func(a, b float64) float64 { return max(a, b) }, func(a, b float64) float64 { return max(a, math.Abs(b)) }},
	{"min(abs(b), a)", 1, func(a, b float64) float64 { return min(a, math.Abs(b)) }, func(a, b float64) float64 { return max(a, math.Abs(b)) }},
	// factors between 1/2 and 2, in any order
	{"a * max(0.5, min(b, 2))", 1, func(a, b float64) float64 { return a * max(0.5, min(b, 2)) }, nil},
}

var _ = register(Spec{
	Name:       "Reduce",
	Formula:    "out = identity ⊕ f(x₀) ⊕ f(x₁) ⊕ ..., a ⊕ f(b) given as text",
	Doc:        "Reduction from an expression; its GPU code is made at run time.",
	Tolerance:  1,
	NoGradient: true,
	Cases: func() (cases []Case) {
		for i := range reduceExamples {
			cases = append(cases, reduceCase(i, 1), reduceCase(i, 7), reduceCase(i, 31, 33))
			if reduceExamples[i].magnitude != nil { // products of many factors leave the range of float32
				cases = append(cases, reduceCase(i, 70001), reduceCase(i, 1000003))
			}
		}
		return append(cases, bench("a + b 2^30", reduceCase(0, 1<<30)), bench("a + b*b 2^28", reduceCase(1, 1<<28)), bench("max(a, b) 2^28", reduceCase(4, 1<<28)))
	}(),
	Random: func(r *rand.Rand) Case { return reduceCase(r.IntN(len(reduceExamples)), 1+r.IntN(100), 1+r.IntN(10)) },
})

func reduceCase(example int, shape ...int) Case {
	e := reduceExamples[example]
	return Case{
		Name:   fmt.Sprintf("%s, %v", e.expression, shape),
		Shapes: []tensor.Shape{shape},
		Build:  func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return Reduce(in[0], e.expression, e.identity) },
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			a, m := e.identity, 0.0
			for _, b := range in[0] {
				a = e.step(a, b)
				if e.magnitude != nil {
					m = e.magnitude(m, b)
				}
			}
			if e.magnitude == nil { // one rounding for each factor
				m = math.Abs(a) * float64(len(in[0]))
			}
			return []float64{a}, []float64{m}
		},
	}
}
