package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// onto replaces the sum of a value and the gradient of an embedding, such as that w.r.t. a table that is also the last layer's matrix, by a launch that adds the gradient's rows to the
// value, in its memory: no other instruction may read either of them. Rows that the embedding has not read stay, so a zero in
// them keeps its sign: all other bits are those of the sum.
func onto(p *program.Program, t Target) error {
	s := newRewriter(p)
	for _, in := range p.Instrs {
		op, mapped := in.Op.(program.Map)
		if !mapped || len(in.In) != 2 || len(in.Out) != 1 || !isSum(op.Func) || !in.ReadsInOrder(in.In[0]) || !in.ReadsInOrder(in.In[1]) {
			continue
		}
		alone := func(v *program.Value) bool {
			return s.readCount[v.Base] == 1 && !s.liveOut[v.Base] && program.Launches(v.Base.Def.Op)
		}
		for i, v := range in.In {
			def, base := v.Base.Def, in.In[1-i].Base
			k, _ := def.Op.(program.Kernel)
			adds, is := k.Planner.(interface {
				Onto(kernels.Device) (kernels.Planner, bool)
			})
			if !is || !alone(v) || !alone(base) || base == v.Base {
				continue
			}
			planner, ok := adds.Onto(t.Device)
			if !ok {
				continue
			}
			by := &program.Instr{Op: program.Kernel{Planner: planner, InPlace: true}, In: append([]*program.Value{base}, def.In...), Out: in.Out, Nodes: program.NodesOf(def, in)}
			in.Out[0].Def = by
			s.replace(in, by, []*program.Instr{in, def})
			break
		}
	}
	return s.finish()
}

// isSum reports whether a function is the sum of its two operands.
func isSum(f expr.Func) bool {
	types := f.Operands()
	if len(types) != 2 || types[0] != types[1] || !types[0].IsFloat() {
		return false
	}
	b := expr.NewBuilder(types...)
	sum, err := b.Func(b.Apply(expr.Add, b.Inputs()...))
	return err == nil && f == sum
}
