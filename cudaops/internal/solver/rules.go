package solver

import (
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// rules are the solvers' functions. They use the order of operations of Gorgonia's Step on tensors, so that the bits are the
// same if both round alike.
var rules = map[internal.SolverKind]struct {
	moments int
	write   func(w *writer) []expr.Value
}{
	internal.Vanilla:         {0, vanilla},
	internal.Momentum:        {1, momentum},
	internal.SGD:             {1, sgd},
	internal.RMSProp:         {1, rmsProp},
	internal.AdaGrad:         {1, adaGrad},
	internal.Adam:            {2, adam},
	internal.AdamW:           {2, adam},
	internal.BarzilaiBorwein: {2, barzilaiBorwein},
}

func vanilla(w *writer) []expr.Value {
	p := w.operand(Parameter)
	return []expr.Value{w.add(p, w.by(w.prepared(p), negRate))}
}

// momentum regularizes the velocity instead of the parameter, as Gorgonia's solver does.
func momentum(w *writer) []expr.Value {
	v := w.operand(Moment1)
	g := w.by(w.prepared(v), negRate)
	v = w.add(w.by(v, friction), g)
	return []expr.Value{w.add(w.operand(Parameter), v), v}
}

// sgd is PyTorch's SGD with momentum: the velocity is a sum of gradients, without the learning rate, and the regularization is of the parameter.
func sgd(w *writer) []expr.Value {
	p := w.operand(Parameter)
	v := w.add(w.by(w.operand(Moment1), friction), w.prepared(p))
	return []expr.Value{w.add(p, w.by(v, negRate)), v}
}

// rmsProp averages the squares of the unclipped gradients, and subtracts the gradient of the regularization without the
// learning rate.
func rmsProp(w *writer) []expr.Value {
	g := w.gradient()
	squares := w.add(w.by(w.operand(Moment1), rho), w.by(w.mul(g, g), lessRho))
	return []expr.Value{w.scaledBy(squares, g), squares}
}

func adaGrad(w *writer) []expr.Value {
	g := w.gradient()
	squares := w.add(w.operand(Moment1), w.mul(g, g))
	return []expr.Value{w.scaledBy(squares, g), squares}
}

// scaledBy returns the parameter after a step with the gradient divided by the root of its averaged squares.
func (w *writer) scaledBy(squares, g expr.Value) expr.Value {
	p := w.operand(Parameter)
	step := w.Apply(expr.InverseSqrt, w.add(squares, w.operand(eps)))
	step = w.mul(step, w.by(w.clipped(g), negRate))
	if w.solver.UseL2 {
		step = w.sub(step, w.by(p, l2))
	}
	return w.add(p, step)
}

// adam implements Adam and AdamW as published (Loshchilov and Hutter, 2017), with weight decay separate from the step. The
// AdamW of Gorgonia v0.9.18 does not change the parameters.
func adam(w *writer) []expr.Value {
	p := w.operand(Parameter)
	g := w.prepared(p)
	m := w.add(w.by(g, lessBeta1), w.by(w.operand(Moment1), beta1))
	v := w.add(w.by(w.mul(g, g), lessBeta2), w.by(w.operand(Moment2), beta2))
	root := w.add(w.Apply(expr.Sqrt, w.by(v, correction2)), w.operand(eps))
	step := w.div(w.by(w.by(m, correction1), negRate), root)
	if w.solver.Kind == internal.AdamW {
		p = w.by(p, decay)
	}
	return []expr.Value{w.add(p, step), m, v}
}

// barzilaiBorwein keeps the parameter and the gradient before the previous step; the step size is computed from the
// differences: see [Differences] and [StepSize].
func barzilaiBorwein(w *writer) []expr.Value {
	p, g := w.operand(Parameter), w.gradient()
	return []expr.Value{w.sub(p, w.by(g, Step)), p, g}
}
