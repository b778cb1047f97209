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
	"gorgonia.org/tensor"
)

// update emits the solver's step.
func (l *lowerer) update() error {
	t := l.graph.Trained
	for _, m := range t.Learned {
		if m.Value == nil {
			return fmt.Errorf("Train: learnable %s is not in the graph", internal.Name(m.Node))
		}
		d := l.gradientOf(m.Node)
		if d == nil {
			return fmt.Errorf("Train: learnable %s: got a graph without the gradient", internal.Name(m.Node))
		}
		if err := l.checkScaled(m.Node); err != nil {
			return err
		}
		if !d.Numeric || d.Dtype != m.Value.Dtype || d.Elements() != m.Value.Elements() {
			return fmt.Errorf("Train: learnable %s: got a gradient of %v and shape %v, want %v and shape %v",
				internal.Name(m.Node), d.Dtype, d.Shape, m.Value.Dtype, m.Value.Shape)
		}
	}
	l.unscaleOutputs()
	l.reduceGradients()
	e := &updater{emitter: emitter{lowerer: l, name: "step"}, Trained: t, joined: map[*group]*program.Value{}, parts: map[*group]*program.Value{}, scales: map[kernels.Dtype]*program.Value{}}
	e.emitter.nodes = program.Collect(t.Learned, func(m Learned) *gorgonia.Node { return m.Node })
	e.inputs()
	for _, g := range t.groups {
		e.group(g)
	}
	if l.err != nil {
		return fmt.Errorf("Train: %w", l.err)
	}
	return nil
}

// updater emits the instructions of a step.
type updater struct {
	emitter
	*Trained
	common []*program.Value // numbers shared by all groups
	own    map[*group]*program.Value
	sums   []*program.Value // over all learnables, then those of each set's step size
	joined map[*group]*program.Value
	parts  map[*group]*program.Value        // of the parameters
	scales map[kernels.Dtype]*program.Value // factors that limit the norm of the gradients
	made   *program.Value                   // by a scaler: whether the step is made
}

// one returns element i of a value as a scalar.
func (e *updater) one(v *program.Value, i int) *program.Value {
	return e.alias(v, program.Type{Numeric: true, Dtype: v.Dtype}, program.View{Offset: int64(i)})
}

// inputs emits the inputs of Numbers, in its order.
func (e *updater) inputs() {
	add := func(d kernels.Dtype, n int) *program.Value {
		return e.emit(program.Input{}, program.Type{Numeric: true, Dtype: d, Shape: tensor.Shape{n}})
	}
	if n := len(e.Trained.common(e.Solvers(), 1, 0)); n > 0 {
		e.numbers = true
		v := add(kernels.Float64, n)
		for i := range n {
			e.common = append(e.common, e.one(v, i))
		}
	}
	e.own = map[*group]*program.Value{}
	for _, g := range e.groups {
		if n := g.rule.Numbers(); n > 0 {
			e.own[g] = add(g.dtype, n)
		}
	}
}

// received returns the concatenated gradients of a group, or a rank's part of them, in the type in which they travel between ranks.
func (e *updater) received(g *group) *program.Value {
	if g.received == nil {
		list, t := program.Collect(g.members, func(m int) *program.Value { return e.derivative(e.Learned[m]) }), g.whole()
		t.Dtype = list[0].Dtype
		g.received = e.emit(program.ConcatInPlace{}, t, list...)
	}
	return g.received
}

// join returns the concatenated gradients of a group, or a rank's part of them, including accumulated ones.
func (e *updater) join(g *group) *program.Value {
	if e.joined[g] != nil {
		return e.joined[g]
	}
	v := e.received(g)
	if v.Dtype != g.dtype {
		v = e.converted(v, g.dtype)
	}
	if e.training.Adds {
		v = e.apply(expr.Add, g.states[len(g.states)-1], v)
	}
	e.joined[g] = v
	return e.joined[g]
}

