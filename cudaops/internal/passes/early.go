package passes

import (
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// early moves each product that is added to a running sum to where its operands are ready. Gorgonia
// adds up the gradients of a parameter that is used many times, as those of recurrent networks are, at the end of
// the graph; there, one product would have to wait for the other. Beside the launches that make the operands of the next
// they take no time of their own. The sum so far makes place for the next one, so it takes no more memory.
func early(p *program.Program, _ Target) error {
	s := newSurroundings(p)
	type key struct{ place, moved int }
	keys := map[*program.Instr]key{} // in the order of which the instructions run
	moved := false
	for i, in := range p.Instrs {
		keys[in] = key{i, 0}
		if !s.accumulates(in) {
			continue
		}
		var ready key
		for _, v := range in.In {
			if k := keys[v.Base.Def]; cmp.Or(cmp.Compare(k.place, ready.place), cmp.Compare(k.moved, ready.moved)) > 0 {
				ready = k
			}
		}
		keys[in] = key{ready.place, ready.moved + 1}
		moved = true
	}
	if !moved {
		return nil
	}
	slices.SortStableFunc(p.Instrs, func(a, b *program.Instr) int {
		return cmp.Or(cmp.Compare(keys[a].place, keys[b].place), cmp.Compare(keys[a].moved, keys[b].moved))
	})
	s.write() // with views where they are needed now
	return nil
}

// accumulates reports whether an instruction adds a product to a sum that nobody else reads.
func (s *surroundings) accumulates(in *program.Instr) bool {
	if !hasEpilogue(in.Op) {
		return false
	}
	sum := false
	for k, v := range in.In {
		for _, r := range s.readers[v.Base] {
			if _, host := r.Op.(program.Host); host { // it may write into what it reads
				return false
			}
		}
		sum = sum || k >= 2 && v.Bytes() == in.Out[0].Bytes() && len(s.readers[v.Base]) == 1 && !s.wanted[v.Base] && program.Launches(v.Base.Def.Op)
	}
	return sum
}
