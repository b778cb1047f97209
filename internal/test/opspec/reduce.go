package opspec

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// reduceExamples are expressions with their meaning in Go: operator and function.
var reduceExamples = []struct {
	expression string
	identity   float64
	operator   byte
	f          func(b float64) float64
	magnitude  string // for f(b) whose absolute value is not f(|b|)
}{
	{"a + b", 0, '+', func(b float64) float64 { return b }, ""},
	{"a + b*b", 0, '+', func(b float64) float64 { return b * b }, ""},
	{"(a - b / 2) + 1", 0, '+', func(b float64) float64 { return 1 - b/2 }, "a + b/2 + 1"},
	{"sqrt(1 + b*b) + a", 0, '+', func(b float64) float64 { return math.Sqrt(1 + b*b) }, ""},
	{"max(a, b)", math.Inf(-1), '>', func(b float64) float64 { return b }, ""},
	{"min(abs(b), a)", 100, '<', math.Abs, ""},
	{"a * (0.5 + sigmoid(b))", 1, '*', func(b float64) float64 { return 0.5 + 1/(1+math.Exp(-b)) }, "a * 3"}, // more than the factors and a rounding for each
}

var _ = register(Spec{
	Name:      "Reduce",
	Formula:   "out = identity ⊕ f(x₀) ⊕ f(x₁) ⊕ ..., a ⊕ f(b) given as text",
	Doc:       "Reduction from an expression; its GPU code is made at run time.",
	Tolerance: 4, // for float64, f and the joins round, here and in the reference
	Cases: func() (cases []Case) {
		for i := range reduceExamples {
			cases = append(cases, reduceCase(i, 1), reduceCase(i, 7), reduceCase(i, 31, 33))
			if reduceExamples[i].operator != '*' { // products of many factors leave the range of float32
				cases = append(cases, reduceCase(i, 70001), reduceCase(i, 1000003))
			}
		}
		return append(cases, reduceCase(0, 1, 1), reduceCase(4, 7919, 1, 13), large(reduceCase(1, 1<<29+3), kernels.Float32),
			timed("a + b 2^30", reduceCase(0, 1<<30)), timed("a + b*b 2^30", reduceCase(1, 1<<30)), timed("max(a, b) 2^30", reduceCase(4, 1<<30)))
	}(),
	Bad: []Bad{
		badReduce("no operator", "a b", 0, "at 3"),
		badReduce("no a", "b + b", 0, "got no a"),
		badReduce("cannot be joined", "a - a*b", 0, "at"),
		badReduce("another identity", "a + b", 1, "got the identity 1, want 0 for +"),
		badReduce("identity is NaN", "max(a, b)", math.NaN(), "got the identity NaN, want a number for max"),
	},
	Random: func(r *rand.Rand) Case {
		i := r.IntN(len(reduceExamples))
		if reduceExamples[i].operator != '+' { // few, so that each has a part in the gradient, and the test looks at each
			return reduceCase(i, 1+r.IntN(5), 1+r.IntN(2))
		}
		return reduceCase(i, 1+r.IntN(100), 1+r.IntN(10))
	},
	Wide: func(s *Sizes) Case {
		i := s.IntN(len(reduceExamples) - 1) // the last one multiplies: of many factors, beyond the range of the type
		return reduceCase(i, s.Shape(s.Elements(1), 1, 2)...)
	},
	Peers: `
# Expressions of Reduce: a call of PyTorch's, if there is one, and for CuPy the function of an
# element, how two results join, and the identity.
REDUCTIONS = {
    "a + b": (torch.sum, "x", "a + b", "0"),
    "a + b*b": (lambda x: torch.dot(x.view(-1), x.view(-1)), "x*x", "a + b", "0"),
    "(a - b / 2) + 1": (None, "(T)1 - x/2", "a + b", "0"),
    "sqrt(1 + b*b) + a": (None, "sqrt((T)1 + x*x)", "a + b", "0"),
    "max(a, b)": (torch.max, "x", "max(a, b)", "-1e30"),
    "min(abs(b), a)": (None, "abs(x)", "min(a, b)", "100"),
}


def peers(c, d):
    s = c["shapes"][0]
    in_torch, each, join, identity = REDUCTIONS[c["expression"]]
    if in_torch:
        yield f"{TORCH} {in_torch.__name__.replace('<lambda>', 'dot')}", lambda: (drawn(d, s),), in_torch
    if cupy:
        kernel = cupy.ReductionKernel("T x", "T y", each, join, "y = a", identity, "reduced")
        yield f"CuPy {cupy.__version__} ReductionKernel", lambda: (drawn(d, s), empty(d, [])), cupy_call(lambda x, o: kernel(x, o))
`,
})

func badReduce(name, expression string, identity float64, want string) Bad {
	return bad(name, unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Reduce(x, expression, identity) }), want, tensor.Shape{7})
}

func reduceCase(example int, shape ...int) Case {
	e := reduceExamples[example]
	by := func(expression string) Build {
		return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Reduce(x, expression, e.identity) })
	}
	return Case{
		Name:       fmt.Sprintf("%s, %v", e.expression, shape),
		Shapes:     []tensor.Shape{shape},
		Parameters: Parameters{Expression: e.expression},
		Build:      by(e.expression),
		Magnitude:  by(cmp.Or(e.magnitude, e.expression)),
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
