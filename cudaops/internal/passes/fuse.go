package passes

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
)

// fuse joins Maps and Rows that work on the same elements into one instruction, which
// computes, stores the values that others need and keeps the rest in registers: a chain of
// element-wise ops becomes one launch, and so does a softmax or a layer norm with
// its neighbours.
//
// An instruction joins the groups that its inputs come from, one after the other,
// where the joint group still is one iteration space and nothing outside would have
// to run both before and after it. No value is computed twice and no sum reordered,
// so fusing changes no bit.
//
// An instruction joins the group of its user rather than that of its inputs if these are
// in memory in any case, or are results of instructions that wait in the same way: so the
// derivative of tanh takes tanh from the forward pass, not 1 - tanh².
func fuse(p *program.Program, t Target) error {
	f := newFuser(p, t.Device)
	for _, v := range f.vertices {
		if v.group == nil {
			continue
		}
		if v.waiting = v.waits(); !v.waiting {
			f.joinInputs(v)
		}
	}
	for _, v := range f.vertices { // those that no group took in
		if v.waiting {
			f.joinInputs(v)
		}
	}
	for _, v := range f.vertices { // an instruction that did not fit one of those may fit all
		if v.group != nil {
			f.joinInputs(v)
		}
	}
	for _, v := range f.vertices {
		if hasEpilogue(v.Op) {
			f.joinReaders(v)
		}
		if v.group != nil {
			f.joinSiblings(v)
		}
	}
	f.joinShort()
	return f.rewrite()
}

// Limits of one fused instruction: arguments of a launch and registers are few.
const (
	mostOperands   = 16
	mostOutputs    = 8
	mostOperations = 128
	mostVisited    = 1000 // instructions looked at from either end to find a way around a group
	mostSiblings   = 256  // readers of a value on either side of one, or earlier reductions of a shape, that a group is tried with

	shortReduction = 1 << 20 // elements, which take no longer to read than a launch
)

// vertex is an instruction of the program with its properties for fusion.
type vertex struct {
	*program.Instr
	at      int       // place in Instrs
	group   *group    // nil for an instruction that stays as it is
	sources []*vertex // that compute the bases of In; nil for those of Setup
	readers []*vertex // instructions that read its results, through views too
	kept    bool      // its results are in memory however groups are made
	wanted  bool      // it computes a base that an output lies in
	updates bool      // it computes the new value of a state, over that state
	waiting bool
	visited int // the front that found it last, by number

	// In a tree, each vertex is a child of the deepest of its sources.
	depth   int // vertices on the longest way to it
	first   int // its number: those below it have the next ones
	size    int // vertices below and with it
	nextSub int // the number of its next child

	domain []int // that a Map or Rows goes over, without axes of extent 1
	count  int64 // elements of the domain
	flat   bool  // they may be counted through in any other shape
}

type fuser struct {
	p        *program.Program
	device   kernels.Device
	vertices []*vertex
	of       map[*program.Instr]*vertex
	reach    prefixMax // by the place of a group's first member, that of its last
	origin   prefixMax // by the mirrored place of a group's last member, that of its first
	searches int
	apart    map[[2]*group]bool // that cannot be one, nor later: other groups only grow
}

func newFuser(p *program.Program, dev kernels.Device) *fuser {
	f := &fuser{p: p, device: dev, vertices: make([]*vertex, len(p.Instrs)), of: make(map[*program.Instr]*vertex, len(p.Instrs)),
		reach: make(prefixMax, len(p.Instrs)+1), origin: make(prefixMax, len(p.Instrs)+1), apart: map[[2]*group]bool{}}
	for i, in := range p.Instrs {
		v := &vertex{Instr: in, at: i, kept: !program.Pointwise(in.Op)}
		f.vertices[i], f.of[in] = v, v
		if !v.kept {
			v.group = newGroup(v)
		}
		if _, alias := in.Op.(program.Alias); alias {
			continue
		}
		for _, from := range in.In {
			source := f.of[from.Base.Def]
			if v.sources = append(v.sources, source); source != nil {
				source.readers = append(source.readers, v)
				source.kept = source.kept || v.group == nil
			}
		}
	}
	for _, out := range p.Outputs {
		if v := f.of[out.Base.Def]; v != nil {
			v.kept, v.wanted = true, true
		}
	}
	for _, u := range p.Updates {
		if v := f.of[u.Next.Def]; v != nil {
			v.kept, v.wanted, v.updates = true, true, true
		}
	}
	f.number()
	return f
}

// number numbers the vertices of the tree.
func (f *fuser) number() {
	for _, v := range f.vertices {
		if s := v.deepest(); s != nil {
			v.depth = s.depth + 1
		}
	}
	for _, v := range slices.Backward(f.vertices) {
		v.size++
		if s := v.deepest(); s != nil {
			s.size += v.size
		}
	}
	roots := 0
	for _, v := range f.vertices {
		next := &roots
		if s := v.deepest(); s != nil {
			next = &s.nextSub
		}
		v.first, v.nextSub = *next, *next+1
		*next += v.size
	}
}

