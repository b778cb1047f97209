package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mode is whether an op trained when the graph was lowered.
type mode struct {
	op       gorgonia.Op
	training bool
}

// trains takes note of the node's mode.
func (c *call) trains() {
	training, _ := internal.Training(c.node.Op())
	c.graph.modes = append(c.graph.modes, mode{c.node.Op(), training})
}

// changed reports whether an op that was lowered to train evaluates now, or the other way
// round.
func (m mode) changed() bool {
	training, ok := internal.Training(m.op)
	return ok && training != m.training
}

// keeps returns what an op keeps in a tensor of its own, as it is at this point of a run.
func (c *call) keeps(state *tensor.Dense) *program.Value {
	if c.kept[state] == nil {
		c.kept[state] = c.stateInput(state, c.Dtype)
		c.order = append(c.order, state)
	}
	return c.kept[state]
}

// Keeps reports whether a run leaves something in ops that the next one begins with.
func (g *Graph) Keeps() bool {
	return slices.ContainsFunc(g.Outputs, func(o Output) bool { return o.State != nil })
}

// keepStates makes outputs of what ops keep, where it changed.
func (l *lowerer) keepStates() {
	for _, state := range l.order {
		v := l.kept[state]
		if _, unchanged := v.Def.Op.(program.Input); !unchanged {
			l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(v), Node: v.Def.Nodes[0], State: state})
		}
	}
}
