package passes

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
)

// fuse merges Maps with the same iteration space into one instruction. It stores the values that other
// instructions read and keeps the others in registers. A chain of element-wise ops becomes one launch, as does a
// softmax or a layer norm with the ops around it.
//
// fuse merges the group of an instruction with the groups that compute its inputs, one at a time. The merged group must
// have one iteration space, and no instruction outside of it may depend on it and be one of its dependencies. No value is
// computed twice and no sum is reordered, so fusing changes no bit.
//
// An instruction waits to be merged with its consumers instead of its producers if all of its inputs are materialized
// anyway or computed by waiting instructions. So the gradient of tanh reads tanh from the forward pass instead of
// 1 - tanh².
func fuse(p *program.Program, t Target) error {
	if err := splitRows(p, t.Device); err != nil {
		return err
	}
	f := newFuser(p, t.Device)
	f.ordered = convolvesLast(p, t)
	for _, v := range f.vertices {
		if v.group == nil {
			continue
		}
		if v.waiting = v.waits(); !v.waiting {
			f.joinInputs(v)
		}
	}
	for _, last := range []bool{false, true} { // those that were not merged with a consumer, which may wait, too
		for _, v := range f.vertices {
			if v.waiting && v.op.FuseWithConsumers == last {
				f.joinInputs(v)
			}
		}
	}
	for _, v := range f.vertices { // an instruction that fit none of its producers alone may fit their merged group
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
	if err := f.rewrite(); err != nil {
		return err
	}
	return prologues(p, t)
}

// rewrite rebuilds the program with the fused instructions. Each is placed where its last member was, or earlier if others
// need it there.
func (f *fuser) rewrite() error {
	replacement, groups := map[*program.Instr]*program.Instr{}, map[*program.Instr]*group{}
	for _, v := range f.vertices {
		g := v.group
		if g == nil {
			continue
		}
		if g.instr == nil {
			g.instr = new(program.Instr)
			groups[g.instr] = g
		}
		for i, from := range v.In {
			if !g.inside(v.sources[i]) {
				g.instr.In = append(g.instr.In, from.Base)
			}
		}
		v.Out[0].Def, replacement[v.Instr] = g.instr, nil
		if g.last() == v.at {
			replacement[v.Instr] = g.instr
		}
	}
	return rebuild(f.p, replacement, func(in *program.Instr) ([]*program.Instr, error) {
		if g := groups[in]; g != nil {
			return g.fused(f.p)
		}
		return []*program.Instr{in}, nil
	})
}

// Limits of a fused instruction, set by the arguments of a launch and by registers, and limits of searches.
const (
	maxOperands   = 16
	maxOutputs    = 8
	maxOperations = 128
	maxVisited    = 1000 // groups found from each end in a search for a path between groups, or instructions in one for a dependency
	maxSiblings   = 256  // readers before and after an instruction, or earlier reductions of a shape, to try to merge with

	shortReduction = 1 << 20 // elements that are read in at most the time of a launch
)

// vertex is an instruction of the program with its properties for fusion.
type vertex struct {
	*program.Instr
	at           int       // index in Instrs
	group        *group    // nil for an instruction that cannot be fused
	sources      []*vertex // the instructions that compute the bases of In; nil for values of Setup, such as inputs and states
	readers      []*vertex // the instructions that read its results, also through views
	materialized bool      // its results are stored in memory for any grouping
	liveOut      bool      // an output, or the new value of a state, is a view of its result
	updates      bool      // it computes the new value of a state, over that state
	waiting      bool      // it waits to be merged with its consumers
	split        bool      // convolutions read its elements as splits, or Maps that compute such elements read them
	visited      int       // number of the front that found it last

	op     program.Map // of a vertex with a group
	domain []int       // its iteration space, without axes of extent 1
	count  int64       // elements of the domain
	flat   bool        // the domain may be reshaped
}

type fuser struct {
	p         *program.Program
	device    kernels.Device
	vertices  []*vertex
	vertexOf  map[*program.Instr]*vertex
	ofSetup   map[*program.Value][]*vertex // the instructions that read a value of Setup, also through views
	reach     prefixMax                    // by index of a group's first member, the index of its last
	origin    prefixMax                    // by mirrored index of a group's last member, the mirrored index of its first
	searches  int
	unfusable map[[2]*group]bool // pairs that cannot be merged; this stays true, because groups only grow
	ordered   bool               // axes of channels come last in the end
}

func newFuser(p *program.Program, dev kernels.Device) *fuser {
	f := &fuser{p: p, device: dev, vertices: make([]*vertex, len(p.Instrs)), vertexOf: make(map[*program.Instr]*vertex, len(p.Instrs)), ofSetup: map[*program.Value][]*vertex{},
		reach: make(prefixMax, len(p.Instrs)+1), origin: make(prefixMax, len(p.Instrs)+1), unfusable: map[[2]*group]bool{}}
	for i, in := range p.Instrs {
		v := &vertex{Instr: in, at: i, materialized: !program.Is[program.Map](in.Op)}
		f.vertices[i], f.vertexOf[in] = v, v
		if !v.materialized {
			v.group = newGroup(v)
		}
		if program.Is[program.Alias](in.Op) {
			continue
		}
		for _, from := range in.In {
			source := f.vertexOf[from.Base.Def]
			if v.sources = append(v.sources, source); source != nil {
				source.readers = append(source.readers, v)
				source.materialized = source.materialized || v.group == nil
			} else {
				f.ofSetup[from.Base] = append(f.ofSetup[from.Base], v)
			}
		}
	}
	for _, out := range p.Outputs {
		if v := f.vertexOf[out.Base.Def]; v != nil {
			v.materialized, v.liveOut = true, true
		}
	}
	for _, u := range p.Updates {
		if v := f.vertexOf[u.Next.Base.Def]; v != nil {
			v.materialized, v.liveOut, v.updates = true, true, u.Next.Base == u.Next
		}
	}
	f.markSplits()
	return f
}

// splitMapMin is in elements of images. Between a launch that computes fewer and one that splits them, most stay in L2.
const splitMapMin = 1 << 23

// markSplits marks the instructions on elements whose results convolutions read as splits. A Map stores these splits, with channels last (see storeSplits), rows do not.
func (f *fuser) markSplits() {
	for _, v := range slices.Backward(f.vertices) {
		if v.group == nil || len(v.op.Axes) > 0 || kernels.Count(v.op.Shape) < splitMapMin {
			continue
		}
		for _, r := range v.readers {
			if v.split = v.split || r.group != nil && r.split && slices.Equal(r.op.Shape, v.op.Shape); v.split || r.group != nil {
				continue
			}
			c, is := program.ConvOf(r.Op)
			if !is {
				continue
			}
			for i, x := range c.Splits(f.device) {
				v.split = v.split || r.In[i].Base == v.Out[0] && codegen.StoresChannelsLast(x.Rows, x.Cols) && x.Count*x.Rows*x.Cols == v.Out[0].Elements()
			}
		}
	}
}

// waits reports whether an instruction waits to be merged with its consumers.
func (v *vertex) waits() bool {
	needed := func(s *vertex) bool { return s != nil && !s.materialized && !s.waiting }
	return !v.materialized && (v.op.FuseWithConsumers || !slices.ContainsFunc(v.sources, needed))
}

// joinInputs merges the group of an instruction with the groups of its inputs, then with the groups of the inputs of
// instructions that waited for it.
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

// joinReaders merges the groups that read the result of a matmul with an epilogue. They would have been merged through
// the Map that is now the epilogue.
func (f *fuser) joinReaders(v *vertex) {
	for i, r := range v.readers {
		for _, q := range v.readers[max(i-maxSiblings, 0):i] {
			if r.group == nil || q.group == nil || r.group == q.group {
				continue
			}
			f.join(q.group, r.group)
		}
	}
}

// joinSiblings merges the group of an instruction with groups that read the same value, if one of the two only returns
// one element per row. One pass over memory then serves both, such as the gradients w.r.t. scale and bias.
func (f *fuser) joinSiblings(v *vertex) {
	for i, s := range v.sources {
		base := v.In[i].Base
		readers := f.ofSetup[base]
		if s != nil {
			readers = s.readers
		}
		if s != nil && s.group == v.group || base.Elements() < v.count {
			continue
		}
		for _, r := range near(readers, v) {
			if r.group == nil || r.group == v.group || !r.group.reduces() && !v.group.reduces() {
				continue
			}
			f.join(r.group, v.group)
		}
	}
}

// near returns the readers of a value next to one of them in program order, at most maxSiblings in each direction.
func near(readers []*vertex, reader *vertex) []*vertex {
	i, _ := slices.BinarySearchFunc(readers, reader.at, func(r *vertex, at int) int { return r.at - at })
	return readers[max(i-maxSiblings, 0):min(i+maxSiblings, len(readers))]
}

// joinShort merges groups that reduce different values of one shape along the same axes, if the values have few elements and
// nothing reads the results of the first group before the second. So the gradients of several biases are one launch.
func (f *fuser) joinShort() {
	found := map[string][]*group{}
	for _, v := range f.vertices {
		g := v.group
		if g == nil || g.last() != v.at || g.count > shortReduction || !g.reduces() {
			continue
		}
		key := fmt.Sprint(g.shape, g.axes)
		others := found[key]
		others = others[max(len(others)-maxSiblings, 0):]
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

// neededBefore reports whether an instruction before index at reads a result of the group.
func (g *group) neededBefore(at int) bool {
	return slices.ContainsFunc(g.members, func(m *vertex) bool {
		return slices.ContainsFunc(m.readers, func(r *vertex) bool { return !g.inside(r) && r.at < at })
	})
}

// join merges two groups and returns the result. If they cannot be merged, it returns nil and changes nothing.
func (f *fuser) join(a, b *group) *group {
	pair := [2]*group{a, b}
	if a.operations+b.operations > maxOperations || tooManyOutputs(a, b) || f.unfusable[pair] {
		return nil
	}
	g := merge(a, b)
	if g == nil || !g.consistent(a, b) || f.pathBetween(a, b) || f.pathBetween(b, a) {
		f.unfusable[pair] = true
		return nil
	}
	slices.SortFunc(g.members, byPlace)
	g.adopt()
	if f.runs(g) {
		f.reach.raise(g.first(), g.last())
		f.origin.raise(f.mirrored(g.last()), f.mirrored(g.first()))
		return g
	}
	a.adopt()
	b.adopt()
	f.unfusable[pair] = true
	return nil
}

func byPlace(a, b *vertex) int { return a.at - b.at }

// tooManyOutputs reports whether a merge of two groups would have more than maxOutputs outputs.
func tooManyOutputs(a, b *group) bool {
	outside := func(r *vertex) bool { return r.group != a && r.group != b }
	n := 0
	for _, members := range [][]*vertex{a.members, b.members} {
		for _, m := range members {
			if m.liveOut || slices.ContainsFunc(m.readers, outside) {
				n++
			}
			if n > maxOutputs {
				return true
			}
		}
	}
	return false
}

// runs reports whether a group can be one instruction on the device. It must have at most maxOperands operands. If its rows
// are split across blocks, or convolutions read its elements as splits, it must have a single reduction stage, on which only per-row outputs depend.
func (f *fuser) runs(g *group) bool {
	if g.inputs() > maxOperands && len(g.operands()) > maxOperands {
		return false
	}
	shape, axes := g.shape, g.axes
	if f.ordered && slices.Equal(axes, []int{0, 2, 3}) { // of channels, which are last: see channels.go
		shape, axes = ordered(shape), []int{0, 1, 2}
	}
	if axes == nil || codegen.RowsWhole(f.device, shape, axes) && !slices.ContainsFunc(g.members, func(v *vertex) bool { return v.split }) {
		return true
	}
	fused, err := g.build()
	return err == nil && codegen.RowsSplit(fused.f, fused.perRow)
}

// pathBetween reports whether a dependency path leads from a to b through instructions outside of both. It also
// returns true if searches from both ends find maxVisited groups each. The search that has found fewer advances first.
//
// A path leads from an instruction to a later one, or from a member of a group to another member. So it cannot visit
// instructions after s.last: the last instruction of b, of the groups that begin before b ends, of the groups that begin
// before these end, and so on. In the other direction it cannot visit instructions before s.first.
func (f *fuser) pathBetween(a, b *group) bool {
	f.searches += 2
	out := &front{from: a, to: b, number: f.searches, other: f.searches + 1, last: until(b.last(), f.reach.until)}
	out.neighbours = (*vertex).readersOutside
	in := &front{from: b, to: a, number: f.searches + 1, other: f.searches, last: len(f.vertices)}
	in.first = f.mirrored(until(f.mirrored(a.first()), f.origin.until))
	in.neighbours = (*vertex).sourcesOutside
	if out.advance(a.members[0], false) || in.advance(b.members[0], false) {
		return true
	}
	for {
		w := out
		if in.found < out.found {
			w = in
		}
		if w.found >= maxVisited {
			return true
		}
		if len(w.next) == 0 {
			return false
		}
		v := w.next[len(w.next)-1]
		w.next = w.next[:len(w.next)-1]
		if w.advance(v, true) {
			return true
		}
	}
}

// until iterates n = f(n) while f increases n, and returns the result.
func until(n int, f func(int) int) int {
	for f(n) > n {
		n = f(n)
	}
	return n
}

// mirrored returns an index counted from the end of the program.
func (f *fuser) mirrored(at int) int { return len(f.vertices) - 1 - at }

// front holds the vertices found from one end of a bidirectional search for a path from one group to another.
type front struct {
	from, to      *group
	number, other int                       // marks of this front and of the opposite one
	first, last   int                       // range of vertices to visit
	neighbours    func(v *vertex) []*vertex // the readers or the sources of its group
	next          []*vertex                 // vertices whose neighbours have not been visited, one of each group
	found         int                       // vertices that are or were in next
}

// advance visits the neighbours of a vertex and of its group and reports whether that completes a path. outside is set if the vertex is no member of
// from: a path has at least one vertex outside of both groups.
func (w *front) advance(v *vertex, outside bool) bool {
	for _, n := range w.neighbours(v) {
		if w.found >= maxVisited || n != nil && n.at > w.last { // readers are in order
			break
		}
		if n != nil && n.at >= w.first && w.find(n, outside) {
			return true
		}
	}
	return false
}

// find adds a vertex, which stands for its group, to the front and reports whether that completes a path.
func (w *front) find(v *vertex, outside bool) bool {
	mark := &v.visited
	if v.group != nil {
		mark = &v.group.visited
	}
	switch {
	case v.group == w.to:
		return outside
	case v.group == w.from || *mark == w.number:
		return false
	case *mark == w.other:
		return true
	}
	*mark = w.number
	w.next, w.found = append(w.next, v), w.found+1
	return false
}

// readersOutside returns the vertices that read results of a vertex's group, without those of the group.
func (v *vertex) readersOutside() []*vertex {
	if v.group == nil {
		return v.readers
	}
	return v.group.outside(&v.group.readers, func(m *vertex) []*vertex { return m.readers })
}

// sourcesOutside returns the vertices whose results a vertex's group reads, without those of the group.
func (v *vertex) sourcesOutside() []*vertex {
	if v.group == nil {
		return v.sources
	}
	return v.group.outside(&v.group.sources, func(m *vertex) []*vertex { return m.sources })
}

// outside returns the neighbours of the members that are no members, in order. It keeps the list.
func (g *group) outside(list *[]*vertex, neighbours func(m *vertex) []*vertex) []*vertex {
	if *list == nil {
		*list = []*vertex{}
		for _, m := range g.members {
			for _, n := range neighbours(m) {
				if n != nil && n.group != g {
					*list = append(*list, n)
				}
			}
		}
		slices.SortFunc(*list, byPlace)
	}
	return *list
}

// first returns the index of the first member.
func (g *group) first() int { return g.members[0].at }

// last returns the index of the last member.
func (g *group) last() int { return g.members[len(g.members)-1].at }

// prefixMax is an array of numbers, initially 0, with fast prefix maxima (Fenwick, 1994).
type prefixMax []int

// raise sets the number at an index to n if it is smaller.
func (m prefixMax) raise(at, n int) {
	for i := at + 1; i < len(m); i += i & -i {
		m[i] = max(m[i], n)
	}
}

// until returns the maximum of the numbers at indices 0 to at.
func (m prefixMax) until(at int) (largest int) {
	for i := at + 1; i > 0; i -= i & -i {
		largest = max(largest, m[i])
	}
	return largest
}
