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
	e := &updater{lowerer: l, Trained: t, joined: map[*group]*program.Value{}, scales: map[kernels.Dtype]*program.Value{}}
	for _, m := range t.Learned {
		e.nodes = append(e.nodes, m.Node)
	}
	e.inputs()
	for _, g := range t.groups {
		if err := e.group(g); err != nil {
			return fmt.Errorf("Train: %w", err)
		}
	}
	return nil
}

// updater emits the instructions of a step.
type updater struct {
	*lowerer
	*Trained
	nodes  []*gorgonia.Node // nodes of the emitted instructions
	common []*program.Value // numbers shared by all groups
	own    map[*group]*program.Value
	sums   []*program.Value // over all learnables, then those of each set's step size
	joined map[*group]*program.Value
	scales map[kernels.Dtype]*program.Value // factors that limit the norm of the gradients
	made   *program.Value                   // by a scaler: whether the step is made
}

// emit adds an instruction with outputs of the given types.
func (e *updater) emit(op program.Op, in []*program.Value, types ...program.Type) []*program.Value {
	def := &program.Instr{Op: op, In: in, Nodes: e.nodes}
	p := e.graph.Program
	p.Instrs = append(p.Instrs, def)
	for _, t := range types {
		p.NewValue(def, "step", t)
	}
	return def.Out
}

// alias adds a view.
func (e *updater) alias(v *program.Value, t program.Type, view program.View) *program.Value {
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{v}, Nodes: e.nodes}
	e.graph.Program.Instrs = append(e.graph.Program.Instrs, def)
	return e.graph.Program.NewAlias(def, "step", t, v, view)
}

// one returns element i of a value as a scalar.
func (e *updater) one(v *program.Value, i int) *program.Value {
	return e.alias(v, program.Type{Numeric: true, Dtype: v.Dtype}, program.View{Offset: int64(i)})
}

