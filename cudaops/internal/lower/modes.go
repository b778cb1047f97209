package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mode records whether an op trained when the graph was lowered.
type mode struct {
	op       gorgonia.Op
	training bool
}

// trains records the node's mode.
func (c *call) trains() {
	training, _ := internal.Training(c.node.Op())
	c.graph.modes = append(c.graph.modes, mode{c.node.Op(), training})
}

// changed reports whether the mode of an op is not the one with which it was lowered.
func (m mode) changed() bool {
	training, ok := internal.Training(m.op)
	return ok && training != m.training
}

// keeps returns the state that an op keeps in a tensor of its own, at this point of a run.
func (c *call) keeps(state *tensor.Dense) *program.Value {
	if c.kept[state] == nil {
		c.kept[state] = c.stateInput(state, c.Dtype)
		c.order = append(c.order, state)
	}
	return c.kept[state]
}

// Keeps reports whether a run leaves a state in ops with which the next one begins.
func (g *Graph) Keeps() bool {
	return slices.ContainsFunc(g.Outputs, func(o Output) bool { return o.State != nil })
}

// keepStates makes outputs of the states of ops that changed.
func (l *lowerer) keepStates() {
	for _, state := range l.order {
		v := l.kept[state]
		if _, unchanged := v.Def.Op.(program.Input); !unchanged {
			l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(v), Node: v.Def.Nodes[0], State: state})
		}
	}
}
