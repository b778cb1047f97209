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

// startResidents makes the states of resident inputs.
func (l *lowerer) startResidents(nodes []*gorgonia.Node) error {
	l.resident = map[*gorgonia.Node]*program.Value{}
	for _, n := range nodes {
		if n == nil {
			return errors.New("Resident: got a nil node")
		}
		t := typeOf(n)
		_, learned := l.learned[n]
		switch {
		case l.resident[n] != nil:
			return fmt.Errorf("Resident: got node %s twice, want it once", internal.Name(n))
		case learned:
			return fmt.Errorf("Resident: got node %s, which is a learnable of Train and stays on the device already", internal.Name(n))
		case n.Op() != nil:
			return fmt.Errorf("Resident: got node %s with an op, %v, want an input of the graph", internal.Name(n), n.Op())
		case !t.Numeric || t.Elements() == 0:
			return fmt.Errorf("Resident: got node %s, a %v of shape %v, want elements that kernels take", internal.Name(n), n.Type(), n.Shape())
		}
		def := &program.Instr{Op: program.State{}, Nodes: []*gorgonia.Node{n}}
		p := l.graph.Program
		p.Setup = append(p.Setup, def)
		v := p.NewValue(def, internal.Name(n), t)
		p.Updates = append(p.Updates, program.Update{State: v, Next: v})
		l.resident[n] = v
	}
	return nil
}

// resident lowers a resident input.
func resident(c *call) *program.Value {
	v := c.resident[c.node]
	if v != nil {
		c.graph.Residents = append(c.graph.Residents, Resident{c.node, v})
	}
	return v
}

// checkResidents returns an error that names a resident node outside of the graph.
func (l *lowerer) checkResidents(nodes []*gorgonia.Node) error {
	for _, n := range nodes {
		if l.valueOf[n] == nil {
			return fmt.Errorf("Resident: node %s is not in the graph", internal.Name(n))
		}
	}
	return nil
}