// deepest returns the source at the end of the longest way, nil for a vertex without sources.
func (v *vertex) deepest() (deepest *vertex) {
	for _, s := range v.sources {
		if s != nil && (deepest == nil || s.depth > deepest.depth) {
			deepest = s
		}
	}
	return deepest
}

// below reports whether a vertex is below another one in the tree, or is that one: then it depends on it.
func (v *vertex) below(of *vertex) bool { return of.first <= v.first && v.first < of.first+of.size }

// waits reports whether an instruction waits for its users.
func (v *vertex) waits() bool {
	needed := func(s *vertex) bool { return s != nil && !s.kept && !s.waiting }
	op, mapped := v.Op.(program.Map)
	return !v.kept && (mapped && op.Late || !slices.ContainsFunc(v.sources, needed))
}

// joinInputs joins the group of an instruction with those of its inputs, and then
// those of the inputs of instructions that waited for it.
func (f *fuser) joinInputs(v *vertex) {
	for _, s := range v.sources {
		if s == nil || s.group == nil || s.group == v.group {
			continue
		}
		from := s.group
		if f.join(from, v.group) == nil {
			continue
		}
		for _, m := range from.members {
			if m.waiting {
				f.joinInputs(m)
			}
		}
	}
}

// joinReaders joins the groups that read the same value: those that were one while a Map
// that is now part of a product was among them.
func (f *fuser) joinReaders(v *vertex) {
	for i, r := range v.readers {
		for _, q := range v.readers[max(i-mostSiblings, 0):i] {
			if r.group == nil || q.group == nil || r.group == q.group {
				continue
			}
			f.join(q.group, r.group)
		}
	}
}

// joinSiblings joins the group with Rows that an instruction is in with others that read
// the same values, where one of the two has no more than an element for each row: one pass
// over memory for both, such as the derivatives by scale and bias.
func (f *fuser) joinSiblings(v *vertex) {
	for _, s := range v.sources {
		if s == nil || s.group == v.group || s.Out[0].Elements() < v.count {
			continue
		}
		for _, r := range s.near(v) {
			if r.group == nil || r.group == v.group || !r.group.reduces() && !v.group.reduces() {
				continue
			}
			f.join(r.group, v.group)
		}
	}
}

// near returns the readers of a vertex that come next before and after one of them.
func (v *vertex) near(reader *vertex) []*vertex {
	i, _ := slices.BinarySearchFunc(v.readers, reader.at, func(r *vertex, at int) int { return r.at - at })
	return v.readers[max(i-mostSiblings, 0):min(i+mostSiblings, len(v.readers))]
}

// joinShort joins groups with Rows that reduce different values of one shape over the same axes: those of few elements, which
// cost a launch each, where nothing needs the results of the first before the second ends. So the gradients of several
// biases are one launch.
func (f *fuser) joinShort() {
	found := map[string][]*group{}
	for _, v := range f.vertices {
		g := v.group
		if g == nil || g.last() != v.at || g.count > shortReduction || !g.reduces() {
			continue
		}
		key := fmt.Sprint(g.shape, g.axes)
		others := found[key]
		others = others[max(len(others)-mostSiblings, 0):]
		for i, o := range others {
			if o.neededBefore(v.at) {
				continue
			}
			if joint := f.join(o, g); joint != nil {
				others = slices.Delete(others, i, i+1)
				g = joint
				break
			}
		}
		found[key] = append(others, g)
	}
}

// neededBefore reports whether an instruction before a place reads a result of the group.
func (g *group) neededBefore(at int) bool {
	return slices.ContainsFunc(g.members, func(m *vertex) bool {
		return slices.ContainsFunc(m.readers, func(r *vertex) bool { return !g.inside(r) && r.at < at })
	})
}

// join makes one group of the members of both and returns it. If they cannot be one, it
// returns nil and they stay as they are.
func (f *fuser) join(a, b *group) *group {
	pair := [2]*group{a, b}
	if a.operations+b.operations > mostOperations || tooManyOutputs(a, b) || f.apart[pair] {
		return nil
	}
	g := merge(a, b)
	if g == nil || !g.consistent(a, b) || f.around(a, b) || f.around(b, a) {
		f.apart[pair] = true
		return nil
	}
	slices.SortFunc(g.members, func(x, y *vertex) int { return x.at - y.at })
	g.take()
	if f.runs(g) {
		f.reach.raise(g.first(), g.last())
		f.origin.raise(f.mirrored(g.last()), f.mirrored(g.first()))
		return g
	}
	a.take()
	b.take()
	f.apart[pair] = true
	return nil
}

// tooManyOutputs reports whether the members of two groups have more results that others read than an
// instruction may have outputs.
func tooManyOutputs(a, b *group) bool {
	outside := func(r *vertex) bool { return r.group != a && r.group != b }
	n := 0
	for _, members := range [][]*vertex{a.members, b.members} {
		for _, m := range members {
			if m.wanted || slices.ContainsFunc(m.readers, outside) {
				n++
			}
			if n > mostOutputs {
				return true
			}
		}
	}
	return false
}

