package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// rewriter is a def-use index of a program that stays valid while instructions are replaced.
type rewriter struct {
	p           *program.Program
	readers     map[*program.Value][]*program.Instr // instructions that read a base, also through views; includes replaced ones
	readCount   map[*program.Value]int              // readers that are not replaced
	liveOut     map[*program.Value]bool             // bases of outputs and of states after a run
	depth       map[*program.Instr]int              // length of the longest dependency chain to it, in launches other than Maps
	replacement map[*program.Instr]*program.Instr   // by replaced instruction; nil if it is removed
	positions   map[*program.Instr][2]int           // in two topological orders
}

func newRewriter(p *program.Program) *rewriter {
	s := &rewriter{p, map[*program.Value][]*program.Instr{}, map[*program.Value]int{}, map[*program.Value]bool{}, map[*program.Instr]int{}, map[*program.Instr]*program.Instr{}, map[*program.Instr][2]int{}}
	s.order(0)
	s.order(1)
	for _, in := range p.Instrs {
		for _, v := range in.In {
			s.depth[in] = max(s.depth[in], s.depth[v.Def])
			if !program.Is[program.Alias](in.Op) {
				s.addReader(v.Base, in)
			}
		}
		if program.Computes(in.Op) && !program.Elementwise(in.Op) {
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

// order computes topological order k: the last instruction of the program after its dependencies, then the last of the
// remaining ones, and so on. Order 0 visits an instruction's dependencies from the first on, order 1 from the last.
func (s *rewriter) order(k int) {
	n := 0
	var add func(in *program.Instr)
	add = func(in *program.Instr) {
		at := s.positions[in]
		if at[k] > 0 {
			return
		}
		for i := range in.In {
			if k == 1 {
				i = len(in.In) - 1 - i
			}
			add(in.In[i].Def)
		}
		n++
		at[k] = n
		s.positions[in] = at
	}
	for _, in := range slices.Backward(s.p.Instrs) {
		add(in)
	}
}

// ready reports whether the result of def is in memory before other can start, whichever Maps are fused. Then other can
// read the result without an additional wait or store.
func (s *rewriter) ready(def, other *program.Instr) bool {
	if program.Is[program.Map](def.Op) {
		return s.needs(other, def)
	}
	return s.depth[def] < s.depth[other]
}

// needs reports whether instruction in depends on other. Its breadth-first search visits at most maxVisited instructions, so
// it may miss distant dependencies.
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

// addReader records that an instruction reads a base. Calls for one instruction must be consecutive.
func (s *rewriter) addReader(base *program.Value, in *program.Instr) {
	if list := s.readers[base]; len(list) == 0 || list[len(list)-1] != in {
		s.readers[base] = append(list, in)
		s.readCount[base]++
	}
}

// replaced reports whether an instruction is to be removed or has another one in its place.
func (s *rewriter) replaced(in *program.Instr) bool {
	_, is := s.replacement[in]
	return is
}

// replace substitutes instruction by for place and removes the instructions gone.
func (s *rewriter) replace(place, by *program.Instr, gone []*program.Instr) {
	for _, in := range gone {
		if s.replaced(in) { // gone has a Map twice if another Map reads it twice
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

// finish rebuilds the program with the replacements.
func (s *rewriter) finish() error {
	if len(s.replacement) == 0 {
		return nil
	}
	return rebuild(s.p, s.replacement, func(in *program.Instr) ([]*program.Instr, error) { return []*program.Instr{in}, nil })
}

// rebuild puts the instructions of a program in topological order, with each view before its first use. An instruction in replacement
// becomes another one, or is removed if that is nil. expand is called once for each instruction, after those that it depends on, and
// returns it with others before it.
func rebuild(p *program.Program, replacement map[*program.Instr]*program.Instr, expand func(in *program.Instr) ([]*program.Instr, error)) error {
	done := map[*program.Instr]bool{}
	for _, in := range p.Setup {
		done[in] = true
	}
	instrs := make([]*program.Instr, 0, len(p.Instrs))
	var failed error
	var emit func(in *program.Instr)
	emit = func(in *program.Instr) {
		if done[in] || failed != nil {
			return
		}
		done[in] = true
		for _, v := range in.In {
			emit(v.Def)
		}
		list, err := expand(in)
		if instrs = append(instrs, list...); failed == nil {
			failed = in.InNode(err)
		}
	}
	for _, in := range p.Instrs { // inputs keep their order, which is the order of the user's values
		if program.Is[program.Input](in.Op) {
			emit(in)
		}
	}
	for _, in := range p.Instrs {
		by, replaced := replacement[in]
		if !replaced {
			by = in
		}
		if by != nil && !program.Is[program.Alias](by.Op) {
			emit(by)
		}
	}
	for _, v := range p.Outputs {
		emit(v.Def)
	}
	p.Instrs = instrs
	return failed
}

// each calls f for each instruction, in order. f may append instructions to Instrs: they come before the instruction, which stays if f
// returns keep.
func each(p *program.Program, f func(in *program.Instr) (keep bool, err error)) error {
	instrs := p.Instrs
	p.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		keep, err := f(in)
		if err != nil {
			return in.InNode(err)
		}
		if keep {
			p.Instrs = append(p.Instrs, in)
		}
	}
	return nil
}
