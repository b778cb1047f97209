// Package solver expresses the steps of Gorgonia's solvers as functions of elements: the dozen tensor operations of
// [gorgonia.Solver.Step] become one function of a parameter's elements, with the same operations in the same order.
package solver

import (
	"fmt"
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Rule is a step of a solver for elements of one type.
type Rule struct {
	// Func computes the parameter and the moments after a step, in this order, from
	// [Rule.Operands].
	Func expr.Func
	// Moments is the number of solver state elements for each element of a parameter, all 0 before the first step: the solver's
	// own, then the average of [Options.EMA], then the sum of gradients of [Options.Adds].
	Moments int
	// Average is the index of the average among the parameter, which is 0, and the moments; 0 without an average.
	Average int
	// Operands lists the operands of Func: the gradient, the parameter, the moments, and numbers.
	Operands []Operand

	dtype   expr.Dtype
	ema     float64
	counted bool
}

// Options are the parts of a [Rule] that the solver does not have.
type Options struct {
	Scaled bool    // multiply gradients by [Scale] first
	Adds   bool    // accumulate gradients and make a step with their sum; without a step only the sum changes
	EMA    float64 // decay of an exponential moving average of the parameter, made after the step; 0 for none
	// Counted multiplies gradients by [Unscale], and makes a step only where [Made] is not 0. These, and what depends on the number of the step, are
	// operands that [Rule.StepFunc] computes.
	Counted bool
}

// Operand is an operand of the function of a [Rule].
type Operand int

// The operands. Numbers follow the moments.
const (
	Gradient  Operand = iota
	Parameter         //
	Moment1           // moments
	Moment2           //
	Average           // of the parameter
	Scale             // the factor that limits the norm of the gradients
	Step              // the step size of Barzilai and Borwein, computed from the gradients
	Made              // whether the step is made
	Unscale           // the factor of scaled gradients
	firstNumber
)

// fromHost reports whether an operand is a number of [Rule.AppendNumbers].
func (r Rule) fromHost(o Operand) bool { return o >= firstNumber && !(r.counted && o.ofStep()) }

// Numbers returns how many numbers are among the operands, at the end.
func (r Rule) Numbers() int {
	n := 0
	for _, o := range r.Operands {
		if r.fromHost(o) {
			n++
		}
	}
	return n
}

// AppendNumbers appends the numbers for a step, counted from 1, with the solver's current options. In step 0 gradients are only
// accumulated.
func (r Rule) AppendNumbers(to []float64, s internal.Solver, step int) []float64 {
	for _, o := range r.Operands {
		if r.fromHost(o) {
			to = append(to, o.value(s, step, r.dtype, r.ema))
		}
	}
	return to
}

// NewRule returns the rule of a solver for elements of type d, Float32 or Float64.
func NewRule(s internal.Solver, d expr.Dtype, o Options) (Rule, error) {
	kind, ok := rules[s.Kind]
	if !ok {
		return Rule{}, fmt.Errorf("no rule for the solver %s", s.Kind)
	}
	w := &writer{Builder: expr.NewBuilder(slices.Repeat([]expr.Dtype{d}, int(numbersEnd))...), solver: s, scaled: o.Scaled, counted: o.Counted}
	r, next := Rule{Moments: kind.moments, dtype: d, ema: o.EMA, counted: o.Counted}, kind.write(w)
	states := []Operand{Parameter, Moment1, Moment2}[:len(next)]
	if o.EMA > 0 {
		r.Moments++
		r.Average = r.Moments
		average := w.operand(Average)
		next = append(next, w.add(average, w.by(w.sub(next[0], average), averageWeight)))
		states = append(states, Average)
	}
	zero := w.Constant(d, 0)
	steps := w.Apply(expr.Ne, w.operand(makesStep), zero)
	made := steps
	if o.Counted {
		made = w.Apply(expr.Ne, w.operand(Made), zero)
	}
	if o.Adds || o.Counted {
		for k, v := range next {
			next[k] = w.Apply(expr.Select, made, v, w.operand(states[k]))
		}
	}
	if o.Adds {
		r.Moments++
		next = append(next, w.Apply(expr.Select, steps, zero, w.operand(Gradient)))
	}
	f, err := w.Func(next...)
	if err != nil {
		return Rule{}, err
	}
	var kept []int
	r.Func, kept = f.Trim()
	for _, k := range kept {
		r.Operands = append(r.Operands, Operand(k))
	}
	return r, nil
}

// writer builds the function of a rule.
type writer struct {
	*expr.Builder
	solver          internal.Solver
	scaled, counted bool
}

func (w *writer) operand(o Operand) expr.Value          { return w.Operand(int(o)) }
func (w *writer) add(x, y expr.Value) expr.Value        { return w.Apply(expr.Add, x, y) }
func (w *writer) sub(x, y expr.Value) expr.Value        { return w.Apply(expr.Sub, x, y) }
func (w *writer) mul(x, y expr.Value) expr.Value        { return w.Apply(expr.Mul, x, y) }
func (w *writer) div(x, y expr.Value) expr.Value        { return w.Apply(expr.Div, x, y) }
func (w *writer) by(x expr.Value, o Operand) expr.Value { return w.mul(x, w.operand(o)) }

// gradient returns the gradient, unscaled and scaled if the rule says so.
func (w *writer) gradient() expr.Value {
	g := w.operand(Gradient)
	if w.counted {
		g = w.by(g, Unscale)
	}
	if w.scaled {
		g = w.by(g, Scale)
	}
	return g
}

// prepared returns the gradient as most solvers use it: plus the gradients of the regularization of x, divided by the batch
// size, and clipped.
func (w *writer) prepared(x expr.Value) expr.Value {
	g := w.gradient()
	if w.solver.UseL1 {
		g = w.add(g, w.by(w.Apply(expr.Sign, x), l1))
	}
	if w.solver.UseL2 {
		g = w.add(g, w.by(x, l2))
	}
	if w.solver.Batch > 1 {
		g = w.by(g, perBatch)
	}
	if w.solver.Clip > 0 {
		g = w.clipped(g)
	}
	return g
}

// clipped returns x between -clip and clip if the solver clips.
func (w *writer) clipped(x expr.Value) expr.Value {
	if !w.solver.UseClip {
		return x
	}
	return w.Apply(expr.Min, w.Apply(expr.Max, x, w.operand(negClip)), w.operand(clip))
}

// Same reports whether the rules of two solvers have the same function and differ only in numbers.
func Same(a, b internal.Solver) bool {
	return shape(a) == shape(b)
}

// shape returns a solver with only the options that change the function.
func shape(s internal.Solver) internal.Solver {
	kept := internal.Solver{Kind: s.Kind, UseL1: s.UseL1, UseL2: s.UseL2, UseClip: s.UseClip}
	if s.Batch > 1 {
		kept.Batch = 1
	}
	if s.Clip > 0 {
		kept.Clip = 1
	}
	return kept
}