// gradient returns the gradient of a learnable, including accumulated ones.
func (e *updater) gradient(l Learned) *program.Value {
	if v := e.derivative(l); !e.training.Adds && v.Dtype == l.group.dtype {
		return v
	}
	return e.alias(e.join(l.group), l.Value.Type, l.Value.View)
}

// parameters returns the parameters of a group before the step, or a rank's part of them.
func (e *updater) parameters(g *group) *program.Value {
	if !e.training.Sharded {
		return g.states[0]
	}
	if e.parts[g] == nil {
		e.parts[g] = e.onPart(kernels.OwnPart, g.states[0], g.part())
	}
	return e.parts[g]
}

// group emits the step of a group: one Map of its concatenated gradients. If the training is sharded, the ranks then exchange the parameters.
func (e *updater) group(g *group) {
	e.emitter.nodes = e.Trained.nodes(g)
	shared, f := e.shared(g), g.rule.Func
	joined := e.received(g)
	if e.training.Adds {
		joined = e.join(g)
	}
	number := 0
	in := make([]*program.Value, len(g.rule.Operands))
	everywhere := program.View{Strides: []int64{0}}
	for i, o := range g.rule.Operands {
		switch {
		case o == solver.Gradient:
			in[i] = joined
		case shared[o] != nil:
			in[i] = e.alias(shared[o], g.part(), everywhere)
		case o == solver.Average:
			in[i] = g.states[g.rule.Average]
		case o == solver.Parameter:
			in[i] = e.parameters(g)
		case o <= solver.Moment2:
			in[i] = g.states[o-solver.Parameter]
		default:
			in[i] = e.alias(e.own[g], g.part(), program.View{Offset: int64(number), Strides: []int64{0}})
			number++
		}
	}
	types := slices.Repeat([]program.Type{g.part()}, len(g.states))
	if joined.Dtype != g.dtype {
		f = e.checked(f.Stored(program.Collect(in, func(v *program.Value) kernels.Dtype { return v.Dtype }), f.Outputs()))
	}
	for k, next := range e.instr(program.Map{Func: f, Shape: types[0].Shape}, in, types...) {
		if k == 0 && e.training.Sharded {
			next = e.onPart(kernels.AllGather, next, g.whole())
		}
		e.graph.Program.Updates = append(e.graph.Program.Updates, program.Update{State: g.states[k], Next: next})
	}
}

// shared emits the numbers that depend on the gradients of several learnables, in the type of a group.
func (e *updater) shared(g *group) map[solver.Operand]*program.Value {
	d, shared := g.dtype, map[solver.Operand]*program.Value{}
	number := func(f expr.Func, in ...*program.Value) *program.Value {
		return e.emit(program.Map{Func: f}, program.Type{Numeric: true, Dtype: d}, in...)
	}
	if e.sums == nil {
		e.reduce()
	}
	numbers, sums := e.common, e.sums
	if e.training.ClipNorm {
		if e.scales[d] == nil {
			f, in := solver.NormScale, []*program.Value{numbers[0], sums[0]}
			if e.Scaling != nil {
				f, in = solver.NormScaleOf, append(in, e.Scaling.Scale)
			}
			e.scales[d] = number(e.checked(f(d)), in...)
		}
		shared[solver.Scale] = e.scales[d]
		numbers, sums = numbers[1:], sums[1:]
	}
	if e.Scaling != nil {
		e.scaled(g, shared)
		return shared
	}
	if s := e.training.Sets[g.set].Solver; s.Kind == internal.BarzilaiBorwein {
		k := e.steps(g.set) // each has 3 numbers and 2 sums
		shared[solver.Step] = number(e.checked(solver.StepSize(s, d)), slices.Concat(numbers[3*k:3*k+3], sums[2*k:2*k+2])...)
	}
	return shared
}

