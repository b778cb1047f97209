package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mapExamples are expressions with their meaning in Go, and the sum of the absolute
// values of their terms.
var mapExamples = []struct {
	expression string
	inputs     int
	f          func(x []float64) float64
	magnitude  string
	m          func(x []float64) float64 // of absolute values
}{
	{"tanh(a*b) + c", 3, func(x []float64) float64 { return math.Tanh(x[0]*x[1]) + x[2] },
		"1 + c", func(x []float64) float64 { return 1 + x[2] }},
	{"a*b + c", 3, func(x []float64) float64 { return x[0]*x[1] + x[2] }, "a*b + c", func(x []float64) float64 { return x[0]*x[1] + x[2] }},
	{"select(a < b, a, 0.5*b)", 2, func(x []float64) float64 {
		if x[0] < x[1] {
			return x[0]
		}
		return 0.5 * x[1]
	}, "a + b", func(x []float64) float64 { return x[0] + x[1] }},
	{"max(a, 0.1*a) * sigmoid(b)", 2, func(x []float64) float64 { return max(x[0], 0.1*x[0]) / (1 + math.Exp(-x[1])) }, "a", func(x []float64) float64 { return x[0] }},
	{"a / sqrt(1 + square(b)) - (a >= b)", 2, func(x []float64) float64 {
		y := x[0] / math.Sqrt(1+x[1]*x[1])
		if x[0] >= x[1] {
			y--
		}
		return y
	}, "a + 1", func(x []float64) float64 { return x[0] + 1 }},
	{"0.5 * a * (1 + erf(a * 0.70710678))", 1, func(x []float64) float64 { return 0.5 * x[0] * (1 + math.Erf(x[0]*0.70710678)) },
		"a", func(x []float64) float64 { return x[0] }},
}

// mapSteps is the example that jumps where its inputs are equal. Differences give no gradient there, and one number among many is equal to some.
const mapSteps = 4

