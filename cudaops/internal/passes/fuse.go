package passes

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
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
	mostVisited    = 1000 // instructions looked at to find a way around a group

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
	visited int // the last search that came here

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
	searches int
	apart    map[[2]*group]bool // that cannot be one, nor later: other groups only grow
}

func newFuser(p *program.Program, dev kernels.Device) *fuser {
	f := &fuser{p: p, device: dev, vertices: make([]*vertex, len(p.Instrs)), of: make(map[*program.Instr]*vertex, len(p.Instrs)),
		reach: make(prefixMax, len(p.Instrs)+1), apart: map[[2]*group]bool{}}
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
	return f
}

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
		joint := f.join(from, v.group)
		if joint == nil {
			continue
		}
		f.reach.raise(joint.members[0].at, joint.last())
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
		for _, q := range v.readers[:i] {
			if r.group == nil || q.group == nil || r.group == q.group {
				continue
			}
			if joint := f.join(q.group, r.group); joint != nil {
				f.reach.raise(joint.members[0].at, joint.last())
			}
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
		for _, r := range s.readers {
			if r.group == nil || r.group == v.group || !r.group.reduces() && !v.group.reduces() {
				continue
			}
			if joint := f.join(r.group, v.group); joint != nil {
				f.reach.raise(joint.members[0].at, joint.last())
			}
		}
	}
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
		for i, o := range others {
			if o.neededBefore(v.at) {
				continue
			}
			if joint := f.join(o, g); joint != nil {
				f.reach.raise(joint.members[0].at, joint.last())
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
	if a.operations+b.operations > mostOperations || f.apart[pair] {
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
		return g
	}
	a.take()
	b.take()
	f.apart[pair] = true
	return nil
}

// runs reports whether a group can be one instruction on the device: its arguments are
// not too many, and rows that are split among blocks have their reductions at once and
// no outputs but those with one element for each row.
func (f *fuser) runs(g *group) bool {
	if len(g.outputs()) > mostOutputs {
		return false
	}
	if g.inputs() > mostOperands && len(g.operands()) > mostOperands {
		return false
	}
	if g.axes == nil || kernels.RowsWhole(f.device, g.shape, g.axes) {
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
// or so many ways out of a that looking at them would take too long.
//
// Ways lead from an instruction to later ones, and from one member of a group to the
// others. So none leads to b from behind all members of all groups that begin before
// b ends.
func (f *fuser) around(a, b *group) bool {
	f.searches++
	s := search{a: a, b: b, number: f.searches, left: mostVisited, last: max(b.last(), f.reach.until(b.last()))}
	return s.leave(a.members, false)
}

// search is a search for a way from a to b.
type search struct {
	a, b         *group
	number, left int
	last         int // the last place on such a way
}

// leave reports whether a way leads from members of a group to b; outside demands that
// they are not a's.
func (s *search) leave(members []*vertex, outside bool) bool {
	return slices.ContainsFunc(members, func(m *vertex) bool {
		return slices.ContainsFunc(m.readers, func(r *vertex) bool { return s.visit(r, outside) })
	})
}

func (s *search) visit(v *vertex, outside bool) bool {
	if v.group == s.b {
		return outside
	}
	if v.group == s.a || v.visited == s.number || v.at > s.last {
		return false
	}
	if s.left--; s.left < 0 {
		return true
	}
	v.visited = s.number
	if v.group == nil {
		return slices.ContainsFunc(v.readers, func(r *vertex) bool { return s.visit(r, true) })
	}
	for _, m := range v.group.members {
		m.visited = s.number
	}
	return s.leave(v.group.members, true)
}

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