// steps returns the number of sets before one whose step size is computed from their gradients.
func (e *updater) steps(before int) (n int) {
	for _, s := range e.training.Sets[:before] {
		if s.Solver.Kind == internal.BarzilaiBorwein {
			n++
		}
	}
	return n
}

// summand is a learnable, or a rank's part of a group, that sums go over.
type summand struct {
	set                 int
	gradient, parameter *program.Value
	state               func(k int) *program.Value
}

// summands yields what sums go over.
func (e *updater) summands(yield func(summand) bool) {
	if e.training.Sharded {
		for _, g := range e.groups {
			if !yield(summand{g.set, e.join(g), e.parameters(g), func(k int) *program.Value { return g.states[k] }}) {
				return
			}
		}
		return
	}
	for _, m := range e.Learned {
		if !yield(summand{m.group.set, e.gradient(m), m.Value, func(k int) *program.Value { return e.alias(m.States[k], m.Value.Type, m.Value.View) }}) {
			return
		}
	}
}

// reduce emits the sums over learnables: the squared norm of all gradients, and for each set of Barzilai and Borwein those for its
// step size. If the training is sharded, each rank sums its parts, and the ranks' sums are added.
func (e *updater) reduce() {
	var parts [][]*program.Value // by sum, then learnable
	collect := func(sums []*program.Value, from int) {
		for k, v := range sums {
			if from+k == len(parts) {
				parts = append(parts, nil)
			}
			parts[from+k] = append(parts[from+k], v)
		}
	}
	for s := range e.summands {
		at := 0
		if e.training.ClipNorm || e.training.Scaler != nil {
			collect(e.rows(e.checked(solver.Squares(s.gradient.Dtype)), s.gradient), 0)
			at = 1
		}
		if e.training.Sets[s.set].Solver.Kind == internal.BarzilaiBorwein {
			collect(e.rows(e.checked(solver.Differences(s.gradient.Dtype)), s.gradient, s.parameter, s.state(2), s.state(1)), at+2*e.steps(s.set))
		}
	}
	e.sums = []*program.Value{}
	for _, list := range parts {
		e.sums = append(e.sums, e.total(list))
	}
	if e.training.Sharded && len(e.sums) > 0 {
		all := kernels.Collective{Kind: kernels.AllReduce, Ranks: e.ranks}
		e.sums = e.instr(program.Collective{Collective: all}, e.sums, slices.Repeat([]program.Type{e.sums[0].Type}, len(e.sums))...)
	}
	if e.training.Scaler != nil {
		e.scale()
	}
}

// rows emits a Map with reductions along all axes of values.
func (e *updater) rows(f expr.Func, in ...*program.Value) []*program.Value {
	shape := in[0].Shape
	if len(shape) == 0 {
		shape = tensor.Shape{1}
	}
	own := make([]*program.Value, len(in))
	for i, v := range in {
		if own[i] = v; !slices.Equal(v.Shape, shape) { // a learnable's state, or a number
			view := program.Contiguous(shape)
			view.Offset = v.View.Offset
			own[i] = e.alias(v, program.Type{Numeric: true, Dtype: v.Dtype, Shape: shape}, view)
		}
	}
	perRow := slices.Repeat([]bool{true}, len(f.Outputs()))
	types := slices.Repeat([]program.Type{{Numeric: true, Dtype: kernels.Float64}}, len(perRow))
	return e.instr(program.Map{Func: f, Shape: shape, Axes: upTo(len(shape)), PerRow: perRow}, own, types...)
}

// total emits the sum of numbers, as a tree because a Map has a limited number of operands.
func (e *updater) total(list []*program.Value) *program.Value {
	const maxTerms = 64
	for len(list) > 1 {
		var sums []*program.Value
		for some := range slices.Chunk(list, maxTerms) {
			sums = append(sums, e.emit(program.Map{Func: e.checked(solver.Total(len(some)))}, program.Type{Numeric: true, Dtype: kernels.Float64}, slices.Clone(some)...))
		}
		list = sums
	}
	return list[0]
}
