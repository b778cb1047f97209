package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var (
	_ = register(elementSpec("GELU", "out = x/2 (1 + erf(x/√2))", "Gaussian error linear unit.", ops.GELU,
		func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }))
	_ = register(elementSpec("GELUTanh", "out = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))", "Gaussian error linear unit, approximated by tanh.", ops.GELUTanh,
		func(x float64) float64 { return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }))
	_ = register(elementSpec("SiLU", "out = x / (1 + e⁻ˣ)", "Sigmoid linear unit.", ops.SiLU,
		func(x float64) float64 { return x * (1 / (1 + math.Exp(-x))) }))
	_ = register(elementSpec("StopGradient", "out = x", "Stops gradients.", ops.StopGradient, func(x float64) float64 { return x }))
)

// elementSpec is the Spec of a function of one element.
func elementSpec(name, formula, doc string, build func(x *gorgonia.Node) (*gorgonia.Node, error), f func(x float64) float64) Spec {
	of := func(s tensor.Shape) Case { return elementCase(s, unary(build), f) }
	return Spec{
		Name: name, Formula: formula, Doc: doc, Tolerance: 8, Generated: true, Stops: name == "StopGradient", AnyType: name == "StopGradient",
		Cases:  []Case{of(tensor.Shape{1}), of(tensor.ScalarShape()), of(tensor.Shape{1021}), of(tensor.Shape{17, 1, 31}), of(tensor.Shape{70001})},
		Bad:    []Bad{bad("no elements", unary(build), "want at least one element", tensor.Shape{0})},
		Random: func(r *rand.Rand) Case { return of(randomShape(r, 0, 5)) },
	}
}

func elementCase(s tensor.Shape, build Build, f func(x float64) float64) Case {
	return elements(fmt.Sprint([]int(s)), build, func(x []float64) (y, magnitude float64) {
		if y, magnitude = f(x[0]), math.Abs(x[0]); math.IsInf(magnitude, 0) {
			magnitude = math.Abs(y)
		}
		return y, magnitude
	}, s)
}

var _ = register(Spec{
	Name: "Clip", Formula: "out = min(max(x, lo), hi)", Doc: "Limits each element.", Generated: true,
	Cases: []Case{
		clipCase(tensor.Shape{1}, -0.5, 0.5), clipCase(tensor.ScalarShape(), 0, 1), clipCase(tensor.Shape{1021}, math.Inf(-1), 0.25), clipCase(tensor.Shape{5, 31}, -0.125, math.Inf(1)), clipCase(tensor.Shape{7, 3}, 2, 2),
	},
	Bad: []Bad{
		bad("limits exchanged", clip(1, -1), "got limits 1 and -1", tensor.Shape{3}),
		bad("a limit that is NaN", clip(math.NaN(), 1), "got limits NaN and 1", tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		return clipCase(randomShape(r, 1, 5), -float64(r.IntN(1024))/1024, float64(r.IntN(1024))/1024)
	},
})

func clip(lo, hi float64) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Clip(x, lo, hi) })
}

func clipCase(s tensor.Shape, lo, hi float64) Case {
	c := elementCase(s, clip(lo, hi), func(x float64) float64 {
		switch {
		case x < lo:
			return lo
		case x > hi:
			return hi
		}
		return x
	})
	c.Name += fmt.Sprint(" ", lo, " ", hi)
	return c
}
