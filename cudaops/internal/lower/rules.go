package lower

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// A rule lowers the nodes of one kind: it sets the op of def, whose inputs are
// there, and returns the node's value, or nil for a node of another kind.
type rule func(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value

// rules are tried in this order. The last one takes every node.
var rules = []rule{input, constant, size, reshape, transpose, slice, repeat, unary, binary, between, multiply, reduce, kernel, host}

func input(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	if n.Op() != nil {
		return nil
	}
	l.graph.Inputs = append(l.graph.Inputs, n)
	def.Op = program.Input{}
	return l.graph.Program.NewValue(def, n.Name(), t)
}

func constant(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	if !internal.IsConstant(n.Op()) {
		return nil
	}
	def.Op = program.Constant{Value: values.Compact(n.Value())}
	return l.graph.Program.NewValue(def, n.Name(), t)
}

// kernel lowers an op that has kernels of its own.
func kernel(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	planner, ok := n.Op().(kernels.Planner)
	if !ok {
		return nil
	}
	def.Op = program.Kernel{Planner: planner}
	return l.graph.Program.NewValue(def, n.Name(), t)
}

func host(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	op := program.Host{Op: n.Op()}
	if len(def.In) > 0 {
		op.Reason = "no kernel"
	}
	def.Op = op
	return l.graph.Program.NewValue(def, n.Name(), t)
}
