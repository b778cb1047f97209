package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fused is the function of a group.
type fused struct {
	f        expr.Func
	operands []operand
	outputs  []*program.Value
	perRow   []bool // by output
}

// operand is a view of the group's shape that the function reads.
type operand struct {
	base    *program.Value
	dtype   kernels.Dtype
	offset  int64
	strides []int64
	bounds  codegen.Bounds
	stream  codegen.Stream
	matmul  bool
}

// build composes the members' functions.
func (g *group) build() (*fused, error) {
	out := &fused{}
	operands := g.operands()
	b := expr.NewBuilder(program.Collect(operands, func(o operand) expr.Dtype { return o.dtype })...)
	result := map[*vertex]expr.Value{}
	for _, m := range g.members {
		args := make([]expr.Value, len(m.In))
		for i, v := range m.In {
			if isNumber(v) {
				args[i] = literal(b, v)
			} else if g.inside(m.sources[i]) {
				args[i] = result[m.sources[i]]
			} else {
				args[i] = b.Operand(slices.IndexFunc(operands, g.operand(m, v).equal))
			}
		}
		result[m] = b.Inline(m.op.Func, args...)[0]
	}
	var results []expr.Value
	for _, m := range g.outputs() {
		if out.outputs = append(out.outputs, m.Out[0]); g.axes != nil {
			out.perRow = append(out.perRow, g.perRow(m))
		}
		results = append(results, result[m])
	}
	if len(results) == 0 { // no result of the group is needed
		return out, nil
	}
	whole, err := b.Func(results...)
	if err != nil {
		return nil, err
	}
	var kept []int
	out.f, kept = whole.Trim()
	for _, k := range kept {
		out.operands = append(out.operands, operands[k])
	}
	return out, nil
}

// number returns the value of a floating-point constant of one element.
func number(v *program.Value) (c float64, ok bool) {
	if !isNumber(v) {
		return 0, false
	}
	return values.Float(v.Base.Def.Op.(program.Constant).Value)
}

// isNumber reports whether a value is a constant of one number.
func isNumber(v *program.Value) bool {
	return program.Is[program.Constant](v.Base.Def.Op) && !v.IsBounded() && (v.Dtype.IsFloat() || v.Dtype.IsInteger()) && v.Base.Elements() == 1
}

// literal returns a constant of one number as a literal.
func literal(b *expr.Builder, v *program.Value) expr.Value {
	if c, float := number(v); float {
		return b.Constant(v.Dtype, c)
	}
	return b.Integer(v.Dtype, values.Integer(v.Base.Def.Op.(program.Constant).Value))
}

// operand returns an input of a member as a view of the group's shape.
func (g *group) operand(m *vertex, v *program.Value) operand {
	return operand{v.Base, v.Dtype, v.View.Offset, g.strides(m, v), bounds(v), v.View.Stream, v.View.Matmul}
}

// bounds returns a view's bounds, with the axis counted without axes of extent 1.
func bounds(v *program.Value) codegen.Bounds {
	b := v.View.Bounds
	if v.IsBounded() {
		b.Axis = len(program.Squeezed(v.Shape[:b.Axis]))
	}
	return b
}

// equal reports whether two operands are the same elements in the same order.
func (o operand) equal(p operand) bool {
	return p.base == o.base && p.dtype == o.dtype && p.offset == o.offset && p.bounds == o.bounds && p.stream == o.stream && p.matmul == o.matmul && slices.Equal(p.strides, o.strides)
}

// fused completes the instruction of the group and returns it, preceded by the aliases that it reads. It returns nothing if no
// result of the group is read.
func (g *group) fused(p *program.Program) (list []*program.Instr, err error) {
	f, err := g.build()
	if err != nil || len(f.outputs) == 0 {
		return nil, err
	}
	members := program.Collect(g.members, func(m *vertex) *program.Instr { return m.Instr }) // a softmax is several
	*g.instr = program.Instr{Op: program.Map{Func: f.f, Shape: g.shape, Axes: g.axes, PerRow: f.perRow}, Out: f.outputs, Nodes: program.NodesOf(members...)}
	for _, o := range f.operands {
		v, alias := o.view(p, g.shape, g.instr.Nodes)
		if g.instr.In = append(g.instr.In, v); alias != nil {
			list = append(list, alias)
		}
	}
	return append(list, g.instr), nil
}

// view returns the operand as a value of a shape, and the new alias that defines it, or nil if the value exists already.
func (o operand) view(p *program.Program, shape []int, nodes []*gorgonia.Node) (*program.Value, *program.Instr) {
	if slices.Equal(shape, o.base.Shape) && o.offset == 0 && o.bounds.To == 0 && o.stream.Number == 0 && !o.matmul && slices.Equal(o.strides, o.base.View.Strides) {
		return o.base, nil
	}
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{o.base}, Nodes: nodes[:1]}
	t := program.Type{Numeric: true, Dtype: o.dtype, Shape: tensor.Shape(shape)}
	return p.NewAlias(def, o.base.Name, t, o.base, program.View{Offset: o.offset, Strides: o.strides, Bounds: o.bounds, Stream: o.stream, Matmul: o.matmul}), def
}
