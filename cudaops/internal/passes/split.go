package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

// splitRows splits Maps with several stages, or with an output for each element, at their reductions if there are few long rows. The device splits
// such rows across blocks, which only a single reduction allows: a softmax of one row becomes its maximum, its sum and a Map.
func splitRows(p *program.Program, dev kernels.Device) error {
	return each(p, func(in *program.Instr) (keep bool, err error) {
		op, _ := in.Op.(program.Map)
		if len(op.Axes) == 0 || len(in.Out) != 1 || codegen.RowsWhole(dev, op.Shape, op.Axes) {
			return true, nil
		}
		staged, err := op.Func.Stages(op.PerRow)
		if err != nil || len(staged.Stages) == 1 && op.PerRow[0] {
			return true, err
		}
		return false, (&rowSplitter{p, in, op}).split(staged)
	})
}

// rowSplitter splits one instruction.
type rowSplitter struct {
	p  *program.Program
	in *program.Instr
	program.Map
}

func (s *rowSplitter) split(staged expr.Staged) error {
	operands := slices.Clone(s.in.In) // then the results of reductions, for each element
	rows := program.Without(s.Shape, s.Axes)
	var results []*program.Value // one for each row
	for _, stage := range staged.Stages {
		known := operands
		for k, op := range stage.Reductions {
			b := expr.NewBuilder(stage.Func.Operands()...)
			f, err := b.Func(b.Apply(op, b.Inline(stage.Func, b.Inputs()...)[k]))
			if err != nil {
				return err
			}
			def := s.instr(program.Map{Func: f, Shape: s.Shape, Axes: s.Axes, PerRow: []bool{true}}, known)
			v := s.p.NewValue(def, s.in.Out[0].Name, program.Type{Numeric: true, Dtype: f.Outputs()[0], Shape: rows})
			results, operands = append(results, v), append(operands, s.spread(v))
		}
	}
	f, shape := staged.Elements, s.Shape
	if s.PerRow[0] {
		f, shape = staged.Row, rows
		for i, v := range s.in.In {
			operands[i] = s.alias(v, rows, program.Without(v.View.Strides, s.Axes))
		}
		copy(operands[len(s.in.In):], results)
	}
	def := s.instr(program.Map{Func: f, Shape: shape}, operands)
	def.Out, s.in.Out[0].Def = s.in.Out, def
	return nil
}

// instr adds a Map of those operands that its function depends on.
func (s *rowSplitter) instr(op program.Map, operands []*program.Value) *program.Instr {
	var used []int
	op.Func, used = op.Func.Trim()
	def := &program.Instr{Op: op, Nodes: s.in.Nodes}
	for _, k := range used {
		def.In = append(def.In, operands[k])
	}
	s.p.Instrs = append(s.p.Instrs, def)
	return def
}

// spread returns a value of each row as one of each element.
func (s *rowSplitter) spread(v *program.Value) *program.Value {
	strides := slices.Clone(v.View.Strides)
	for _, a := range s.Axes {
		strides = slices.Insert(strides, a, 0)
	}
	return s.alias(v, s.Shape, strides)
}

func (s *rowSplitter) alias(v *program.Value, shape tensor.Shape, strides []int64) *program.Value {
	t := v.Type
	t.Shape = shape
	return s.p.EmitAlias(s.in.Nodes, v.Name, t, v, program.View{Offset: v.View.Offset, Strides: strides})
}
