package opspec

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name: "Max", Formula: "out[kept] = max x[...] over axes", Doc: "Greatest element over any set of axes.",
	Cases: reductionCases(maxCase), Bad: alongBad(ops.Max), Generated: true, AnyType: true,
	Random: func(r *rand.Rand) Case { return randomReduction(r, maxCase) },
})

func maxCase(s tensor.Shape, axes ...int) Case {
	return rowCase(s, axes, along(ops.Max, axes...), func(x []float64) (out, magnitude []float64) {
		y := math.Inf(-1)
		for _, v := range x {
			y = max(y, v)
		}
		return []float64{y}, []float64{math.Abs(y)}
	})
}

var _ = register(Spec{
	Name: "Min", Formula: "out[kept] = min x[...] over axes", Doc: "Least element over any set of axes.",
	Cases: reductionCases(minCase), Bad: alongBad(ops.Min), Generated: true, AnyType: true,
	Random: func(r *rand.Rand) Case { return randomReduction(r, minCase) },
})

func minCase(s tensor.Shape, axes ...int) Case {
	return rowCase(s, axes, along(ops.Min, fromEnd(s, axes)...), func(x []float64) (out, magnitude []float64) {
		y := math.Inf(1)
		for _, v := range x {
			y = min(y, v)
		}
		return []float64{y}, []float64{math.Abs(y)}
	})
}

var _ = register(Spec{
	Name: "Var", Formula: "out[kept] = Σ (x[...] - mean)² / (terms - correction)", Doc: "Variance over any set of axes, the mean first.",
	Tolerance: 8, Cases: reductionCases(varCase), Generated: true,
	Bad: append(alongBad(func(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) { return ops.VarCorrection(x, 0, along...) }),
		bad("correction below 0", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.VarCorrection(x, -1) }), "want a correction of 0 or more", tensor.Shape{3}),
		bad("too few terms", along(ops.Var, 1), "got 1 terms and the correction 1", tensor.Shape{3, 1})),
	Random: func(r *rand.Rand) Case { return randomReduction(r, varCase) },
})

// varCase has the correction 1, Var's own, where there are several terms.
func varCase(s tensor.Shape, axes ...int) Case {
	n := s.TotalSize() / without(s, axes...).TotalSize()
	correction := min(n-1, 1)
	build := along(ops.Var, axes...)
	if correction == 0 {
		build = unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.VarCorrection(x, 0, axes...) })
	}
	return rowCase(s, axes, build, func(x []float64) (out, magnitude []float64) {
		m := moments(x)
		f := float64(n) / float64(n-correction)
		return []float64{m.variance * f}, []float64{(m.variance + m.error) * f}
	})
}

// rowMoments are mean and variance of a row, and a bound of the variance's error, in units of the elements' epsilon.
type rowMoments struct{ mean, variance, error float64 }

func moments(x []float64) (m rowMoments) {
	var sum, squares total
	for _, v := range x {
		sum.add(v)
	}
	n := float64(len(x))
	m.mean = sum.value() / n
	for _, v := range x {
		d := v - m.mean
		squares.add(d * d)
		m.error += math.Abs(d) * (math.Abs(v) + math.Abs(m.mean)) / n
	}
	m.variance = squares.value() / n
	return m
}

var _ = register(Spec{
	Name: "Prod", Formula: "out[kept] = Π x[...] over axes", Doc: "Product over any set of axes.", AnyType: true,
	Tolerance: 1, Bad: alongBad(ops.Prod), Generated: true,
	Cases: []Case{
		prodCase(tensor.Shape{1}, 0), prodCase(tensor.Shape{2}, 0), prodCase(tensor.Shape{7}, 0), prodCase(tensor.Shape{3, 8}, 1), prodCase(tensor.Shape{9, 3}, 0), prodCase(tensor.Shape{5, 1, 4}, 1),
		prodCase(tensor.Shape{3, 23, 2}, 1), prodCase(tensor.Shape{3, 5, 4, 7}, 0, 2), prodCase(tensor.Shape{4, 3}, 0, 1), prodCase(tensor.Shape{5, 64}, 1),
	},
	Random: func(r *rand.Rand) Case {
		s := make(tensor.Shape, 1+r.IntN(5))
		for a := range s {
			s[a] = 1 + r.IntN(5)
		}
		return prodCase(s, r.IntN(len(s)))
	},
})

func prodCase(s tensor.Shape, axes ...int) Case {
	c := rowCase(s, axes, along(ops.Prod, axes...), func(x []float64) (out, magnitude []float64) {
		y := 1.0
		for _, v := range x {
			y *= v
		}
		return []float64{y}, []float64{math.Abs(y) * float64(len(x))}
	})
	c.Composed = true
	return c
}
