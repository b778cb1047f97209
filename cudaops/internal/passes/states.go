package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// states makes every state that runs change computable in place: an instruction computes the next value over the state, after all
// instructions that read the state. It moves that instruction behind them, or copies the next value to the state at the end of
// the run.
func states(p *program.Program) error {
	u := &stateUpdater{p: p, changes: map[*program.Value]bool{}, parts: map[*program.Value]bool{}}
	for _, in := range p.Instrs {
		for _, v := range in.In {
			u.parts[v] = u.parts[v] || isConcatInPlace(in)
		}
	}
	for _, to := range p.Updates {
		u.changes[to.State] = to.Next != to.State
	}
	next := map[*program.Value]bool{}
	for i := range p.Updates {
		to := &p.Updates[i]
		if to.Next == to.State {
			continue
		}
		if v := to.Next; v.IsContiguous() && slices.Equal(v.Shape, v.Base.Shape) && u.ownsResult(v.Base) { // such as a WhenTraining
			to.Next = v.Base
		}
		if next[to.Next] || !u.ownsResult(to.Next) {
			if err := u.copy(to); err != nil {
				return err
			}
		}
		next[to.Next] = true
	}
	for i := range p.Updates {
		if to := &p.Updates[i]; to.Next != to.State && !u.inPlace(to) {
			if err := u.copy(to); err != nil {
				return err
			}
		}
	}
	return nil
}

type stateUpdater struct {
	p       *program.Program
	changes map[*program.Value]bool // states
	parts   map[*program.Value]bool // inputs of a ConcatInPlace
}

// ownsResult reports whether a launch or collective of each run computes a value into a buffer that no other value determines.
func (u *stateUpdater) ownsResult(v *program.Value) bool {
	op := v.Def.Op
	return v.Base == v && (program.Is[program.Collective](op) || program.Launches(op)) && !u.parts[v]
}

// copy replaces the next value of a state by a copy: of a state at the beginning of the run, of other values at the end.
func (u *stateUpdater) copy(to *program.Update) error {
	v, rest := to.Next, u.p.Instrs
	if u.changes[v.Base] {
		if u.p.Instrs = nil; v != v.Base {
			v = u.p.EmitAlias(v.Def.Nodes, v.Name, v.Type, v.Base, v.View)
		}
	}
	def, err := u.p.Copied(v)
	if err != nil {
		return err
	}
	if u.p.Instrs = append(u.p.Instrs, def); u.changes[v.Base] {
		u.p.Instrs = append(u.p.Instrs, rest...)
	}
	to.Next = def.Out[0]
	return nil
}

// inPlace reports whether the next value can be computed over the state. It moves the instruction behind readers of the state if
// possible.
func (u *stateUpdater) inPlace(to *program.Update) bool {
	def := to.Next.Def
	reads := func(in *program.Instr) bool {
		return !program.Is[program.Alias](in.Op) && slices.ContainsFunc(in.In, func(v *program.Value) bool { return v.Base == to.State })
	}
	op, overFirst := program.InPlace(def.Op)
	overFirst = overFirst && def.In[0].Base == to.State && def.In[0].IsContiguous() && def.In[0].Elements() == to.State.Elements()
	for i, v := range def.In {
		if v.Base == to.State && !def.ReadsInOrder(v) && (i > 0 || !overFirst) {
			return false
		}
	}
	at, last, use := slices.Index(u.p.Instrs, def), -1, len(u.p.Instrs)
	for i, in := range u.p.Instrs {
		if in != def && reads(in) {
			last = i
		}
		if slices.ContainsFunc(in.In, func(v *program.Value) bool { return v.Base.Def == def }) {
			use = min(use, i)
		}
	}
	otherState := func(v *program.Value) bool { return u.changes[v.Base] && v.Base != to.State }
	if last > at {
		if last >= use || slices.ContainsFunc(def.In, otherState) {
			return false
		}
		u.p.Instrs = slices.Insert(slices.Delete(u.p.Instrs, at, at+1), last, def)
	}
	if overFirst {
		def.Op = op
	}
	return true
}
