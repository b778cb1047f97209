// Package solver writes the steps of Gorgonia's solvers as functions of elements: what
// [gorgonia.Solver.Step] does to a parameter by a dozen operations on tensors is one
// function of its elements, in the same operations and the same order.
package solver

import (
	"fmt"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Rule is a step of a solver for elements of one type.
type Rule struct {
	// Func computes the parameter and the moments after a step, in this order, from
	// [Rule.Operands].
	Func expr.Func
	// Moments is how many elements the solver keeps for each of a parameter's, all 0
	// before the first step.
	Moments int
	// Operands are those of Func: the gradient, the parameter, the moments, and numbers.
	Operands []Operand

	dtype expr.Dtype
}

// Operand is what a function of a [Rule] reads.
type Operand int

// The operands. Numbers follow the moments.
const (
	Gradient  Operand = iota
	Parameter         //
	Moment1           // moments
	Moment2           //
	Scale             // what gradients are multiplied by, to keep to the greatest norm
	Step              // the step size of Barzilai and Borwein, computed from the gradients
	firstNumber
)

// Numbers returns how many numbers the rule takes: the last of its operands.
func (r Rule) Numbers() int {
	n := 0
	for _, o := range r.Operands {
		if o >= firstNumber {
			n++
		}
	}
	return n
}

// AppendNumbers appends the numbers that the rule takes in a step, counted from 1, by the
// options that a solver has at present.
func (r Rule) AppendNumbers(to []float64, s internal.Solver, step int) []float64 {
	for _, o := range r.Operands {
		if o >= firstNumber {
			to = append(to, o.value(s, step, r.dtype))
		}
	}
	return to
}

// NewRule returns the rule of a solver for elements of d, which is Float32 or Float64.
// With scaled, gradients are multiplied by [Scale] first.
func NewRule(s internal.Solver, d expr.Dtype, scaled bool) (Rule, error) {
	kind, ok := rules[s.Kind]
	if !ok {
		return Rule{}, fmt.Errorf("no rule for the solver %s", s.Kind)
	}
	types := make([]expr.Dtype, numbersEnd)
	for i := range types {
		types[i] = d
	}
	w := &writer{Builder: expr.NewBuilder(types...), solver: s, scaled: scaled}
	f, err := w.Func(kind.write(w)...)
	if err != nil {
		return Rule{}, err
	}
	r := Rule{Moments: kind.moments, dtype: d}
	var kept []int
	r.Func, kept = f.Trim()
	for _, k := range kept {
		r.Operands = append(r.Operands, Operand(k))
	}
	return r, nil
}

// writer writes a rule.
type writer struct {
	*expr.Builder
	solver internal.Solver
	scaled bool
}

func (w *writer) of(o Operand) expr.Value               { return w.Operand(int(o)) }
func (w *writer) add(x, y expr.Value) expr.Value        { return w.Apply(expr.Add, x, y) }
func (w *writer) sub(x, y expr.Value) expr.Value        { return w.Apply(expr.Sub, x, y) }
func (w *writer) mul(x, y expr.Value) expr.Value        { return w.Apply(expr.Mul, x, y) }
func (w *writer) div(x, y expr.Value) expr.Value        { return w.Apply(expr.Div, x, y) }
func (w *writer) by(x expr.Value, o Operand) expr.Value { return w.mul(x, w.of(o)) }

// gradient returns the gradient, scaled if that is asked for.
func (w *writer) gradient() expr.Value {
	if w.scaled {
		return w.by(w.of(Gradient), Scale)
	}
	return w.of(Gradient)
}

// prepared returns the gradient as most solvers begin with: with the derivatives of the
// regularizations of x, divided by the batch size, and cut off.
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
	return w.Apply(expr.Min, w.Apply(expr.Max, x, w.of(negClip)), w.of(clip))
}

// Same reports whether the rules of two solvers are the same function: they differ in
// numbers alone.
func Same(a, b internal.Solver) bool {
	return shape(a) == shape(b)
}

// shape is what of a solver decides about the function.
func shape(s internal.Solver) internal.Solver {
	of := internal.Solver{Kind: s.Kind, UseL1: s.UseL1, UseL2: s.UseL2, UseClip: s.UseClip}
	if s.Batch > 1 {
		of.Batch = 1
	}
	if s.Clip > 0 {
		of.Clip = 1
	}
	return of
}
