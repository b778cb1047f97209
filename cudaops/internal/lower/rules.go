package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// call is a node to be lowered: an op, its inputs as values of the program, and the type of its value.
type call struct {
	emitter
	node *gorgonia.Node
	in   []*program.Value
	program.Type
}

// call returns a node to be lowered.
func (l *lowerer) call(n *gorgonia.Node, t program.Type, in ...*program.Value) *call {
	return &call{emitter{l, []*gorgonia.Node{n}, internal.Name(n)}, n, in, t}
}

// emitter adds instructions that compute nodes.
type emitter struct {
	*lowerer
	nodes []*gorgonia.Node
	name  string // of the values
}

// rule lowers nodes of one kind: it emits the instructions that compute the node's value and returns the value. For nodes of
// other kinds it emits nothing and returns nil.
type rule func(c *call) *program.Value

// rules are tried in this order. The last one lowers every node.
var rules = []rule{indexing, learnable, resident, cached, input, constant, size, reshape, transpose, movingSlice, slice, sliceDiff, repeat, at, concat, byIndices, diagonal,
	unary, binary, between, convert, function, viewed, broadcasts, rowwise, multiply, tensorDot, reduce, softMax, softMaxDiff, average, windows, onnxGemm,
	batchNorm, groupNorm, dropout, random, drawing, whenTraining, collective, kernel, host}

// instr adds an instruction with outputs of some types, and returns the outputs.
func (e *emitter) instr(op program.Op, in []*program.Value, types ...program.Type) []*program.Value {
	p, def := e.graph.Program, &program.Instr{Op: op, In: in, Nodes: e.nodes}
	switch op.(type) {
	case program.Constant, program.Iota, program.State:
		p.Setup = append(p.Setup, def)
	default:
		p.Instrs = append(p.Instrs, def)
	}
	for _, t := range types {
		p.NewValue(def, e.name, t)
	}
	return def.Out
}

// emit adds an instruction with one output and returns the output.
//
//go:noinline
func (e *emitter) emit(op program.Op, t program.Type, in ...*program.Value) *program.Value {
	return e.instr(op, in, t)[0]
}

// alias adds a view of from's base; the view's offset and strides are relative to that base.
//
//go:noinline
func (e *emitter) alias(from *program.Value, t program.Type, view program.View) *program.Value {
	return e.graph.Program.EmitAlias(e.nodes, e.name, t, from, view)
}

// checked returns a function, and records the error of an invalid one.
func (l *lowerer) checked(f expr.Func, err error) expr.Func {
	if err != nil {
		l.err = err
	}
	return f
}

// mapped adds a Map of values with the shape of t.
func (e *emitter) mapped(t program.Type, f func(*expr.Builder) expr.Value, in ...*program.Value) *program.Value {
	return e.emit(program.Map{Func: e.checked(written(f, in...)), Shape: t.Shape}, t, in...)
}

// apply adds a Map of one operation on values of one type and shape.
func (e *emitter) apply(op expr.Op, in ...*program.Value) *program.Value {
	return e.mapped(in[0].Type, func(b *expr.Builder) expr.Value { return b.Apply(op, b.Inputs()...) }, in...)
}

// reduced adds a Map with one output, which has one element for each row along axes.
func (e *emitter) reduced(t program.Type, axes []int, f func(*expr.Builder) expr.Value, in ...*program.Value) *program.Value {
	return e.emit(program.Map{Func: e.checked(written(f, in...)), Shape: in[0].Shape, Axes: axes, PerRow: []bool{true}}, t, in...)
}

// written returns the function of values that f composes.
func written(f func(*expr.Builder) expr.Value, in ...*program.Value) (expr.Func, error) {
	b := expr.NewBuilder(program.Collect(in, func(v *program.Value) kernels.Dtype { return v.Dtype })...)
	return b.Func(f(b))
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
	return c.emit(program.Input{Split: c.local > 1 && slices.Contains(c.want.Split, c.node)}, c.Type)
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
