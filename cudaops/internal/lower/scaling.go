package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Scaling is dynamic loss scaling in a program. The gradient of a loss begins with the scale in place of 1, so all gradients are multiples of
// it, and the factor of the update divides them again. A sum of all their squares that is not finite makes the step one that changes no state but these.
type Scaling struct {
	Scale, Good, Steps, Skipped *program.Value // states: a float32, and counts in float64; see [solver.Scaler]
	// Found and Skips are the indices in Program.Outputs of what a run has found: whether a gradient is not finite, and the next Skipped.
	Found, Skips int
}

// States returns the states.
func (s *Scaling) States() []*program.Value {
	return []*program.Value{s.Scale, s.Good, s.Steps, s.Skipped}
}

// startScaling makes the states.
func (l *lowerer) startScaling() {
	s, e := &Scaling{}, emitter{lowerer: l, name: "scaler"}
	for _, to := range []**program.Value{&s.Scale, &s.Good, &s.Steps, &s.Skipped} {
		t := program.Type{Numeric: true, Dtype: kernels.Float64}
		if to == &s.Scale {
			t.Dtype = kernels.Float32
		}
		*to = e.emit(program.State{}, t)
	}
	l.graph.Trained.Scaling = s
}

// degree says how a value depends on the gradient of the loss: not at all (0), or as a multiple of it.
type degree uint8

const (
	linear degree = iota + 1
	otherwise
)

// findSeeds finds the operands that are the derivative of a loss w.r.t. itself. gorgonia.Grad begins with the constant 1, which is one node
// of the graph with all other constants 1, such as that of 1 - y in the derivative of a sigmoid. Gradients are multiples of the derivative, so it is
// an operand in which an op is linear, and of a sum or difference whose other operands are multiples, too. [lowerer.checkScaled] checks that the gradients
// of learnables are multiples.
func (l *lowerer) findSeeds(sorted []*gorgonia.Node) error {
	if l.graph.Trained == nil || l.graph.Trained.Scaling == nil {
		return nil
	}
	forward, ones := map[*gorgonia.Node]bool{}, map[*gorgonia.Node]bool{} // what losses are computed of; their derivatives
	for _, n := range slices.Backward(sorted) {
		children, err := internal.Children(n)
		if err != nil {
			return err
		}
		if internal.IsCost(n) {
			if ones[n.Deriv()] = true; n.Deriv().Op() == nil {
				return fmt.Errorf("LossScaling: loss %s: got the input %s as its derivative, want gradients of gorgonia.Grad", internal.Name(n), internal.Name(n.Deriv()))
			}
			forward[n] = true
		}
		for _, c := range children {
			forward[c] = forward[c] || forward[n]
		}
	}
	l.ones, l.seeds, l.degree = ones, map[*gorgonia.Node][]int{}, map[*gorgonia.Node]degree{}
	for _, n := range sorted {
		if n.Op() != nil && !forward[n] && !ones[n] && !internal.IsStatement(n.Op()) {
			l.findSeed(n)
		}
	}
	return nil
}

// findSeed finds the seeds among the operands of a node, and the node's degree.
func (l *lowerer) findSeed(n *gorgonia.Node) {
	children, _ := internal.Children(n)
	unary, isUnary := internal.Unary(n.Op())
	name, _, isBinary := internal.Binary(n.Op())
	sum, product := name == "add" || name == "sub", name == "mul" || name == "div" || isProduct(n.Op())
	var multiples, seeds []int
	known := true
	for i, c := range children {
		linearIn := !isUnary && !isBinary || unary == "neg" || sum || name == "mul" || name == "div" && i == 0
		switch {
		case l.degree[c] != 0:
			multiples = append(multiples, i)
			known = known && linearIn && l.degree[c] == linear
		case l.ones[c] && linearIn:
			seeds = append(seeds, i)
		}
	}
	switch all := len(multiples) + len(seeds); {
	case sum && all < len(children) || !sum && len(multiples) > 0:
		seeds = nil
	case product && len(seeds) > 1:
		seeds = seeds[:1]
	}
	switch all := len(multiples) + len(seeds); {
	case all == 0:
		return
	case !known || sum && all < len(children) || product && all > 1 || !sum && len(seeds) > 1:
		l.degree[n] = otherwise
	default:
		l.degree[n] = linear
	}
	l.seeds[n] = seeds
}