var _ = register(Spec{
	Name:      "Map",
	Formula:   "out[i] = f(a[i], b[i], ...), f given as text",
	Doc:       "An expression of any inputs, element by element; its GPU code is made at run time.",
	Tolerance: 8,
	AnyType:   true,
	Mixed:     true,
	Cases: func() (cases []Case) {
		for i, e := range mapExamples {
			n := e.inputs
			cases = append(cases, mapCase(i, slices.Repeat([]tensor.Shape{{1}}, n)...), mapCase(i, slices.Repeat([]tensor.Shape{{1021}}, n)...),
				mapCase(i, slices.Repeat([]tensor.Shape{{17, 31}}, n)...), mapCase(i, slices.Repeat([]tensor.Shape{{}}, n)...))
		}
		cube := tensor.Shape{5, 1, 12}
		return append(cases,
			mapCase(1, tensor.Shape{17, 31}, tensor.Shape{31}, tensor.Shape{17, 1}), mapCase(0, tensor.Shape{5, 1}, tensor.Shape{7}, tensor.Shape{5, 7}),
			mapCase(2, tensor.Shape{3, 1, 1, 2}, tensor.Shape{4, 5, 1}), mapCase(4, tensor.Shape{1, 1, 3}, tensor.Shape{2, 1, 1, 3}), mapCase(1, tensor.Shape{1}, tensor.Shape{}, tensor.Shape{1, 9}),
			mapCase(0, cube, tensor.ScalarShape(), cube), mapCase(1, tensor.ScalarShape(), tensor.ScalarShape(), cube), mapCase(2, tensor.Shape{70001}, tensor.ScalarShape()),
			large(mapCase(1, tensor.Shape{1<<29 + 3}, tensor.Shape{1<<29 + 3}, tensor.ScalarShape()), kernels.Float32),
			timed("tanh(a*b) + c, 2^28", mapCase(0, slices.Repeat([]tensor.Shape{{1 << 28}}, 3)...)),
			timed("a*b + c, 2^28", mapCase(1, slices.Repeat([]tensor.Shape{{1 << 28}}, 3)...)),
			timed("max(a, 0.1*a) * sigmoid(b), 2^28", mapCase(3, slices.Repeat([]tensor.Shape{{1 << 28}}, 2)...)),
			timed("gelu, 2^28", mapCase(5, tensor.Shape{1 << 28})),
			against("tanh(a*b) + c, 2^22", mapCase(0, slices.Repeat([]tensor.Shape{{1 << 22}}, 3)...), mapInGorgonia))
	}(),
	Bad: []Bad{
		badMap("cannot be read", "a + ", "at 5: got the end", tensor.Shape{3}),
		badMap("an input too few", "a + b", "at 5: got b, want a number, a name of a,", tensor.Shape{3}),
		badMap("no inputs", "1", "got 0 inputs, want 1 to 26"),
		badMap("other length", "a + b", "input 1: got shape (4), want one that broadcasts with (3), as of the inputs before", tensor.Shape{3}, tensor.Shape{4}),
		badMap("an axis that is not the last", "a + b", "input 1: got shape (3)", tensor.Shape{3, 4}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		i := r.IntN(len(mapExamples))
		s := randomShape(r, 0, 4)
		shapes := make([]tensor.Shape, mapExamples[i].inputs)
		for k := range shapes {
			shapes[k] = s
			if i != mapSteps && r.IntN(4) == 0 {
				shapes[k] = tensor.ScalarShape()
			}
		}
		return mapCase(i, shapes...)
	},
	Wide: func(s *Sizes) Case {
		i := s.IntN(len(mapExamples))
		inputs := mapExamples[i].inputs
		shapes := slices.Repeat([]tensor.Shape{s.Shape(s.Elements(inputs+1), 1, 3)}, inputs)
		for k := range shapes[1:] {
			if s.IntN(4) == 0 {
				shapes[k+1] = tensor.ScalarShape()
			}
		}
		return mapCase(i, shapes...)
	},
	Peers: `
# Expressions of Map: in PyTorch, and in C for CuPy, where T is the type.
MAPS = {
    "tanh(a*b) + c": (lambda a, b, c: torch.tanh(a * b) + c, "tanh(a*b) + c"),
    "a*b + c": (lambda a, b, c: a * b + c, "a*b + c"),
    "select(a < b, a, 0.5*b)": (lambda a, b: torch.where(a < b, a, 0.5 * b), "a < b ? a : (T)0.5*b"),
    "max(a, 0.1*a) * sigmoid(b)": (lambda a, b: torch.maximum(a, 0.1 * a) * torch.sigmoid(b), "max(a, (T)0.1*a) / ((T)1 + exp(-b))"),
    "a / sqrt(1 + square(b)) - (a >= b)": (lambda a, b: a / torch.sqrt(1 + b * b) - (a >= b).to(a.dtype), "a / sqrt((T)1 + b*b) - (T)(a >= b)"),
    "0.5 * a * (1 + erf(a * 0.70710678))": (lambda a: 0.5 * a * (1 + torch.erf(a * 0.70710678)), "(T)0.5 * a * ((T)1 + erf(a * (T)0.70710678))"),
}


def peers(c, d):
    in_torch, in_c = MAPS[c["expression"]]
    operands = lambda: tuple(drawn(d, s) for s in c["shapes"])
    yield TORCH + " element-wise calls", operands, in_torch
    if cupy:
        names = "abc"[: len(c["shapes"])]
        kernel = cupy.ElementwiseKernel(", ".join("T " + n for n in names), "T y", "y = " + in_c, "mapped")
        yield f"CuPy {cupy.__version__} ElementwiseKernel", lambda: operands() + (empty(d, c["shapes"][0]),), cupy_call(kernel)
`,
})

func badMap(name, expression, want string, shapes ...tensor.Shape) Bad {
	return bad(name, func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Map(expression, in...) }, want, shapes...)
}

// mapInGorgonia is the first example by Gorgonia's own ops.
func mapInGorgonia(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	product, err := gorgonia.HadamardProd(in[0], in[1])
	if err != nil {
		return nil, err
	}
	if product, err = gorgonia.Tanh(product); err != nil {
		return nil, err
	}
	return gorgonia.Add(product, in[2])
}

func mapCase(example int, shapes ...tensor.Shape) Case {
	e := mapExamples[example]
	by := func(expression string) Build {
		return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Map(expression, in...) }
	}
	c := elements(fmt.Sprintf("%s, %v", e.expression, shapes), by(e.expression), func(x []float64) (y, magnitude float64) {
		y, magnitude = e.f(x), e.m(absolute(x))
		if math.IsNaN(magnitude) || math.IsInf(magnitude, 0) { // of a term that does not count here
			magnitude = math.Abs(y)
		}
		return y, magnitude
	}, shapes...)
	c.Parameters, c.Magnitude = Parameters{Expression: e.expression}, by(e.magnitude)
	return c
}
