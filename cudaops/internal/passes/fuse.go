package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// fuse joins Maps and Rows that work on the same elements into one instruction, which
// computes and stores what others need and keeps the rest in registers: a chain of
// element-wise ops becomes one launch, and so does a softmax or a layer norm with
// what stands before and after it.
//
// An instruction joins the groups that its inputs come from, one after the other,
// where the joint group still is one iteration space and nothing outside would have
// to run both before and after it. No value is computed twice and no sum reordered,
// so fusing changes no bit.
//
// An instruction that reads nothing but what is in memory anyhow, or what waits
// itself, waits for one that uses its result, to join that one's group rather than
// the group of its inputs: so the derivative of tanh takes tanh from the forward pass,
// not 1 - tanh².
func fuse(p *program.Program, t Target) error {
	f := newFuser(p, t.Device)
	for at, v := range f.vertices {
		f.now = at
		if v.group == nil {
			continue
		}
		if v.waiting = v.waits(); !v.waiting {
			f.joinInputs(v)
		}
	}
	f.now = len(f.vertices)
	for _, v := range f.vertices { // that nobody took in
		if v.waiting {
			f.joinInputs(v)
		}
	}
	for _, v := range f.vertices { // what did not fit one of those may fit all
		if v.group != nil {
			f.joinInputs(v)
		}
	}
	return f.rewrite()
}

// Limits of one fused instruction: arguments of a launch and registers are few.
const (
	mostOperands   = 16
	mostOutputs    = 8
	mostOperations = 128
	mostVisited    = 1000 // instructions looked at to find a way around a group
)

// vertex is an instruction of the program with what fusion wants to know of it.
type vertex struct {
	*program.Instr
	at      int       // place in Instrs
	group   *group    // nil for an instruction that stays as it is
	sources []*vertex // that compute the bases of In; nil for those of Setup
	readers []*vertex // instructions that read what it computes, through views too
	kept    bool      // what it computes is in memory however groups are made
	wanted  bool      // it computes a base that an output lies in
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
	now      int // instructions behind this one are in no group with others
	searches int
}

func newFuser(p *program.Program, dev kernels.Device) *fuser {
	f := &fuser{p: p, device: dev, vertices: make([]*vertex, len(p.Instrs)), of: make(map[*program.Instr]*vertex, len(p.Instrs))}
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
	return f
}

// waits reports whether an instruction waits for its users.
func (v *vertex) waits() bool {
	needed := func(s *vertex) bool { return s != nil && !s.kept && !s.waiting }
	return !v.kept && !slices.ContainsFunc(v.sources, needed)
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
		for _, m := range joint.members {
			m.group = joint
		}
		for _, m := range from.members {
			if m.waiting {
				f.joinInputs(m)
			}
		}
	}
}

// join returns the group of the members of both, nil if they cannot be one.
func (f *fuser) join(a, b *group) *group {
	if a.operations+b.operations > mostOperations {
		return nil
	}
	g := merge(a, b)
	if g == nil || !g.consistent(a, b) || f.around(a, b) || f.around(b, a) {
		return nil
	}
	slices.SortFunc(g.members, func(x, y *vertex) int { return x.at - y.at })
	operands, outputs, perRow := g.arguments(a, b)
	if operands > mostOperands || outputs > mostOutputs {
		return nil
	}
	if g.axes != nil && !kernels.RowsWhole(f.device, g.shape, g.axes) && (!perRow || !f.oneStage(g, a, b)) {
		return nil
	}
	return g
}

// oneStage reports whether no reduction of the group depends on another.
func (f *fuser) oneStage(g, a, b *group) bool {
	for _, m := range g.members { // build looks at the members' groups
		m.group = g
	}
	defer func() {
		for _, m := range a.members {
			m.group = a
		}
		for _, m := range b.members {
			m.group = b
		}
	}()
	fused, err := g.build()
	if err != nil || len(fused.outputs) == 0 {
		return err == nil
	}
	s, err := fused.f.Stages(fused.perRow)
	return err == nil && len(s.Stages) <= 1
}

// around reports whether there is a way from a to b by instructions outside of both,
// or so many ways out of a that looking at them would take too long.
func (f *fuser) around(a, b *group) bool {
	f.searches++
	search, left := f.searches, mostVisited
	var leave func(members []*vertex, outside bool) bool
	leave = func(members []*vertex, outside bool) bool {
		for _, m := range members {
			for _, r := range m.readers {
				switch {
				case r.group == b && b != nil:
					if outside {
						return true
					}
					continue
				case r.group == a || r.visited == search || r.at > f.now:
					continue // what comes later leads to nothing that is in a group yet
				}
				if left--; left < 0 {
					return true
				}
				r.visited = search
				next := []*vertex{r}
				if r.group != nil {
					next = r.group.members
					for _, m := range next {
						m.visited = search
					}
				}
				if leave(next, true) {
					return true
				}
			}
		}
		return false
	}
	return leave(a.members, false)
}
