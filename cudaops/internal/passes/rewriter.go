package passes

import (
	"iter"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// rewriter records which instructions read which values of a program, while instructions are
// replaced.
type rewriter struct {
	p           *program.Program
	readers     map[*program.Value][]*program.Instr // of a base, through views too, each once; those replaced stay in the list
	readCount   map[*program.Value]int              // how many of them are not replaced
	liveOut     map[*program.Value]bool             // bases that outputs, or states after a run, lie in
	depth       map[*program.Instr]int              // launches, other than Maps, that must run one after the other until it has run
	replacement map[*program.Instr]*program.Instr   // the replacement of an instruction; nil for none
	positions   map[*program.Instr][2]int           // in two orders in which instructions come after their operands
}

func newRewriter(p *program.Program) *rewriter {
	s := &rewriter{p, map[*program.Value][]*program.Instr{}, map[*program.Value]int{}, map[*program.Value]bool{}, map[*program.Instr]int{}, map[*program.Instr]*program.Instr{}, map[*program.Instr][2]int{}}
	s.order(0, slices.Values)
	s.order(1, func(in []*program.Value) iter.Seq[*program.Value] {
		return func(yield func(*program.Value) bool) {
			for _, v := range slices.Backward(in) {
				if !yield(v) {
					return
				}
			}
		}
	})
	for _, in := range p.Instrs {
		for _, v := range in.In {
			s.depth[in] = max(s.depth[in], s.depth[v.Def])
			if _, alias := in.Op.(program.Alias); !alias {
				s.addReader(v.Base, in)
			}
		}
		_, mapped := in.Op.(program.Map)
		if _, host := in.Op.(program.Host); host || program.Launches(in.Op) && !mapped {
			s.depth[in]++
		}
	}
	for _, v := range p.Outputs {
		s.liveOut[v.Base] = true
	}
	for _, u := range p.Updates {
		s.liveOut[u.Next.Base] = true
	}
	return s
}

// order records the places of instructions in order k: the last instruction of the program with all that it needs, then the
// last of the rest, and so on. operands chooses which operands of an instruction come first.
func (s *rewriter) order(k int, operands func([]*program.Value) iter.Seq[*program.Value]) {
	n := 0
	var add func(in *program.Instr)
	add = func(in *program.Instr) {
		at := s.positions[in]
		if at[k] > 0 {
			return
		}
		for v := range operands(in.In) {
			add(v.Def)
		}
		n++
		at[k] = n
		s.positions[in] = at
	}
	for _, in := range slices.Backward(s.p.Instrs) {
		add(in)
	}
}

// ready reports whether the result of an instruction is in memory before another can begin, in
// whatever way Maps are fused, so that the other one can read it without a wait or an extra write.
func (s *rewriter) ready(def, other *program.Instr) bool {
	if program.Pointwise(def.Op) {
		return s.needs(other, def)
	}
	return s.depth[def] < s.depth[other]
}

// needs reports whether an instruction can run only after another, as far as a search finds that which looks at
// maxVisited instructions, the nearest first.
func (s *rewriter) needs(in, other *program.Instr) bool {
	to, depth := s.positions[other], s.depth[other]
	seen, next := map[*program.Instr]bool{}, []*program.Instr{in}
	for len(next) > 0 && len(seen) <= maxVisited {
		from := next[0]
		next = next[1:]
		if from == other {
			return true
		}
		if at := s.positions[from]; seen[from] || at[0] < to[0] || at[1] < to[1] || s.depth[from] < depth {
			continue
		}
		seen[from] = true
		for _, v := range from.In {
			next = append(next, v.Def)
		}
	}
	return false
}

// addReader records that an instruction reads a base. All reads of one instruction are recorded together.
func (s *rewriter) addReader(base *program.Value, in *program.Instr) {
	if list := s.readers[base]; len(list) == 0 || list[len(list)-1] != in {
		s.readers[base] = append(list, in)
		s.readCount[base]++
	}
}

// replace puts an instruction at the place of another, for that one and others.
func (s *rewriter) replace(place, by *program.Instr, gone []*program.Instr) {
	for _, in := range gone {
		if _, replaced := s.replacement[in]; replaced { // a Map that another one reads twice is taken twice
			continue
		}
		s.replacement[in] = nil
		for i, v := range in.In {
			if same := func(o *program.Value) bool { return o.Base == v.Base }; !slices.ContainsFunc(in.In[:i], same) {
				s.readCount[v.Base]--
			}
			s.depth[by] = max(s.depth[by], s.depth[in])
		}
	}
	s.replacement[place], s.positions[by] = by, s.positions[place]
	for _, v := range by.In {
		s.addReader(v.Base, by)
	}
}

// finish writes the instructions into the program, each after its operands, and views where they
// are needed.
func (s *rewriter) finish() {
	if len(s.replacement) == 0 {
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
		if by, replaced := s.replacement[in]; replaced {
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
