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
	less := func(x float64) float64 { return round(1 - round(x)) }
	inverse := func(x float64) float64 { return round(1 / round(x)) }
	t := float64(step)
	switch o {
	case negRate:
		return round(-s.Rate)
	case l1:
		return round(s.L1)
	case l2:
		return round(s.L2)
	case perBatch:
		return inverse(s.Batch)
	case clip:
		return round(s.Clip)
	case negClip:
		return round(-s.Clip)
	case friction:
		return round(s.Momentum)
	case rho:
		return round(s.Rho)
	case lessRho:
		return round(1 - s.Rho)
	case eps:
		return round(s.Eps)
	case beta1:
		return round(s.Beta1)
	case beta2:
		return round(s.Beta2)
	case lessBeta1:
		return less(s.Beta1)
	case lessBeta2:
		return less(s.Beta2)
	case correction1:
		return inverse(1 - math.Pow(s.Beta1, t))
	case correction2:
		return inverse(1 - math.Pow(s.Beta2, t))
	case decay:
		return round(1 - s.Rate*s.WeightDecay)
	case makesStep:
		return min(t, 1)
	case averageWeight:
		if step == 1 {
			return 1
		}
		return round(1 - ema)
	}
	return math.NaN()
}
