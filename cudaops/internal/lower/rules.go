package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// call is a node to be lowered: an op, its inputs as values of the program, and the type of its value.
type call struct {
	*lowerer
	node *gorgonia.Node
	in   []*program.Value
	program.Type
}

// rule lowers nodes of one kind: it emits the instructions that compute the node's value and returns the value. For nodes of
// other kinds it emits nothing and returns nil.
type rule func(c *call) *program.Value

// rules are tried in this order. The last one lowers every node.
var rules = []rule{indexing, learnable, resident, input, constant, size, reshape, transpose, movingSlice, slice, sliceDiff, repeat, at, concat, byIndices, diagonal,
	unary, binary, between, convert, function, viewed, broadcasts, rowwise, concatenated, multiply, tensorDot, reduce, softMax, softMaxDiff, average, windows, onnxGemm,
	batchNorm, batchNormDiff, groupNorm, groupNormDiff, dropout, dropoutDiff, random, drawing, whenTraining, collective, kernel, host}

// emit adds an instruction with one output and returns the output.
func (c *call) emit(op program.Op, t program.Type, in ...*program.Value) *program.Value {
	def := &program.Instr{Op: op, In: in, Nodes: []*gorgonia.Node{c.node}}
	list := &c.graph.Program.Instrs
	switch op.(type) {
	case program.Constant, program.Iota:
		list = &c.graph.Program.Setup
	}
	*list = append(*list, def)
	return c.graph.Program.NewValue(def, internal.Name(c.node), t)
}

// alias adds a view of from's base; the view's offset and strides are relative to that base.
func (c *call) alias(from *program.Value, t program.Type, view program.View) *program.Value {
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{from}, Nodes: []*gorgonia.Node{c.node}}
	c.graph.Program.Instrs = append(c.graph.Program.Instrs, def)
	return c.graph.Program.NewAlias(def, internal.Name(c.node), t, from, view)
}

// floats reports whether the node has n inputs, of the floating-point type of its value.
func (c *call) floats(n int) bool {
	if len(c.in) != n || !c.Numeric || !c.Dtype.IsFloat() {
		return false
	}
	for _, v := range c.in {
		if !v.Numeric || v.Dtype != c.Dtype {
			return false
		}
	}
	return true
}

func input(c *call) *program.Value {
	if c.node.Op() != nil {
		return nil
	}
	c.graph.Inputs = append(c.graph.Inputs, Input{Node: c.node})
	return c.emit(program.Input{Split: c.local > 1 && slices.Contains(c.split, c.node)}, c.Type)
}

func constant(c *call) *program.Value {
	if op, ok := c.node.Op().(interface{ Constant() gorgonia.Value }); ok {
		return c.emit(program.Constant{Value: op.Constant()}, c.Type)
	}
	if !internal.IsConstant(c.node.Op()) {
		return nil
	}
	return c.emit(program.Constant{Value: values.Compact(c.node.Value())}, c.Type)
}

// kernel lowers an op with a launch plan of its own.
func kernel(c *call) *program.Value {
	planner, ok := c.node.Op().(kernels.Planner)
	if !ok {
		return nil
	}
	return c.emit(program.Kernel{Planner: planner}, c.Type, c.in...)
}
