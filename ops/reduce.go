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
// An expression that cannot be read or joined, or has more than 4096 characters, is an
// error with the position of what is wrong, counted from 1. Reduce has no gradient.
func Reduce(x *gorgonia.Node, expression string, identity float64) (*gorgonia.Node, error) {
	r, err := kernels.ParseReduction(expression)
	if err != nil {
		return nil, fmt.Errorf("ops: Reduce(%.80q): %w", expression, err)
	}
	neutral := r.Identity()
	if math.IsNaN(identity) || !math.IsInf(neutral, 0) && identity != neutral {
		want := "a number"
		if !math.IsInf(neutral, 0) {
			want = fmt.Sprint(neutral)
		}
		return nil, fmt.Errorf("ops: Reduce(%q): got the identity %v, want %s for %s", expression, identity, want, r.Operator)
	}
	return Apply(reduction{expression, r.String(), identity}, x)
}

// reduction is Reduce by an expression that kernels.ParseReduction takes.
type reduction struct {
	expression string // as given
	normal     string // in the normal form
	identity   float64
}

func (r reduction) String() string { return fmt.Sprintf("Reduce[%s, %v]", r.normal, r.identity) }

func (reduction) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	return Type{in[0].Dtype, tensor.ScalarShape()}, nil
}

func (r reduction) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	parsed, err := kernels.ParseReduction(r.expression)
	if err != nil {
		return nil, err
	}
	return kernels.Reduce(dev, in[0].Dtype, in[0].Elements(), parsed, r.identity)
}

func (reduction) Adjoints(b *Backward) []Term {
	return b.None("its expression is not differentiated; Sum, Dot and Gorgonia's own ops have gradients")
}

// reduceExamples are expressions with their meaning in Go: operator and function.
var reduceExamples = []struct {
	expression string
	identity   float64
	operator   byte
	f          func(b float64) float64
}{
	{"a + b", 0, '+', func(b float64) float64 { return b }},
	{"a + b*b", 0, '+', func(b float64) float64 { return b * b }},
	{"(a - b / 2) + 1", 0, '+', func(b float64) float64 { return 1 - b/2 }},
	{"sqrt(abs(b)) + a", 0, '+', func(b float64) float64 { return math.Sqrt(math.Abs(b)) }},
	{"max(a, b)", math.Inf(-1), '>', func(b float64) float64 { return b }},
	{"min(abs(b), a)", 1, '<', math.Abs},
	{"a * max(0.5, min(b, 2))", 1, '*', func(b float64) float64 { return max(0.5, min(b, 2)) }},
}

var _ = register(Spec{
	Name:       "Reduce",
	Formula:    "out = identity ⊕ f(x₀) ⊕ f(x₁) ⊕ ..., a ⊕ f(b) given as text",
	Doc:        "Reduction from an expression; its GPU code is made at run time.",
	Tolerance:  4, // for float64, f and the joins round, here and in the reference
	NoGradient: true,
	Cases: func() (cases []Case) {
		for i := range reduceExamples {
			cases = append(cases, reduceCase(i, 1), reduceCase(i, 7), reduceCase(i, 31, 33))
			if reduceExamples[i].operator != '*' { // products of many factors leave the range of float32
				cases = append(cases, reduceCase(i, 70001), reduceCase(i, 1000003))
			}
		}
		return append(cases, bench("a + b 2^30", reduceCase(0, 1<<30)), bench("a + b*b 2^30", reduceCase(1, 1<<30)), bench("max(a, b) 2^30", reduceCase(4, 1<<30)))
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
			if e.operator == '+' {
				var sum, terms total
				for _, b := range in[0] {
					sum.add(e.f(b))
					terms.add(math.Abs(e.f(b)))
				}
				return []float64{sum.value()}, []float64{terms.value()}
			}
			a := e.identity
			for _, b := range in[0] {
				switch f := e.f(b); e.operator {
				case '>':
					a = max(a, f)
				case '<':
					a = min(a, f)
				case '*':
					a *= f
				}
			}
			m := math.Abs(a)
			if e.operator == '*' { // one rounding for each factor
				m *= float64(len(in[0]))
			}
			return []float64{a}, []float64{m}
		},
	}
}
