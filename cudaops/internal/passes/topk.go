package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// largestElements joins a Pick of the largest elements of rows by the indices of a TopK with that TopK, which then writes both.
func largestElements(p *program.Program) {
	of := map[*program.Value]*program.Instr{} // by the indices
	p.Instrs = slices.DeleteFunc(p.Instrs, func(in *program.Instr) bool {
		k, _ := in.Op.(program.Kernel)
		if op, ok := k.Planner.(interface{ Largest() (basic.Largest, bool) }); ok {
			if _, ok = op.Largest(); ok {
				of[in.Out[0]] = in
				return false
			}
		}
		op, ok := k.Planner.(interface{ Picks() (int, bool) })
		if !ok || len(in.In) != 2 || of[in.In[1]] == nil {
			return false
		}
		axis, ok := op.Picks()
		to := of[in.In[1]]
		if !ok || in.In[0] != to.In[0] || axis != len(in.In[0].Shape)-1 || len(to.Out) > 1 {
			return false
		}
		l, _ := to.Op.(program.Kernel).Planner.(interface{ Largest() (basic.Largest, bool) }).Largest()
		l.Values = true
		in.Out[0].Def = to
		to.Op, to.Out, to.Nodes = program.Kernel{Planner: l}, append(to.Out, in.Out...), program.NodesOf(to, in)
		return true
	})
}