// inputs emits the inputs of Numbers, in its order.
func (e *updater) inputs() {
	add := func(d kernels.Dtype, n int) *program.Value {
		return e.emit(program.Input{}, nil, program.Type{Numeric: true, Dtype: d, Shape: tensor.Shape{n}})[0]
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

// join returns the concatenated gradients of a group, including accumulated ones.
func (e *updater) join(g *group) (*program.Value, error) {
	if e.joined[g] != nil {
		return e.joined[g], nil
	}
	gradients := make([]*program.Value, len(g.members))
	for i, m := range g.members {
		gradients[i] = e.derivative(e.Learned[m])
	}
	v := e.emit(program.ConcatInPlace{}, gradients, g.whole(g.dtype))[0]
	if e.training.Adds {
		b := expr.NewBuilder(g.dtype, g.dtype)
		f, err := b.Func(b.Apply(expr.Add, b.Operand(0), b.Operand(1)))
		if err != nil {
			return nil, err
		}
		v = e.emit(program.Map{Func: f, Shape: g.whole(g.dtype).Shape}, []*program.Value{g.states[len(g.states)-1], v}, g.whole(g.dtype))[0]
	}
	e.joined[g] = v
	return v, nil
}

// gradient returns the gradient of a learnable, including accumulated ones.
func (e *updater) gradient(l Learned) (*program.Value, error) {
	d := e.derivative(l)
	if !e.training.Adds {
		return d, nil
	}
	joined, err := e.join(l.group)
	if err != nil {
		return nil, err
	}
	return e.alias(joined, l.Value.Type, l.Value.View), nil
}

// group emits the step of a group: one Map of its concatenated gradients.
func (e *updater) group(g *group) error {
	e.nodes = e.Trained.nodes(g)
	shared, err := e.shared(g)
	if err != nil {
		return err
	}
	joined, err := e.join(g)
	if err != nil {
		return err
	}
	number := 0
	in := make([]*program.Value, len(g.rule.Operands))
	everywhere := program.View{Strides: []int64{0}}
	for i, o := range g.rule.Operands {
		switch {
		case o == solver.Gradient:
			in[i] = joined
		case shared[o] != nil:
			in[i] = e.alias(shared[o], g.whole(g.dtype), everywhere)
		case o == solver.Average:
			in[i] = g.states[g.rule.Average]
		case o <= solver.Moment2:
			in[i] = g.states[o-solver.Parameter]
		default:
			in[i] = e.alias(e.own[g], g.whole(g.dtype), program.View{Offset: int64(number), Strides: []int64{0}})
			number++
		}
	}
	types := slices.Repeat([]program.Type{g.whole(g.dtype)}, len(g.states))
	for k, next := range e.emit(program.Map{Func: g.rule.Func, Shape: types[0].Shape}, in, types...) {
		e.graph.Program.Updates = append(e.graph.Program.Updates, program.Update{State: g.states[k], Next: next})
	}
	return nil
}

// shared emits the numbers that depend on the gradients of several learnables, in the type of a group.
func (e *updater) shared(g *group) (map[solver.Operand]*program.Value, error) {
	d, numbers, shared := g.dtype, e.common, map[solver.Operand]*program.Value{}
	emit := func(o solver.Operand, f expr.Func, err error, in ...*program.Value) error {
		if err == nil {
			shared[o] = e.emit(program.Map{Func: f}, in, program.Type{Numeric: true, Dtype: d})[0]
		}
		return err
	}
	if e.sums == nil {
		if err := e.reduce(); err != nil {
			return nil, err
		}
	}
	sums := e.sums
	if e.training.ClipNorm {
		if shared[solver.Scale] = e.scales[d]; e.scales[d] == nil {
			f, err := solver.NormScale(d)
			in := []*program.Value{numbers[0], sums[0]}
			if e.Scaling != nil {
				f, err = solver.NormScaleOf(d)
				in = append(in, e.Scaling.Scale)
			}
			if err := emit(solver.Scale, f, err, in...); err != nil {
				return nil, err
			}
			e.scales[d] = shared[solver.Scale]
		}
		numbers, sums = numbers[1:], sums[1:]
	}
	if e.Scaling != nil {
		return shared, e.scaled(g, shared)
	}
	if s := e.training.Sets[g.set].Solver; s.Kind == internal.BarzilaiBorwein {
		k := e.steps(g.set) // each has 3 numbers and 2 sums
		f, err := solver.StepSize(s, d)
		return shared, emit(solver.Step, f, err, slices.Concat(numbers[3*k:3*k+3], sums[2*k:2*k+2])...)
	}
	return shared, nil
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

// reduce emits the sums over learnables: the squared norm of all gradients, and for each set of Barzilai and Borwein those for its
// step size.
func (e *updater) reduce() error {
	var parts [][]*program.Value // by sum, then learnable
	collect := func(sums []*program.Value, from int) {
		for k, v := range sums {
			if from+k == len(parts) {
				parts = append(parts, nil)
			}
			parts[from+k] = append(parts[from+k], v)
		}
	}
	for _, m := range e.Learned {
		g, err := e.gradient(m)
		if err != nil {
			return err
		}
		at := 0
		if e.training.ClipNorm || e.training.Scaler != nil {
			f, err := solver.Squares(g.Dtype)
			if err != nil {
				return err
			}
			collect(e.rows(f, g), 0)
			at = 1
		}
		if e.training.Sets[m.group.set].Solver.Kind == internal.BarzilaiBorwein {
			f, err := solver.Differences(g.Dtype)
			if err != nil {
				return err
			}
			before := func(state int) *program.Value { return e.alias(m.States[state], m.Value.Type, m.Value.View) }
			collect(e.rows(f, g, m.Value, before(2), before(1)), at+2*e.steps(m.group.set))
		}
	}
	e.sums = []*program.Value{}
	for _, list := range parts {
		sum, err := e.total(list)
		if err != nil {
			return err
		}
		e.sums = append(e.sums, sum)
	}
	if e.training.Scaler != nil {
		return e.scale()
	}
	return nil
}

// rows emits Rows along all elements of values.
func (e *updater) rows(f expr.Func, in ...*program.Value) []*program.Value {
	shape := in[0].Shape
	if len(shape) == 0 {
		shape = tensor.Shape{1}
	}
	axes := make([]int, len(shape))
	for a := range axes {
		axes[a] = a
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
	return e.emit(program.Rows{Func: f, Shape: shape, Axes: axes, PerRow: perRow}, own, types...)
}

// total emits the sum of numbers, as a tree because a Map has a limited number of operands.
func (e *updater) total(list []*program.Value) (*program.Value, error) {
	const maxTerms = 64
	for len(list) > 1 {
		var sums []*program.Value
		for some := range slices.Chunk(list, maxTerms) {
			f, err := solver.Total(len(some))
			if err != nil {
				return nil, err
			}
			sums = append(sums, e.emit(program.Map{Func: f}, slices.Clone(some), program.Type{Numeric: true, Dtype: kernels.Float64})...)
		}
		list = sums
	}
	return list[0], nil
}
