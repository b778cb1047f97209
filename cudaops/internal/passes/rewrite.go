package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// rewrite rebuilds the program with the fused instructions. Each is placed where its last member was, or earlier if others
// need it there; views are placed before their first use.
func (f *fuser) rewrite() error {
	w := &writer{fuser: f, done: make([]bool, len(f.vertices)), instrs: make([]*program.Instr, 0, len(f.vertices))}
	for i, v := range f.vertices { // inputs keep their order, which is the order of the user's values
		if _, input := v.Op.(program.Input); input {
			w.done[i], w.instrs = true, append(w.instrs, v.Instr)
		}
	}
	for i, v := range f.vertices {
		_, alias := v.Op.(program.Alias)
		if g := v.group; alias || g != nil && g.members[len(g.members)-1].at > i {
			continue
		}
		if err := w.emit(v); err != nil {
			return v.InNode(err)
		}
	}
	for _, out := range f.p.Outputs {
		if err := w.emit(f.vertexOf[out.Def]); err != nil {
			return out.Def.InNode(err)
		}
	}
	f.p.Instrs = w.instrs
	return nil
}

// writer emits the instructions of the fused program.
type writer struct {
	*fuser
	done   []bool
	instrs []*program.Instr
}

// emit appends an instruction, or its group, after its operands. v is nil for an instruction of Setup.
func (w *writer) emit(v *vertex) error {
	if v == nil || w.done[v.at] {
		return nil
	}
	if v.group != nil {
		return w.emitGroup(v.group)
	}
	w.done[v.at] = true
	for _, from := range v.In {
		if err := w.emit(w.vertexOf[from.Def]); err != nil {
			return err
		}
	}
	w.instrs = append(w.instrs, v.Instr)
	return nil
}

// emitGroup appends the instruction of a group after its operands.
func (w *writer) emitGroup(g *group) error {
	for _, m := range g.members {
		w.done[m.at] = true
	}
	for _, m := range g.members {
		for _, s := range m.sources {
			if err := w.emit(s); err != nil {
				return err
			}
		}
	}
	fused, err := g.build()
	if err != nil || len(fused.outputs) == 0 {
		return err
	}
	w.instrs = append(w.instrs, fused.instrs(w.p, g)...)
	return nil
}
