package solver

import (
	"math"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// The numbers depend on a solver's options and the number of the step. They are operands, so they can change between steps.
const (
	negRate = firstNumber + iota
	l1
	l2
	perBatch
	clip
	negClip
	friction // of momentum
	rho
	lessRho
	eps
	beta1
	beta2
	lessBeta1
	lessBeta2
	correction1
	correction2
	decay         // of weights, of AdamW
	makesStep     // 1 if a step is made, 0 if gradients are only accumulated
	averageWeight // of the parameter in its average; 1 in the first step
	numbersEnd
)

// ofStep reports whether a number depends on the number of the step.
func (o Operand) ofStep() bool { return o == correction1 || o == correction2 || o == averageWeight }

// value returns a number, rounded as Gorgonia rounds it for elements of d. ema is the decay of the average.
func (o Operand) value(s internal.Solver, step int, d expr.Dtype, ema float64) float64 {
	round := func(x float64) float64 {
		if d == expr.Float32 {
			return float64(float32(x))
		}
		return x
	}
	less := func(x float64) float64 {
		if s.Kind == internal.AdamW { // Gorgonia's AdamW makes no steps, whose rounding would count: 1 - round(0.999) is wrong by 1e-5
			return round(1 - x)
		}
		return round(1 - round(x))
	}
	inverse := func(x float64) float64 { return round(1 / round(x)) }
	t := float64(step)
	average := round(1 - ema)
	if step == 1 {
		average = 1
	}
	return [...]float64{
		negRate:       round(-s.Rate),
		l1:            round(s.L1),
		l2:            round(s.L2),
		perBatch:      inverse(s.Batch),
		clip:          round(s.Clip),
		negClip:       round(-s.Clip),
		friction:      round(s.Momentum),
		rho:           round(s.Rho),
		lessRho:       round(1 - s.Rho),
		eps:           round(s.Eps),
		beta1:         round(s.Beta1),
		beta2:         round(s.Beta2),
		lessBeta1:     less(s.Beta1),
		lessBeta2:     less(s.Beta2),
		correction1:   inverse(1 - math.Pow(s.Beta1, t)),
		correction2:   inverse(1 - math.Pow(s.Beta2, t)),
		decay:         round(1 - s.Rate*s.WeightDecay),
		makesStep:     min(t, 1),
		averageWeight: average,
	}[o]
}
