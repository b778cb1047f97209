package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// surroundings records which instructions read which values of a program, while instructions are
// replaced.
type surroundings struct {
	p       *program.Program
	readers map[*program.Value][]*program.Instr // of a base, through views too, each once; those replaced stay in the list
	reads   map[*program.Value]int              // how many of them are not replaced
	wanted  map[*program.Value]bool             // bases that outputs, or states after a run, lie in
	depth   map[*program.Instr]int              // launches, other than Maps, that must run one after the other until it has run
	now     map[*program.Instr]*program.Instr   // the replacement of an instruction; nil for none
}

func newSurroundings(p *program.Program) *surroundings {
	s := &surroundings{p, map[*program.Value][]*program.Instr{}, map[*program.Value]int{}, map[*program.Value]bool{}, map[*program.Instr]int{}, map[*program.Instr]*program.Instr{}}
	for _, in := range p.Instrs {
		for _, v := range in.In {
			s.depth[in] = max(s.depth[in], s.depth[v.Def])
			if _, alias := in.Op.(program.Alias); !alias {
				s.read(v.Base, in)
			}
		}
		_, mapped := in.Op.(program.Map)
		if _, host := in.Op.(program.Host); host || program.Launches(in.Op) && !mapped {
			s.depth[in]++
		}
	}
	for _, v := range p.Outputs {
		s.wanted[v.Base] = true
	}
	for _, u := range p.Updates {
		s.wanted[u.Next.Base] = true
	}
	return s
}

// ready reports whether the result of an instruction is in memory before another can begin, in
// whatever way Maps are fused, so that the other one can read it without a wait or an extra write.
func (s *surroundings) ready(def, other *program.Instr) bool {
	if program.Pointwise(def.Op) {
		return s.needs(other, def, map[*program.Instr]bool{})
	}
	return s.depth[def] < s.depth[other]
}

// needs reports whether an instruction can run only after another.
func (s *surroundings) needs(in, other *program.Instr, seen map[*program.Instr]bool) bool {
	if in == other || seen[in] || s.depth[in] < s.depth[other] {
		return in == other
	}
	seen[in] = true
	return slices.ContainsFunc(in.In, func(v *program.Value) bool { return s.needs(v.Def, other, seen) })
}

// read records that an instruction reads a base. All reads of one instruction are recorded together.
func (s *surroundings) read(base *program.Value, in *program.Instr) {
	if list := s.readers[base]; len(list) == 0 || list[len(list)-1] != in {
		s.readers[base] = append(list, in)
		s.reads[base]++
	}
}

// replace puts an instruction at the place of another, for that one and others.
func (s *surroundings) replace(place, by *program.Instr, gone []*program.Instr) {
	for _, in := range gone {
		if _, replaced := s.now[in]; replaced { // a Map that another one reads twice is taken twice
			continue
		}
		s.now[in] = nil
		for i, v := range in.In {
			if same := func(o *program.Value) bool { return o.Base == v.Base }; !slices.ContainsFunc(in.In[:i], same) {
				s.reads[v.Base]--
			}
			s.depth[by] = max(s.depth[by], s.depth[in])
		}
	}
	s.now[place] = by
	for _, v := range by.In {
		s.read(v.Base, by)
	}
}

// finish writes the instructions into the program, each after its operands, and views where they
// are needed.
func (s *surroundings) finish() {
	if len(s.now) == 0 {
		return
	}
	done := map[*program.Instr]bool{}
	for _, in := range s.p.Setup {
		done[in] = true
	}
	instrs := make([]*program.Instr, 0, len(s.p.Instrs))
	var emit func(in *program.Instr)
	emit = func(in *program.Instr) {
		if done[in] {
			return
		}
		done[in] = true
		for _, v := range in.In {
			emit(v.Base.Def)
			emit(v.Def)
		}
		instrs = append(instrs, in)
	}
	for _, in := range s.p.Instrs { // inputs, whose order is that of the user's values
		if _, input := in.Op.(program.Input); input {
			emit(in)
		}
	}
	for _, in := range s.p.Instrs {
		if by, replaced := s.now[in]; replaced {
			in = by
		}
		if in == nil {
			continue
		}
		if _, alias := in.Op.(program.Alias); !alias {
			emit(in)
		}
	}
	for _, v := range s.p.Outputs {
		emit(v.Def)
	}
	s.p.Instrs = instrs
}
