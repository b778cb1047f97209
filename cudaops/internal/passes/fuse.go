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
func fuse(p *program.Program, t Target) error {
	f := newFuser(p, t.Device)
	for at, in := range p.Instrs {
		if program.Pointwise(in.Op) {
			f.add(at, in)
		}
	}
	f.now = len(p.Instrs)
	for _, in := range p.Instrs { // that nobody took in
		if f.waiting[in] {
			f.joinInputs(in)
		}
	}
	for _, in := range p.Instrs { // what did not fit one of those may fit all
		f.joinInputs(in)
	}
	return f.rewrite()
}

// Limits of one fused instruction: arguments of a launch and registers are few.
const (
	mostOperands   = 16
	mostOutputs    = 8
	mostOperations = 400
	mostVisited    = 2000 // instructions looked at to find a way around a group
)

type fuser struct {
	p      *program.Program
	device kernels.Device
	at     map[*program.Instr]int              // place in Instrs
	groups map[*program.Instr]*group           // of the instructions seen so far
	users  map[*program.Value][]*program.Instr // that read a base, through views too
	wanted map[*program.Value]bool             // bases that outputs lie in
	now    int                                 // instructions from here on are in no group but the one here

	waiting map[*program.Instr]bool
}

func newFuser(p *program.Program, dev kernels.Device) *fuser {
	f := &fuser{p: p, device: dev, at: make(map[*program.Instr]int, len(p.Instrs)), groups: map[*program.Instr]*group{},
		users: map[*program.Value][]*program.Instr{}, wanted: map[*program.Value]bool{}, waiting: map[*program.Instr]bool{}}
	for i, in := range p.Instrs {
		f.at[in] = i
		if _, alias := in.Op.(program.Alias); alias {
			continue
		}
		for _, v := range in.In {
			f.users[v.Base] = append(f.users[v.Base], in)
		}
	}
	for _, v := range p.Outputs {
		f.wanted[v.Base] = true
	}
	return f
}

// add puts an instruction into a group: of its own at first, then joined with those
// of its inputs.
//
// An instruction that reads nothing but what is in memory anyhow, or what waits
// itself, waits for one that uses its result, to join that one's group rather than
// the group of its inputs: so the derivative of tanh takes tanh from the forward pass,
// not 1 - tanh².
func (f *fuser) add(at int, in *program.Instr) {
	f.now = at
	own := newGroup(in)
	if own == nil {
		return
	}
	f.groups[in] = own
	if f.waiting[in] = f.waits(in); !f.waiting[in] {
		f.joinInputs(in)
	}
}

// waits reports whether an instruction waits for its users.
func (f *fuser) waits(in *program.Instr) bool {
	needed := func(v *program.Value) bool { return !f.stored(v.Base) && !f.waiting[v.Base.Def] }
	return !slices.ContainsFunc(in.Out, f.stored) && !slices.ContainsFunc(in.In, needed)
}

// stored reports whether a base is in memory however groups are made.
func (f *fuser) stored(base *program.Value) bool {
	other := func(in *program.Instr) bool { return !program.Pointwise(in.Op) }
	return f.wanted[base] || !program.Pointwise(base.Def.Op) || slices.ContainsFunc(f.users[base], other)
}

// joinInputs joins the group of an instruction with those of its inputs, and then
// those of the inputs of instructions that waited for it.
func (f *fuser) joinInputs(in *program.Instr) {
	for _, v := range in.In {
		from, own := f.groups[v.Base.Def], f.groups[in]
		if from == nil || own == nil || from == own {
			continue
		}
		joint := f.join(from, own)
		if joint == nil {
			continue
		}
		for _, m := range joint.members {
			f.groups[m] = joint
		}
		for _, m := range from.members {
			if f.waiting[m] {
				f.joinInputs(m)
			}
		}
	}
}

