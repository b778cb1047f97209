package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

// vectors replaces products of a vector and the rows of a state, such as a layer's weight in a step that reads one token, by Maps with reductions:
//
//	y[j] = Σ_k x[k] w[j][k]
//
// fuse then merges the Maps that follow, such as bias, activation and residual, with any function of their elements. The product of a GPU alone is one that is bound by memory.
func vectors(p *program.Program, t Target) error {
	const maxElements = 1 << 23 // of the matrix; the product's kernel is faster for larger ones: 43 and 65 us for 50304 x 768 on an H200
	if t.Device.Kind != kernels.GPU {
		return nil
	}
	updated := map[*program.Value]bool{} // bases of states, in training, whose kernels are assembled beforehand
	for _, u := range p.Updates {
		updated[u.State.Base] = updated[u.State.Base] || u.Next.Base != u.State.Base
	}
	return each(p, func(in *program.Instr) (keep bool, err error) {
		x, ok := program.ProductOf(in.Op)
		if !ok || x.Dtype != kernels.Float32 || x.Batch != 1 || x.M != 1 || x.HasEpilogue() || !x.B.Trans || x.N < 2 || x.K < 2 || x.N*x.K > maxElements || len(in.In) != 2 {
			return true, nil
		}
		vector, matrix := in.In[0], in.In[1]
		shape := []int{int(x.N), int(x.K)}
		if updated[matrix.Base] || !program.Is[program.State](matrix.Base.Def.Op) || !vector.IsContiguous() || !matrix.IsContiguous() || !codegen.RowsWhole(t.Device, shape, []int{1}) {
			return true, nil
		}
		b := expr.NewBuilder(x.Dtype, x.Dtype)
		f, err := b.Func(b.Apply(expr.RowSum, b.Apply(expr.Mul, b.Operand(0), b.Operand(1))))
		if err != nil {
			return false, err
		}
		views := program.Collect([]*program.Value{vector, matrix}, func(v *program.Value) *program.Value {
			view := program.View{Offset: v.View.Offset, Strides: []int64{0, 1}}
			if v == matrix {
				view.Strides[0], view.Matmul = x.K, true
			}
			return p.EmitAlias(in.Nodes, v.Name, program.Type{Numeric: true, Dtype: v.Dtype, Shape: tensor.Shape(shape)}, v, view)
		})
		in.Op, in.In = program.Map{Func: f, Shape: tensor.Shape(shape), Axes: []int{1}, PerRow: []bool{true}}, views
		return true, nil
	})
}

// prologues fuses Maps with reductions over a vector, such as a normalization, into Maps that vectors made of products with the vector, if these alone read their result: each
// row of the matrix then computes the vector again.
func prologues(p *program.Program, t Target) error {
	if t.Device.Kind != kernels.GPU || !slices.ContainsFunc(p.Instrs, ofVector) {
		return nil
	}
	s := newRewriter(p)
	for _, in := range p.Instrs {
		if !ofVector(in) {
			continue
		}
		op := in.Op.(program.Map)
		for i, v := range in.In {
			def := v.Base.Def
			from, ok := def.Op.(program.Map)
			if !ok || len(def.Out) != 1 || s.liveOut[v.Base] || s.readCount[v.Base] != 1 || s.replacement[def] != nil || !slices.Equal(v.View.Strides, []int64{0, 1}) || v.View.Offset != 0 || v.IsBounded() ||
				!slices.Equal(from.Shape, op.Shape[1:]) || !slices.Equal(from.Axes, []int{0}) || from.PerRow[0] {
				continue
			}
			if err := s.prologue(in, i); err != nil {
				return in.InNode(err)
			}
			break
		}
	}
	return s.finish()
}

// prologue computes operand i of a Map of rows in it.
func (s *rewriter) prologue(in *program.Instr, i int) error {
	op, def := in.Op.(program.Map), in.In[i].Base.Def
	from := def.Op.(program.Map)
	whole := &program.Instr{In: slices.Delete(slices.Clone(in.In), i, i+1), Out: in.Out, Nodes: program.NodesOf(def, in)}
	for _, v := range def.In {
		alias := &program.Instr{Op: program.Alias{}, In: []*program.Value{v}, Nodes: def.Nodes}
		s.depth[alias], s.positions[alias] = s.depth[v.Def], s.positions[v.Def]
		view := v.View
		view.Strides = []int64{0, v.View.Strides[0]}
		whole.In = append(whole.In, s.p.NewAlias(alias, v.Name, program.Type{Numeric: true, Dtype: v.Dtype, Shape: op.Shape}, v.Base, view))
	}
	b := expr.NewBuilder(program.Collect(whole.In, func(v *program.Value) expr.Dtype { return v.Dtype })...)
	operands := b.Inputs()
	vector := b.Inline(from.Func, operands[len(in.In)-1:]...)[0]
	f, err := b.Func(b.Inline(op.Func, slices.Insert(slices.Clone(operands[:len(in.In)-1]), i, vector)...)...)
	if err != nil {
		return err
	}
	op.Func = f
	whole.Op = op
	for _, v := range in.Out {
		v.Def = whole
	}
	s.replace(in, whole, []*program.Instr{in, def})
	return nil
}

// ofVector reports whether a Map is one that vectors made of a product.
func ofVector(in *program.Instr) bool {
	op, mapped := in.Op.(program.Map)
	return mapped && len(op.Shape) == 2 && slices.Equal(op.Axes, []int{1}) && !slices.Contains(op.PerRow, false) && slices.ContainsFunc(in.In, func(v *program.Value) bool {
		return program.Is[program.State](v.Base.Def.Op) && v.IsContiguous()
	})
}
