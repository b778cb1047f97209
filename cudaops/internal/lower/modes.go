package lower

import (
	"fmt"
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

// trains reports whether the node's op trains in this program. Unless the program evaluates, it records the
// op's mode.
func (c *call) trains() bool {
	if c.want.Evaluate {
		return false
	}
	training, _ := internal.Training(c.node.Op())
	c.graph.modes = append(c.graph.modes, mode{c.node.Op(), training})
	return training
}

// whenTraining lowers an op of package ops that selects an input by the mode.
func whenTraining(c *call) *program.Value {
	op, ok := c.node.Op().(interface{ WhenTraining() bool })
	if !ok || !op.WhenTraining() || len(c.in) != 2 {
		return nil
	}
	x := c.in[1]
	if c.trains() {
		x = c.in[0]
	}
	return c.alias(x, c.Type, x.View)
}

// checkMode returns an error if the program evaluates and the node's op has a mode of its own.
func (c *call) checkMode() error {
	op, has := c.node.Op().(gorgonia.TrainModeOp)
	if _, known := internal.Training(c.node.Op()); !c.want.Evaluate || !has || known {
		return nil
	}
	return fmt.Errorf("got the option EvalMode or Inference and a %T, which reads its own mode: call SetTraining(false) of the graph's ops instead", op)
}

// changed reports whether the mode of an op is not the one with which it was lowered.
func (m mode) changed() bool {
	training, ok := internal.Training(m.op)
	return ok && training != m.training
}

// keeps returns the current value of a state that an op stores in a tensor. first, if not nil, replaces a state of zeros.
func (c *call) keeps(state, first *tensor.Dense) *program.Value {
	if c.kept[state] == nil {
		c.kept[state] = c.stateInput(state, c.Dtype)
		c.graph.Inputs[len(c.graph.Inputs)-1].First = first
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
		if !program.Is[program.Input](v.Def.Op) {
			l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(v), Node: v.Def.Nodes[0], State: state})
		}
	}
}
