package exectest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// memory is who wrote each piece of the arena last: buffers consist of whole pieces.
type memory struct {
	cuts    []int64 // where pieces begin, and the last one ends
	writers []any   // a *program.Value, a *program.Instr for its scratch memory, or nil
	faults  []error
}

// dataflow runs a program's reads and writes in the order of the instructions and returns
// an error for each read of memory that holds another instruction's result, for instructions
// that overwrite their other operands, and for states and constants that a run destroys.
func dataflow(p *program.Program) error {
	m := &memory{}
	for _, b := range p.Buffers {
		m.cuts = append(m.cuts, b.Offset, b.Offset+b.Size)
	}
	slices.Sort(m.cuts)
	m.cuts = slices.Compact(m.cuts)
	m.writers = make([]any, len(m.cuts))
	for _, in := range p.Setup {
		m.write(in)
	}
	for _, in := range p.Instrs {
		m.read(in)
		m.distinct(in)
		m.write(in)
	}
	for _, in := range p.Setup { // values that the next run finds
		for _, v := range in.Out {
			if v.Base == v && v.Space == program.OnDevice && !v.IsIota() && !slices.ContainsFunc(p.Updates, func(u program.Update) bool { return u.State == v }) {
				m.holds(v, "after the run", v)
			}
		}
	}
	for _, u := range p.Updates {
		if u.State.Buffer != u.Next.Buffer {
			m.fault("state %v and its next value, %v, are in two places", u.State, u.Next)
		}
		m.holds(u.Next, "after the run", u.Next)
	}
	return errors.Join(m.faults...)
}

func (m *memory) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Errorf(format, args...))
}

// pieces returns those of a buffer in the arena, from and to.
func (m *memory) pieces(b *program.Buffer) (lo, hi int) {
	if b == nil || b.Size == 0 || b.Home != nil {
		return 0, 0
	}
	lo, _ = slices.BinarySearch(m.cuts, b.Offset)
	hi, _ = slices.BinarySearch(m.cuts, b.Offset+b.Size)
	return lo, hi
}

// holds checks that memory of v's base, as reads by who find it, holds that value.
func (m *memory) holds(v *program.Value, who any, want *program.Value) {
	lo, hi := m.pieces(v.Buffer)
	for i := lo; i < hi; i++ {
		if w := m.writers[i]; w != any(want) {
			m.fault("%v: bytes %d to %d of %v were written by %v", who, m.cuts[i], m.cuts[i+1], want, w)
		}
	}
}

// read checks that an instruction finds its inputs.
func (m *memory) read(in *program.Instr) {
	for _, v := range in.In {
		base := v.Base
		if base.Space != program.OnDevice || v.IsIota() {
			continue
		}
		if base.Buffer == nil || base.Buffer.Size < base.Bytes() {
			m.fault("%v: %v has no place", in.Op, base)
			continue
		}
		if _, join := base.Def.Op.(program.ConcatInPlace); !join {
			m.holds(base, in.Op, base)
			continue
		}
		for _, part := range base.Def.In { // between them is anything
			m.holds(part, in.Op, part)
		}
	}
}

// write records the memory that an instruction writes.
func (m *memory) write(in *program.Instr) {
	set := func(b *program.Buffer, by any) {
		lo, hi := m.pieces(b)
		for i := lo; i < hi; i++ {
			m.writers[i] = by
		}
	}
	set(in.Scratch, in)
	switch in.Op.(type) {
	case program.Alias, program.ConcatInPlace: // nothing moves
		return
	}
	for _, v := range in.Out {
		if v.Space == program.OnDevice {
			set(v.Base.Buffer, v)
		}
	}
}

// distinct checks that an instruction's outputs and scratch memory share no memory with each
// other, nor with an input: but a Map may write an element where it reads the same one, of
// the same size, and nothing else.
func (m *memory) distinct(in *program.Instr) {
	switch in.Op.(type) {
	case program.Alias, program.ConcatInPlace:
		return
	}
	written := []*program.Buffer{in.Scratch}
	for _, v := range in.Out {
		if v.Space == program.OnDevice {
			written = append(written, v.Buffer)
		}
	}
	for i, b := range written {
		for _, a := range written[:i] {
			if overlap(a, b) {
				m.fault("%v writes twice to one place: %+v, %+v", in.Op, *a, *b)
			}
		}
		for _, v := range in.In {
			if !overlap(v.Base.Buffer, b) {
				continue
			}
			if i == 0 || !in.ReadsInOrder(v) || v.Base.Buffer.Offset != b.Offset || v.Dtype.Size() != in.Out[i-1].Dtype.Size() || v.IsRandom() {
				m.fault("%v writes over %v, of which it reads other elements", in.Op, v)
			}
		}
	}
}

func overlap(a, b *program.Buffer) bool {
	return a != nil && b != nil && a.Home == b.Home && max(a.Offset, b.Offset) < min(a.Offset+a.Size, b.Offset+b.Size)
}
