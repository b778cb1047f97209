package lower

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
)

// Resident is an input that stays on the device between runs: a state that no run changes.
type Resident struct {
	Node  *gorgonia.Node
	Value *program.Value
}

// Shared is an input in memory that other programs use too. Like a Resident, it is a state that no run changes.
type Shared struct {
	Node   *gorgonia.Node
	Home   program.Memory
	Offset int64 // bytes
}

// startResidents makes the states of resident and shared inputs.
func (l *lowerer) startResidents(w *Wanted) error {
	l.resident = map[*gorgonia.Node]*program.Value{}
	for _, s := range w.Shared {
		v, err := l.residentState(s.Node, program.State{Home: s.Home, Offset: s.Offset})
		if err != nil {
			return fmt.Errorf("In: %w", err)
		}
		l.graph.Shared = append(l.graph.Shared, Resident{s.Node, v})
	}
	for _, n := range w.Resident {
		v, err := l.residentState(n, program.State{})
		if err != nil {
			return fmt.Errorf("Resident: %w", err)
		}
		l.graph.Residents = append(l.graph.Residents, Resident{n, v})
	}
	return nil
}

// residentState makes the state of an input.
func (l *lowerer) residentState(n *gorgonia.Node, op program.State) (*program.Value, error) {
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
	def := &program.Instr{Op: op, Nodes: []*gorgonia.Node{n}}
	p := l.graph.Program
	p.Setup = append(p.Setup, def)
	v := p.NewValue(def, internal.Name(n), t)
	p.Updates = append(p.Updates, program.Update{State: v, Next: v})
	l.resident[n] = v
	return v, nil
}

// resident lowers a resident or shared input.
func resident(c *call) *program.Value { return c.resident[c.node] }

// checkResidents returns an error that names a resident or shared node outside of the graph.
func (l *lowerer) checkResidents() error {
	for option, list := range map[string][]Resident{"Resident": l.graph.Residents, "In": l.graph.Shared} {
		for _, r := range list {
			if l.valueOf[r.Node] == nil {
				return fmt.Errorf("%s: node %s is not in the graph", option, internal.Name(r.Node))
			}
		}
	}
	return nil
}
