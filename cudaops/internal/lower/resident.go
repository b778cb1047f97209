package lower

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Shared is an input in memory that other programs may use too. Like a resident input, it is a state.
type Shared struct {
	Node   *gorgonia.Node
	Next   *gorgonia.Node // its value after a run; nil if no run changes it
	Home   program.Memory // nil: the program's arena
	Offset int64          // in Home, bytes
	// Own is set if several ranks have values of their own; otherwise all get the next value of the first rank.
	Own bool
	// Stored is the element type in memory of a Node of Float32: BF16 or F16 round each next value; 0 is Float32.
	Stored kernels.Dtype
}

// startResidents makes the states of resident and shared inputs.
func (l *lowerer) startResidents() error {
	l.resident, l.changing, l.halves = map[*gorgonia.Node]*program.Value{}, map[*gorgonia.Node]*gorgonia.Node{}, map[*program.Value]*program.Value{}
	for _, s := range l.want.Shared {
		l.changing[s.Node] = s.Next
		v, err := l.residentState(s.Node, program.State{Home: s.Home, Offset: s.Offset}, s.Stored)
		if err != nil {
			return fmt.Errorf("%s: %w", s.option(), err)
		}
		l.graph.Shared = append(l.graph.Shared, Node{s.Node, v})
	}
	for _, n := range l.want.Resident {
		v, err := l.residentState(n, program.State{}, 0)
		if err != nil {
			return fmt.Errorf("Resident: %w", err)
		}
		l.graph.Residents = append(l.graph.Residents, Node{n, v})
	}
	return nil
}

// option returns the option that lists an input.
func (s Shared) option() string {
	if s.Next != nil {
		return "State"
	}
	return "In"
}

// changeStates sets the values of shared inputs after a run.
func (l *lowerer) changeStates() error {
	first := &program.Instr{Op: program.Collective{Collective: kernels.Collective{Kind: kernels.Broadcast, Ranks: l.ranks}}}
	for i, s := range l.want.Shared {
		if s.Next == nil {
			l.indices(i, nil)
			continue
		}
		state, next := l.graph.Shared[i].Value, l.valueOf[s.Next]
		if next == nil {
			return fmt.Errorf("State: got node %v, which is not in the graph", s.Next)
		}
		c := l.call(s.Next, next.Type)
		if again := l.again[next]; again != nil {
			next = again(c)
		}
		if half := l.halves[next]; half != nil && half.Dtype == state.Base.Dtype {
			next = half
		} else if state.Base.Dtype != state.Dtype && next.Numeric && next.Dtype == state.Dtype {
			next = c.converted(next, state.Base.Dtype)
		}
		if !next.Numeric || next.Dtype != state.Base.Dtype || kernels.Count(next.Shape) != kernels.Count(state.Shape) || !s.Next.Shape().Eq(s.Node.Shape()) {
			return fmt.Errorf("State: node %s: got %v of shape %v for its next value, want %v of shape %v",
				internal.Name(s.Node), values.Tensor(next.Dtype), s.Next.Shape(), values.Tensor(state.Dtype), s.Node.Shape())
		}
		if !slices.Equal(next.Shape, state.Shape) {
			next = c.reshaped(next, state.Shape)
		}
		state = state.Base
		if next.Base == state && next.IsContiguous() { // as of an op that evaluates
			l.indices(i, next)
			continue
		}
		if l.ranks > 1 && !s.Own {
			first.In, first.Nodes = append(first.In, next), append(first.Nodes, s.Next)
			next = l.graph.Program.NewValue(first, next.Name, next.Type)
		}
		l.indices(i, next)
		k := slices.IndexFunc(l.graph.Program.Updates, func(u program.Update) bool { return u.State == state })
		l.graph.Program.Updates[k].Next = next
	}
	if len(first.In) > 0 {
		l.graph.Program.Instrs = append(l.graph.Program.Instrs, first)
	}
	return nil
}

// residentState makes the state of an input, stored in a type, and returns its value on the host's side.
func (l *lowerer) residentState(n *gorgonia.Node, op program.State, stored kernels.Dtype) (*program.Value, error) {
	if n == nil {
		return nil, errors.New("got a nil node")
	}
	t := typeOf(n)
	_, learned := l.learned[n]
	switch {
	case l.resident[n] != nil:
		return nil, fmt.Errorf("got node %s twice, want it once", internal.Name(n))
	case learned:
		return nil, fmt.Errorf("got node %s, which is a learnable of Train and stays on the device already", internal.Name(n))
	case n.Op() != nil:
		return nil, fmt.Errorf("got node %s with an op, %v, want an input of the graph", internal.Name(n), n.Op())
	case !t.Numeric || t.Elements() == 0:
		return nil, fmt.Errorf("got node %s, a %v of shape %v, want elements that kernels take", internal.Name(n), n.Type(), n.Shape())
	}
	c, in, p := l.call(n, t), t, l.graph.Program
	if stored != kernels.Float32 {
		in.Dtype = stored
	}
	v := c.emit(op, in)
	p.Updates = append(p.Updates, program.Update{State: v, Next: v})
	if l.resident[n] = v; v.Dtype == t.Dtype {
		return v, nil
	}
	l.resident[n] = c.converted(v, t.Dtype)
	l.halves[l.resident[n]] = v
	return &program.Value{Name: v.Name, Type: t, Def: v.Def, Base: v, View: v.View}, nil
}

// converted returns the elements of a value in another type.
func (e *emitter) converted(v *program.Value, d kernels.Dtype) *program.Value {
	t := v.Type
	t.Dtype = d
	return e.mapped(t, func(b *expr.Builder) expr.Value { return b.Convert(b.Operand(0), d) }, v)
}

// cached lowers an update of a state in 16 bits: its rows are rounded, and no other element changes.
func cached(c *call) *program.Value {
	op, ok := c.node.Op().(interface {
		InHalf(d kernels.Dtype) (kernels.Planner, bool)
	})
	if !ok || len(c.in) != 3 || c.halves[c.in[0]] == nil {
		return nil
	}
	state := c.halves[c.in[0]]
	planner, ok := op.InHalf(state.Dtype)
	if !ok {
		return nil
	}
	next := c.emit(program.Kernel{Planner: planner}, state.Type, state, c.converted(c.in[1], state.Dtype), c.in[2])
	v := c.converted(next, c.Dtype)
	c.halves[v] = next
	return v
}

// resident lowers a resident or shared input.
func resident(c *call) *program.Value { return c.resident[c.node] }

// checkResidents returns an error that names a resident or shared node outside of the graph.
func (l *lowerer) checkResidents() error {
	for _, list := range [][]Node{l.graph.Residents, l.graph.Shared} {
		for _, r := range list {
			if l.valueOf[r.Node] == nil {
				return fmt.Errorf("Resident, In or State: node %s is not in the graph", internal.Name(r.Node))
			}
		}
	}
	return nil
}