// join returns the group of the members of both, nil if they cannot be one.
func (f *fuser) join(a, b *group) *group {
	g := merge(a, b)
	if g == nil || !g.consistent() || f.around(a, b) || f.around(b, a) {
		return nil
	}
	slices.SortFunc(g.members, func(x, y *program.Instr) int { return f.at[x] - f.at[y] })
	fused, err := f.build(g)
	if err != nil || len(fused.operands) > mostOperands || len(fused.outputs) > mostOutputs || fused.f.Operations() > mostOperations {
		return nil
	}
	if g.axes != nil && !kernels.RowsWhole(f.device, g.shape, g.axes) && !fused.splits() {
		return nil
	}
	return g
}

// around reports whether there is a way from a to b by instructions outside of both,
// or so many ways out of a that looking at them would take too long.
func (f *fuser) around(a, b *group) bool {
	visited := map[*program.Instr]bool{}
	var visit func(in *program.Instr) bool
	users := func(in *program.Instr) bool {
		for _, v := range in.Out {
			if slices.ContainsFunc(f.users[v], visit) {
				return true
			}
		}
		return false
	}
	outside := false
	visit = func(in *program.Instr) bool {
		g := f.groups[in]
		switch {
		case g != nil && g == b:
			return outside
		case g != nil && g == a || visited[in] || f.at[in] > f.now:
			return false // what comes later leads to nothing that is in a group yet
		case len(visited) == mostVisited:
			return true
		}
		visited[in] = true
		before := outside
		outside = true
		defer func() { outside = before }()
		if g == nil {
			return users(in)
		}
		for _, m := range g.members {
			visited[m] = true
		}
		return slices.ContainsFunc(g.members, users)
	}
	return slices.ContainsFunc(a.members, users)
}

// rewrite puts the fused instructions into the program, each at the place of its last
// member, or before if others need it there, and views where they are needed.
func (f *fuser) rewrite() error {
	w := &writer{fuser: f, done: map[*program.Instr]bool{}, instrs: make([]*program.Instr, 0, len(f.p.Instrs))}
	for _, in := range f.p.Instrs { // whose order is that of the user's values
		if _, input := in.Op.(program.Input); input {
			w.done[in], w.instrs = true, append(w.instrs, in)
		}
	}
	for i, in := range f.p.Instrs {
		_, alias := in.Op.(program.Alias)
		if g := f.groups[in]; alias || g != nil && f.at[g.members[len(g.members)-1]] > i {
			continue
		}
		if err := w.emit(in); err != nil {
			return in.InNode(err)
		}
	}
	for _, v := range f.p.Outputs {
		if err := w.emit(v.Def); err != nil {
			return v.Def.InNode(err)
		}
	}
	f.p.Instrs = w.instrs
	return nil
}

// writer writes the instructions of the fused program.
type writer struct {
	*fuser
	done   map[*program.Instr]bool
	instrs []*program.Instr
}

// emit writes an instruction, or the group that it is in, behind what it needs. Those
// of Setup are there already.
func (w *writer) emit(in *program.Instr) error {
	if _, here := w.at[in]; !here || w.done[in] {
		return nil
	}
	g := w.groups[in]
	if g != nil {
		return w.emitGroup(g)
	}
	w.done[in] = true
	for _, v := range in.In {
		if err := w.emit(v.Def); err != nil {
			return err
		}
	}
	w.instrs = append(w.instrs, in)
	return nil
}

// emitGroup writes the instruction of a group.
func (w *writer) emitGroup(g *group) error {
	for _, m := range g.members {
		w.done[m] = true
	}
	for _, m := range g.members {
		for _, v := range m.In {
			if err := w.emit(v.Base.Def); err != nil {
				return err
			}
		}
	}
	fused, err := w.build(g)
	if err != nil || len(fused.outputs) == 0 {
		return err
	}
	w.instrs = append(w.instrs, fused.instrs(w.p, g)...)
	return nil
}
