package lower

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Training asks for the steps of a solver as a part of the program.
type Training struct {
	Learnables []*gorgonia.Node
	Solver     internal.Solver
	ClipNorm   bool // gradients of all learnables together keep to a greatest norm
	Adds       bool // gradients of several runs are added up for a step
}

// Trained is a graph's training as its program has it. Learnables of one element type lie
// side by side, and so do their moments, so that one launch makes a step of all of them.
//
// The numbers that a step takes, such as the learning rate, are inputs of the program
// behind those of the graph.
type Trained struct {
	Learned []Learned // in the order of Training.Learnables

	training Training
	groups   []*group
	numbers  bool // Numbers begins with those of all groups
}

// Learned is a learnable and its part of the states.
type Learned struct {
	Node   *gorgonia.Node
	Value  *program.Value   // a view of the first of States
	States []*program.Value // of the parameters, then of each moment, then of added gradients: it lies in each as Value does in the first

	offset int64 // in each state, elements
}

// Part returns a learnable's part of state k: its value is that of state 0, its moments
// those of the others.
func (l Learned) Part(k int) *program.Value {
	v := *l.Value
	v.Base = l.States[k]
	return &v
}

// group is the learnables of one element type.
type group struct {
	dtype   kernels.Dtype
	rule    solver.Rule
	members []int // of Learned
	states  []*program.Value
	total   int64 // elements side by side
}

// Solver returns the solver, as it was read when the graph was lowered.
func (t *Trained) Solver() internal.Solver { return t.training.Solver }

// Numbers returns the program's last inputs in a step, counted from 1, or 0 in a run that makes none.
func (t *Trained) Numbers(s internal.Solver, step int, greatestNorm float64) []gorgonia.Value {
	var list []gorgonia.Value
	add := func(d kernels.Dtype, numbers []float64) {
		if len(numbers) == 0 {
			return
		}
		v, m := values.New(d, tensor.Shape{len(numbers)})
		for i, x := range numbers {
			if d == kernels.Float32 {
				kernels.Elements[float32](m)[i] = float32(x)
			} else {
				kernels.Elements[float64](m)[i] = x
			}
		}
		list = append(list, v)
	}
	if t.numbers {
		add(kernels.Float64, t.common(s, step, greatestNorm))
	}
	for _, g := range t.groups {
		add(g.dtype, g.rule.AppendNumbers(nil, s, step))
	}
	return list
}

// common returns the numbers that all groups share.
func (t *Trained) common(s internal.Solver, step int, greatestNorm float64) []float64 {
	var list []float64
	if t.training.ClipNorm {
		list = append(list, greatestNorm)
	}
	if s.Kind == internal.BarzilaiBorwein {
		list = append(list, solver.StepNumbers(s, step)...)
	}
	return list
}

// startTraining makes the states of the learnables, which are views of them then.
func (l *lowerer) startTraining(t Training) error {
	trained := &Trained{training: t}
	l.graph.Trained = trained
	for _, n := range t.Learnables {
		if err := l.learn(n); err != nil {
			return fmt.Errorf("Train: %w", err)
		}
	}
	for _, g := range trained.groups {
		var err error
		if g.rule, err = solver.NewRule(t.Solver, g.dtype, t.ClipNorm, t.Adds); err != nil {
			return fmt.Errorf("Train: %w", err)
		}
		elements := make([]int64, len(g.members))
		for i, m := range g.members {
			elements[i] = kernels.Count(trained.Learned[m].Node.Shape())
		}
		var offsets []int64
		offsets, g.total = program.Layout(g.dtype, elements...)
		for range 1 + g.rule.Moments {
			def := &program.Instr{Op: program.State{}, Nodes: trained.nodes(g)}
			l.graph.Program.Setup = append(l.graph.Program.Setup, def)
			g.states = append(g.states, l.graph.Program.NewValue(def, "learnables", g.whole(g.dtype)))
		}
		for i, m := range g.members {
			trained.Learned[m].States, trained.Learned[m].offset = g.states, offsets[i]
		}
	}
	return nil
}

// learn takes a learnable into the group of its type.
func (l *lowerer) learn(n *gorgonia.Node) error {
	t := l.graph.Trained
	_, twice := l.learned[n]
	switch {
	case n == nil:
		return errors.New("got a nil learnable")
	case twice:
		return fmt.Errorf("learnable %s: got it twice, want it once", internal.Name(n))
	case n.Op() != nil:
		return fmt.Errorf("learnable %s: got a node with an op, %v, want an input of the graph", internal.Name(n), n.Op())
	case n.Deriv() == nil:
		return fmt.Errorf("learnable %s: got a node without gradient, want one that gorgonia.Grad was asked for", internal.Name(n))
	}
	of := typeOf(n)
	if !of.Numeric || !of.Dtype.IsFloat() || of.Elements() == 0 {
		return fmt.Errorf("learnable %s: got a %v of shape %v, want at least one element of float32 or float64", internal.Name(n), n.Type(), n.Shape())
	}
	if l.learned == nil {
		l.learned = map[*gorgonia.Node]int{}
	}
	l.learned[n] = len(t.Learned)
	i := slices.IndexFunc(t.groups, func(g *group) bool { return g.dtype == of.Dtype })
	if i < 0 {
		i = len(t.groups)
		t.groups = append(t.groups, &group{dtype: of.Dtype})
	}
	t.groups[i].members = append(t.groups[i].members, len(t.Learned))
	t.Learned = append(t.Learned, Learned{Node: n})
	return nil
}

// nodes returns the learnables of a group.
func (t *Trained) nodes(g *group) []*gorgonia.Node {
	list := make([]*gorgonia.Node, len(g.members))
	for i, m := range g.members {
		list[i] = t.Learned[m].Node
	}
	return list
}

// whole is the type of as many elements as lie side by side.
func (g *group) whole(d kernels.Dtype) program.Type {
	return program.Type{Numeric: true, Dtype: d, Shape: tensor.Shape{int(g.total)}}
}

// learnable lowers an input that is learnt: it is a part of a state.
func learnable(c *call) *program.Value {
	i, ok := c.learned[c.node]
	if !ok {
		return nil
	}
	own := &c.graph.Trained.Learned[i]
	view := program.Contiguous(c.Shape)
	view.Offset = own.offset
	own.Value = c.alias(own.States[0], c.Type, view)
	return own.Value
}