// isProduct reports whether an op is a product of matrices or vectors.
func isProduct(op gorgonia.Op) bool {
	_, _, _, own := internal.Product(op)
	planner, ok := op.(kernels.Planner)
	if ok {
		_, ok = program.ProductOf(program.Kernel{Planner: planner})
	}
	return own || ok
}

// gradientOf returns the gradient w.r.t. a learnable, which may be the derivative of a loss w.r.t. itself.
func (l *lowerer) gradientOf(n *gorgonia.Node) *program.Value {
	if l.ones[n.Deriv()] {
		return l.scaleAs(l.valueOf[n.Deriv()].Dtype)
	}
	return l.valueOf[n.Deriv()]
}

// checkScaled returns an error unless the gradient w.r.t. a learnable is a multiple of the scale.
func (l *lowerer) checkScaled(n *gorgonia.Node) error {
	if d := n.Deriv(); l.degree == nil || l.ones[d] || l.degree[d] == linear {
		return nil
	}
	return fmt.Errorf("LossScaling: learnable %s: got a gradient that is no multiple of the derivative of the loss, want one that gorgonia.Grad has made of a loss", internal.Name(n))
}

// scaleAs returns the scale in the type of a loss.
func (l *lowerer) scaleAs(d kernels.Dtype) *program.Value {
	scale := l.graph.Trained.Scaling.Scale
	if d == scale.Dtype {
		return scale
	}
	if l.inFloat64 == nil {
		t := program.Type{Numeric: true, Dtype: d}
		l.inFloat64 = l.call(l.graph.Trained.Learned[0].Node, t).converted(scale, d)
	}
	return l.inFloat64
}

// unscaleOutputs makes outputs that are multiples of the scale what they are without it.
func (l *lowerer) unscaleOutputs() {
	outputs, done := l.graph.Program.Outputs, map[int]bool{}
	for _, o := range l.graph.Outputs {
		v := outputs[o.Index]
		if l.degree[o.Node] != linear || done[o.Index] || !v.Numeric || !v.Dtype.IsFloat() {
			continue
		}
		c := l.call(o.Node, v.Type)
		scale := c.alias(l.scaleAs(v.Dtype), v.Type, program.View{Strides: make([]int64, len(v.Shape))})
		outputs[o.Index], done[o.Index] = c.apply(expr.Div, v, scale), true
	}
}

// scale emits the scaler.
func (e *updater) scale() {
	s, f64 := e.Scaling, program.Type{Numeric: true, Dtype: kernels.Float64}
	steps := e.common[len(e.common)-2*len(e.training.Sets)-1]
	out := e.instr(program.Map{Func: e.checked(e.training.Scaler.Func())}, append([]*program.Value{e.sums[0], steps}, s.States()...), s.Scale.Type, f64, f64, f64, f64, f64)
	for i, state := range s.States() {
		e.graph.Program.Updates = append(e.graph.Program.Updates, program.Update{State: state, Next: out[i]})
	}
	e.made, s.Skips, s.Found = out[4], e.output(out[3]), e.output(out[5])
}

// scaled emits the numbers of a group that depend on the scaler.
func (e *updater) scaled(g *group, shared map[solver.Operand]*program.Value) {
	f, list, kept, err := g.rule.StepFunc()
	betas := e.common[len(e.common)-2*(len(e.training.Sets)-g.set):]
	all, in := []*program.Value{e.made, e.Scaling.Steps, betas[0], betas[1], e.Scaling.Scale}, []*program.Value{}
	for _, k := range kept {
		in = append(in, all[k])
	}
	for i, v := range e.instr(program.Map{Func: e.checked(f, err)}, in, slices.Repeat([]program.Type{{Numeric: true, Dtype: g.dtype}}, len(list))...) {
		shared[list[i]] = v
	}
}
