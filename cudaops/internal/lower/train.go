package lower

import (
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

// Training describes the solver steps to include in the program.
type Training struct {
	Sets     []Set
	ClipNorm bool           // limit the norm of all gradients together
	Solvers  Solvers        // what compiles the steps: Gorgonia's
	Adds     bool           // accumulate the gradients of several runs for a step
	EMA      float64        // decay of an exponential moving average of the learnables, 0 for none
	Scaler   *solver.Scaler // of dynamic loss scaling, or nil
	// Reduced is the precision of gradients between ranks: BF16, F16, or FullPrecision for that of the learnables.
	Reduced kernels.Precision
	Sharded bool // each of several ranks has the solver's state of one part of the learnables
	// Homes is the memory of each learnable, of all sets in order, nil in the program's arena. Learnables of one set and element type
	// have the same, or of sharded training in groups of BucketBytes or more. The solver's moments are always in the arena.
	Homes []program.Memory
}

// Set is a solver and its learnables.
type Set struct {
	Solver     internal.Solver
	Learnables []*gorgonia.Node
}

// Trained describes the training in a graph's program. Learnables of one set and element type are stored contiguously, as are
// their moments, so that one launch updates all of them. Of sharded training such learnables are in one group or in several, of BucketBytes
// or more: the states of a group but the parameters have one part on each rank, which computes the same part of the parameters.
//
// The numbers of a step, such as the learning rate, are inputs of the program after those of the graph.
type Trained struct {
	Learned []Learned // in the order of the sets
	Scaling *Scaling  // nil without dynamic loss scaling

	training Training
	groups   []*group
	numbers  bool // Numbers starts with the numbers shared by all groups
}

// Learned is a learnable and its part of the states.
type Learned struct {
	Node   *gorgonia.Node
	Value  *program.Value   // a view of States[0]
	States []*program.Value // parameters, each moment, the average, accumulated gradients; the learnable has the same view of each
	EMA    int              // index of the average in States, 0 if there is none

	group  *group
	offset int64 // in each state, elements
}

// Part returns a learnable's part of state k: its value is in state 0, its moments are in the others. Of a sharded state it is a view of
// the parts of all ranks.
func (l Learned) Part(k int) *program.Value {
	v := *l.Value
	v.Base = l.States[k]
	return &v
}

// group holds the learnables of one set and element type.
type group struct {
	set      int
	dtype    kernels.Dtype
	rule     solver.Rule
	members  []int // indices in Learned
	states   []*program.Value
	total    int64          // elements of all members, with those between and after them
	own      int64          // elements of the part of a rank; total unless sharded
	tail     int64          // elements that fill up the last part of sharded training
	received *program.Value // the gradients, reduced over the ranks, in the type in which they travel: the rank's part if the training is sharded
}

// Solvers returns the solvers' options when the graph was lowered.
func (t *Trained) Solvers() []internal.Solver {
	return program.Collect(t.training.Sets, func(s Set) internal.Solver { return s.Solver })
}

// Numbers returns the program's last inputs for a step, counted from 1, with the solvers' current options; step is 0 in a run without
// a step.
func (t *Trained) Numbers(solvers []internal.Solver, step int, maxNorm float64) []gorgonia.Value {
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
		add(kernels.Float64, t.common(solvers, step, maxNorm))
	}
	for _, g := range t.groups {
		add(g.dtype, g.rule.AppendNumbers(nil, solvers[g.set], step))
	}
	return list
}

// common returns the numbers shared by groups: the maximum norm, then those of each set that [solver.StepNumbers] has. With a scaler whether
// the run makes a step follows, and Beta1 and Beta2 of each set.
func (t *Trained) common(solvers []internal.Solver, step int, maxNorm float64) []float64 {
	var list []float64
	if t.training.ClipNorm {
		list = append(list, maxNorm)
	}
	for _, s := range solvers {
		if s.Kind == internal.BarzilaiBorwein {
			list = append(list, solver.StepNumbers(s, step)...)
		}
	}
	if t.training.Scaler != nil {
		list = append(list, float64(min(step, 1)))
		for _, s := range solvers {
			list = append(list, s.Beta1, s.Beta2)
		}
	}
	return list
}

// sums reports whether a step needs sums over all learnables.
func (t *Trained) sums() bool {
	return t.training.ClipNorm || t.training.Scaler != nil || slices.ContainsFunc(t.training.Sets, func(s Set) bool { return s.Solver.Kind == internal.BarzilaiBorwein })
}

// Solvers compiles the steps of solvers.
type Solvers struct {
	start  func(*lowerer, Training) error
	update func(*lowerer) error
}

