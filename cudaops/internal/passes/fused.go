package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fused is a group as one function.
type fused struct {
	f        expr.Func
	operands []operand
	outputs  []*program.Value
	perRow   []bool // of the outputs
}

// operand is a view that the function reads: of the group's shape.
type operand struct {
	base    *program.Value
	offset  int64
	strides []int64
}

// build writes the members' functions as one.
func (f *fuser) build(g *group) (*fused, error) {
	inside := g.inside()
	out := &fused{}
	number := number
	if !g.reads() { // an instruction has an input to say what it goes over
		number = func(*program.Value) (float64, bool) { return 0, false }
	}
	var types []expr.Dtype
	for _, m := range g.members {
		for _, v := range m.In {
			if _, constant := number(v); inside[v.Base.Def] || constant {
				continue
			}
			if o := g.operand(m, v); out.index(o) < 0 {
				out.operands, types = append(out.operands, o), append(types, v.Dtype)
			}
		}
	}
	b := expr.NewBuilder(types...)
	of := map[*program.Value]expr.Value{}
	for _, m := range g.members {
		args := make([]expr.Value, len(m.In))
		for i, v := range m.In {
			if c, constant := number(v); constant {
				args[i] = b.Constant(v.Dtype, c)
			} else if inside[v.Base.Def] {
				args[i] = of[v.Base]
			} else {
				args[i] = b.Operand(out.index(g.operand(m, v)))
			}
		}
		for k, r := range b.Inline(function(m), args...) {
			of[m.Out[k]] = r
		}
	}
	var results []expr.Value
	for _, m := range g.members {
		for _, v := range m.Out {
			outsider := func(in *program.Instr) bool { return !inside[in] }
			if f.wanted[v] || slices.ContainsFunc(f.users[v], outsider) {
				out.outputs, out.perRow = append(out.outputs, v), append(out.perRow, g.axes != nil && g.perRow(v))
				results = append(results, of[v])
			}
		}
	}
	if len(results) == 0 { // nobody needs the group
		return out, nil
	}
	whole, err := b.Func(results...)
	if err != nil {
		return nil, err
	}
	var kept []int
	out.f, kept = whole.Trim()
	operands := out.operands
	out.operands = nil
	for _, k := range kept {
		out.operands = append(out.operands, operands[k])
	}
	return out, nil
}

// function returns the function of a Map or Rows.
func function(in *program.Instr) expr.Func {
	if op, rows := in.Op.(program.Rows); rows {
		return op.Func
	}
	return in.Op.(program.Map).Func
}

// number returns the value of a floating-point constant of one element.
func number(v *program.Value) (c float64, ok bool) {
	op, ok := v.Base.Def.Op.(program.Constant)
	if !ok || !v.Dtype.IsFloat() || v.Base.Elements() != 1 {
		return 0, false
	}
	return values.Float(op.Value)
}

// operand returns an input of a member as a view of the group's shape.
func (g *group) operand(m *program.Instr, v *program.Value) operand {
	return operand{v.Base, v.View.Offset, g.strides(m, v)}
}

func (f *fused) index(o operand) int {
	return slices.IndexFunc(f.operands, func(p operand) bool {
		return p.base == o.base && p.offset == o.offset && slices.Equal(p.strides, o.strides)
	})
}

// splits reports whether rows may be split among blocks: every output is a function of
// a row's first reductions.
func (f *fused) splits() bool {
	if slices.Contains(f.perRow, false) {
		return false
	}
	s, err := f.f.Stages(f.perRow)
	return err == nil && len(s.Stages) <= 1
}

// instrs returns the instruction of the group, behind the views that it reads.
func (f *fused) instrs(p *program.Program, g *group) []*program.Instr {
	in := &program.Instr{Out: f.outputs, Op: program.Map{Func: f.f}}
	if g.axes != nil {
		in.Op = program.Rows{Func: f.f, Axes: g.axes, PerRow: f.perRow}
	}
	for _, m := range g.members {
		for _, n := range m.Nodes { // a softmax is several members
			if !slices.Contains(in.Nodes, n) {
				in.Nodes = append(in.Nodes, n)
			}
		}
		for _, v := range m.Out {
			v.Def = in
		}
	}
	var list []*program.Instr
	for _, o := range f.operands {
		v, alias := o.view(p, g.shape, in.Nodes)
		if in.In = append(in.In, v); alias != nil {
			list = append(list, alias)
		}
	}
	return append(list, in)
}

// view returns the operand as a value of a shape, with the instruction that makes it
// unless it is there.
func (o operand) view(p *program.Program, shape []int, nodes []*gorgonia.Node) (*program.Value, *program.Instr) {
	if slices.Equal(shape, o.base.Shape) && o.offset == 0 && slices.Equal(o.strides, o.base.View.Strides) {
		return o.base, nil
	}
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{o.base}, Nodes: nodes[:1]}
	t := program.Type{Numeric: true, Dtype: o.base.Dtype, Shape: tensor.Shape(shape)}
	return p.NewAlias(def, o.base.Name, t, o.base, program.View{Offset: o.offset, Strides: o.strides}), def
}
