package opspec

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var (
	_ = register(softMaxSpec("SoftMax", "out = exp(x - max) / Σ exp(x - max)", "Exponentials that add up to 1 along an axis.", ops.SoftMax, softMaxCase))
	_ = register(softMaxSpec("LogSoftMax", "out = x - max - log Σ exp(x - max)", "Logarithm of SoftMax.", ops.LogSoftMax, logSoftMaxCase))
)

func softMaxSpec(name, formula, doc string, f func(x *gorgonia.Node, axis int) (*gorgonia.Node, error), of func(s tensor.Shape, axes ...int) Case) Spec {
	return Spec{
		Name: name, Formula: formula, Doc: doc, Tolerance: 8, Generated: true, Cases: rowCases(of),
		Bad: []Bad{
			bad("axis too small", along1(f, -3), "got axis -3 of shape (3, 4), want -2 <= axis < 2", tensor.Shape{3, 4}),
			bad("axis too large", along1(f, 2), "got axis 2 of shape (3, 4)", tensor.Shape{3, 4}),
			bad("a scalar", along1(f, 0), "got axis 0 of shape ()", tensor.Shape{}),
		},
		Random: func(r *rand.Rand) Case { return randomRows(r, of) },
	}
}

// along1 is an op along one axis.
func along1(f func(x *gorgonia.Node, axis int) (*gorgonia.Node, error), axis int) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return f(x, axis) })
}

// exponentials are those of a row less its maximum, their sum, and a bound of the sum's relative error.
type exponentials struct {
	max, sum, error float64
	e               []float64
}

func exponentialsOf(x []float64) (s exponentials) {
	s.max = math.Inf(-1)
	for _, v := range x {
		s.max = max(s.max, v)
	}
	var sum total
	for _, v := range x {
		e := math.Exp(v - s.max)
		if sum.add(e); e != 0 {
			s.error += e * math.Abs(v-s.max)
		}
		s.e = append(s.e, e)
	}
	s.sum = sum.value()
	s.error = s.error/s.sum + 1
	return s
}

func softMaxCase(s tensor.Shape, axes ...int) Case {
	return elementsOfRows(s, axes, along1(ops.SoftMax, axes[0]), func(x []float64) (out, magnitude []float64) {
		s := exponentialsOf(x)
		for i, v := range x {
			y, m := s.e[i]/s.sum, 0.0
			if y > 0 {
				m = y * (1 + math.Abs(v-s.max) + s.error)
			}
			out, magnitude = append(out, y), append(magnitude, m)
		}
		return out, magnitude
	})
}

func logSoftMaxCase(s tensor.Shape, axes ...int) Case {
	return elementsOfRows(s, axes, along1(ops.LogSoftMax, axes[0]-len(s)), func(x []float64) (out, magnitude []float64) {
		s := exponentialsOf(x)
		for _, v := range x {
			l := math.Log(s.sum)
			out, magnitude = append(out, v-s.max-l), append(magnitude, math.Abs(v)+math.Abs(s.max)+math.Abs(l)+s.error)
		}
		return out, magnitude
	})
}

var _ = register(Spec{
	Name: "LogSumExp", Formula: "out[kept] = log Σ exp(x[...]) over axes", Doc: "Logarithm of a sum of exponentials, without overflow.",
	Tolerance: 8, Generated: true, Cases: reductionCases(logSumExpCase), Bad: alongBad(ops.LogSumExp),
	Random: func(r *rand.Rand) Case { return randomReduction(r, logSumExpCase) },
})

func logSumExpCase(s tensor.Shape, axes ...int) Case {
	return rowCase(s, axes, along(ops.LogSumExp, axes...), func(x []float64) (out, magnitude []float64) {
		s := exponentialsOf(x)
		if math.IsInf(s.max, 0) {
			return []float64{s.max}, []float64{0}
		}
		l := math.Log(s.sum)
		return []float64{s.max + l}, []float64{math.Abs(s.max) + math.Abs(l) + s.error}
	})
}