// runs reports whether a group can be one instruction on the device: its operands are
// not too many, and rows that are split among blocks have their reductions at once and
// no outputs but those with one element for each row.
func (f *fuser) runs(g *group) bool {
	if g.inputs() > mostOperands && len(g.operands()) > mostOperands {
		return false
	}
	if g.axes == nil || codegen.RowsWhole(f.device, g.shape, g.axes) {
		return true
	}
	fused, err := g.build()
	if err != nil || slices.Contains(fused.perRow, false) {
		return false
	}
	s, err := fused.f.Stages(fused.perRow)
	return err == nil && len(s.Stages) <= 1
}

// around reports whether there is a way from a to b by instructions outside of both,
// or so many instructions lie on ways out of a and on ways into b that looking at them would take too long.
//
// Ways lead from an instruction to later ones, and from one member of a group to the
// others. So none leads to b from behind b and all groups that begin before b ends, those that begin before these end,
// and so on; nor from a to what is before a and all groups that end after a begins, and so on.
func (f *fuser) around(a, b *group) bool {
	f.searches += 2
	s := search{out: front{from: a, to: b, number: f.searches, other: f.searches + 1}, in: front{from: b, to: a, number: f.searches + 1, other: f.searches}}
	s.last = until(b.last(), f.reach.until)
	s.first = f.mirrored(until(f.mirrored(a.first()), f.origin.until))
	if leads(a, b) || s.leave(a.members, false) || s.enter(b.members, false) {
		return true
	}
	for range mostVisited {
		if len(s.out.next) == 0 || len(s.in.next) == 0 {
			return false
		}
		if s.leave(s.out.take(), true) || s.enter(s.in.take(), true) {
			return true
		}
	}
	return true
}

// until returns the first of n, f(n), f(f(n)) and so on that f leaves as it is or makes less.
func until(n int, f func(int) int) int {
	for f(n) > n {
		n = f(n)
	}
	return n
}

// mirrored returns a place counted from the end of the program.
func (f *fuser) mirrored(at int) int { return len(f.vertices) - 1 - at }

// leads reports whether the last member of b is below a reader of a in the tree, so that a long way is found without a search.
func leads(a, b *group) bool {
	end := b.members[len(b.members)-1]
	for _, m := range a.members {
		for _, r := range m.readers { // in the order of the program
			if r.at > end.at {
				break
			}
			if r.group != a && r.group != b && end.below(r) {
				return true
			}
		}
	}
	return false
}

// search is a search for a way from one group to another, from both ends.
type search struct {
	out, in     front
	first, last int // places on such a way
}

// front is what was found from one end.
type front struct {
	from, to      *group
	number, other int       // that vertices found from this end, and from the other one, were visited with
	next          []*vertex // whose neighbours were not looked at yet
}

// leave goes on from vertices to their readers and reports whether that completes a way; outside tells that they are not a's:
// a way leads through others.
func (s *search) leave(vertices []*vertex, outside bool) bool {
	for _, v := range vertices {
		for _, r := range v.readers {
			if r.at > s.last {
				break
			}
			if s.out.find(r, outside) {
				return true
			}
		}
	}
	return false
}

// enter goes on from vertices to their sources in the same way.
func (s *search) enter(vertices []*vertex, outside bool) bool {
	for _, v := range vertices {
		for _, from := range v.sources {
			if from != nil && from.at >= s.first && s.in.find(from, outside) {
				return true
			}
		}
	}
	return false
}

// find adds a vertex, with its group, to those found and reports whether that completes a way.
func (w *front) find(v *vertex, outside bool) bool {
	switch {
	case v.group == w.to:
		return outside
	case v.group == w.from || v.visited == w.number:
		return false
	case v.visited == w.other:
		return true
	}
	for _, m := range v.together() {
		m.visited = w.number
	}
	w.next = append(w.next, v)
	return false
}

// take removes the vertex that was found last and returns the members of its group.
func (w *front) take() []*vertex {
	v := w.next[len(w.next)-1]
	w.next = w.next[:len(w.next)-1]
	return v.together()
}

// together returns the members of the vertex's group, or the vertex alone.
func (v *vertex) together() []*vertex {
	if v.group == nil {
		return []*vertex{v}
	}
	return v.group.members
}

// first returns the place of the first member.
func (g *group) first() int { return g.members[0].at }

// last returns the place of the last member.
func (g *group) last() int { return g.members[len(g.members)-1].at }

// prefixMax holds a number for each place, 0 at first, and returns the greatest of those
// up to a place (Fenwick, 1994).
type prefixMax []int

// raise makes the number of a place at least n.
func (m prefixMax) raise(at, n int) {
	for i := at + 1; i < len(m); i += i & -i {
		m[i] = max(m[i], n)
	}
}

// until returns the greatest number of the places up to one.
func (m prefixMax) until(at int) (most int) {
	for i := at + 1; i > 0; i -= i & -i {
		most = max(most, m[i])
	}
	return most
}
