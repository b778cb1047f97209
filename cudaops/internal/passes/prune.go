package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// prune removes the instructions whose values no output and no state depends on. Inputs stay, because the user sets all
// of them. It also joins the instructions of attention that share operands, and those of TopK.
func prune(p *program.Program, _ Target) error {
	needed := map[*program.Instr]bool{}
	var need func(v *program.Value)
	need = func(v *program.Value) {
		if needed[v.Def] {
			return
		}
		needed[v.Def] = true
		for _, in := range v.Def.In {
			need(in)
		}
	}
	for _, v := range p.Outputs {
		need(v)
	}
	for _, u := range p.Updates {
		need(u.Next)
	}
	unneeded := func(in *program.Instr) bool {
		switch in.Op.(type) {
		case program.Input, program.State:
			return false
		}
		return !needed[in]
	}
	p.Setup = slices.DeleteFunc(p.Setup, unneeded)
	p.Instrs = slices.DeleteFunc(p.Instrs, unneeded)
	attentions(p)
	largestElements(p)
	return nil
}