// Gorgonia compiles the steps of Gorgonia's solvers. Only programs that train name it, so that others do not link it, 0.1 MB.
var Gorgonia = Solvers{(*lowerer).startTraining, (*lowerer).update}

// startTraining makes the states; learnables are views of them.
func (l *lowerer) startTraining(t Training) error {
	trained := &Trained{training: t}
	l.graph.Trained = trained
	if t.Scaler != nil {
		l.startScaling()
	}
	for i, s := range t.Sets {
		if t.Scaler != nil && s.Solver.Kind == internal.BarzilaiBorwein {
			return fmt.Errorf("LossScaling: got the solver %s, want another one of Gorgonia's: its step size needs gradients of two steps", s.Solver.Kind)
		}
		for _, n := range s.Learnables {
			if err := l.learn(n, i); err != nil {
				return fmt.Errorf("Train: %w", err)
			}
		}
	}
	for _, g := range trained.groups {
		var err error
		if g.rule, err = solver.NewRule(t.Sets[g.set].Solver, g.dtype, solver.Options{Scaled: t.ClipNorm, Adds: t.Adds, EMA: t.EMA, Counted: t.Scaler != nil}); err != nil {
			return fmt.Errorf("Train: %w", err)
		}
		var offsets []int64
		offsets, g.total = program.Layout(g.dtype, program.Collect(g.members, func(m int) int64 { return kernels.Count(trained.Learned[m].Node.Shape()) })...)
		if g.own = g.total; t.Sharded {
			_, g.own = program.Layout(g.dtype, kernels.CeilDiv(g.total, int64(l.ranks)))
			g.tail = g.own*int64(l.ranks) - g.total
			g.total += g.tail
		}
		for k := range 1 + g.rule.Moments {
			op, of := program.State{Sharded: t.Sharded && k > 0}, g.part()
			if k == 0 {
				of = g.whole()
			}
			if k == 0 && len(t.Homes) > 0 {
				op.Home = t.Homes[g.members[0]]
			}
			e := emitter{l, trained.nodes(g), "learnables"}
			g.states = append(g.states, e.emit(op, of))
		}
		for i, m := range g.members {
			of := &trained.Learned[m]
			of.States, of.EMA, of.group, of.offset = g.states, g.rule.Average, g, offsets[i]
		}
	}
	return nil
}

// learn adds a learnable to the group of its set and type.
func (l *lowerer) learn(n *gorgonia.Node, set int) error {
	t := l.graph.Trained
	switch {
	case n.Op() != nil:
		return fmt.Errorf("learnable %s: got a node with an op, %v, want an input of the graph", internal.Name(n), n.Op())
	case n.Deriv() == nil:
		return fmt.Errorf("learnable %s: got a node without gradient: pass it to gorgonia.Grad", internal.Name(n))
	}
	want := typeOf(n)
	if !want.Numeric || !want.Dtype.IsFloat() || want.Elements() == 0 {
		return fmt.Errorf("learnable %s: got a %v of shape %v, want at least one element of float32 or float64", internal.Name(n), n.Type(), n.Shape())
	}
	if l.learned == nil {
		l.learned = map[*gorgonia.Node]int{}
	}
	l.learned[n] = len(t.Learned)
	i := slices.IndexFunc(t.groups, func(g *group) bool {
		if homes := t.training.Homes; len(homes) > 0 && homes[len(t.Learned)] != nil {
			return g.set == set && g.dtype == want.Dtype && homes[g.members[0]] == homes[len(t.Learned)]
		}
		return g.set == set && g.dtype == want.Dtype && !(t.training.Sharded && g.total*g.dtype.Size() >= BucketBytes)
	})
	if i < 0 {
		i = len(t.groups)
		t.groups = append(t.groups, &group{set: set, dtype: want.Dtype})
	}
	t.groups[i].members = append(t.groups[i].members, len(t.Learned))
	t.groups[i].total += want.Elements()
	t.Learned = append(t.Learned, Learned{Node: n})
	return nil
}

// nodes returns the learnables of a group.
func (t *Trained) nodes(g *group) []*gorgonia.Node {
	return program.Collect(g.members, func(m int) *gorgonia.Node { return t.Learned[m].Node })
}

// whole returns the type of the parameters of the group, and part that of one rank's part.
func (g *group) whole() program.Type { return g.vector(g.total) }
func (g *group) part() program.Type  { return g.vector(g.own) }

func (g *group) vector(n int64) program.Type {
	return program.Type{Numeric: true, Dtype: g.dtype, Shape: tensor.Shape{int(n)}}
}

// learnable lowers a learnable to a view of its state.
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
