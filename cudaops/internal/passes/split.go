package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

// splitRows splits Rows with several stages, or with an output for each element, at their reductions if there are few long rows. The device splits
// such rows across blocks, which only a single reduction allows: a softmax of one row becomes its maximum, its sum and a Map.
func splitRows(p *program.Program, dev kernels.Device) error {
	instrs := p.Instrs
	p.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		op, rows := in.Op.(program.Rows)
		if !rows || len(in.Out) != 1 || codegen.RowsWhole(dev, op.Shape, op.Axes) {
			p.Instrs = append(p.Instrs, in)
			continue
		}
		staged, err := op.Func.Stages(op.PerRow)
		if err != nil {
			return in.InNode(err)
		}
		if len(staged.Stages) == 1 && op.PerRow[0] {
			p.Instrs = append(p.Instrs, in)
			continue
		}
		if err := (&rowSplitter{p, in, op}).split(staged); err != nil {
			return in.InNode(err)
		}
	}
	return nil
}

// rowSplitter splits one instruction.
type rowSplitter struct {
	p  *program.Program
	in *program.Instr
	program.Rows
}

func (s *rowSplitter) split(staged expr.Staged) error {
	operands := slices.Clone(s.in.In) // then the results of reductions, for each element
	rows := without(s.Shape, s.Axes)
	var results []*program.Value // one for each row
	for _, stage := range staged.Stages {
		known := operands
		for k, op := range stage.Reductions {
			b := expr.NewBuilder(stage.Func.Operands()...)
			var values []expr.Value
			for i := range known {
				values = append(values, b.Operand(i))
			}
			f, err := b.Func(b.Apply(op, b.Inline(stage.Func, values...)[k]))
			if err != nil {
				return err
			}
			def := s.instr(f, known, func(f expr.Func) program.Op {
				return program.Rows{Func: f, Shape: s.Shape, Axes: s.Axes, PerRow: []bool{true}}
			})
			v := s.p.NewValue(def, s.in.Out[0].Name, program.Type{Numeric: true, Dtype: f.Outputs()[0], Shape: rows})
			results, operands = append(results, v), append(operands, s.spread(v))
		}
	}
	f, shape := staged.Elements, s.Shape
	if s.PerRow[0] {
		f, shape = staged.Row, rows
		for i, v := range s.in.In {
			operands[i] = s.alias(v, rows, without(v.View.Strides, s.Axes))
		}
		copy(operands[len(s.in.In):], results)
	}
	def := s.instr(f, operands, func(f expr.Func) program.Op { return program.Map{Func: f, Shape: shape} })
	def.Out, s.in.Out[0].Def = s.in.Out, def
	return nil
}

// instr adds an instruction that computes a function of those operands that it depends on.
func (s *rowSplitter) instr(f expr.Func, operands []*program.Value, op func(f expr.Func) program.Op) *program.Instr {
	f, used := f.Trim()
	def := &program.Instr{Op: op(f), Nodes: s.in.Nodes}
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
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{v}, Nodes: s.in.Nodes}
	s.p.Instrs = append(s.p.Instrs, def)
	t := v.Type
	t.Shape = shape
	return s.p.NewAlias(def, v.Name, t, v, program.View{Offset: v.View.Offset, Strides: strides})
}

// without returns a list without the elements at some indices.
func without[S ~[]T, T any](list S, indices []int) S {
	var kept S
	for i, v := range list {
		if !slices.Contains(indices, i) {
			kept = append(kept, v)
		}
	}
	return kept
}
