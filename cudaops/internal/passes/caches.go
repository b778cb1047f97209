package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// again makes a view of a Map that only rounds elements which are stored in 16 bits already: the rows that a state in 16 bits gets, and its next value for instructions that read 16 bits. Views of the result, in later instructions, become views of those.
func (m *mixer) again(in *program.Instr, later []*program.Instr) error {
	b := expr.NewBuilder(m.as)
	round, err := b.Func(b.Convert(b.Convert(b.Operand(0), kernels.Float32), m.as))
	if op := in.Op.(program.Map); err != nil || op.Func != round || len(op.Axes) > 0 || !in.In[0].IsContiguous() {
		return err
	}
	from, v := in.In[0], in.Out[0]
	for _, other := range later {
		for _, o := range other.Out {
			if o.Base == v && o != v {
				o.Base, o.View.Offset, o.Dtype = from.Base, o.View.Offset+from.View.Offset, m.as
			}
		}
	}
	in.Op = program.Alias{}
	v.Base, v.View = from.Base, program.Contiguous(v.Shape)
	v.View.Offset, v.Dtype = from.View.Offset, m.as
	return nil
}

// weights makes a Map of a vector and a matrix, which is bound by memory, read the matrix in 16 bits: a copy of the state.
func (m *mixer) weights(in *program.Instr) error {
	if !ofVector(in) {
		return nil
	}
	for i, v := range in.In {
		if v.Base.Dtype != kernels.Float32 || !program.Is[program.State](v.Base.Def.Op) || !v.IsContiguous() {
			continue
		}
		c, err := m.copyOf(v.Base)
		if err != nil || c == nil {
			return err
		}
		in.In[i] = m.alias(v, c)
	}
	return nil
}
