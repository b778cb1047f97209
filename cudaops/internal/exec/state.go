package exec

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// StateValue is a value for a state or for a contiguous part of one. Of a sharded state Of is a part of the value that the ranks have together.
type StateValue struct {
	Of    *program.Value
	Bytes []byte
}

// SetState copies m to v as SetAll does.
func (e *Executable) SetState(v *program.Value, m []byte) error {
	return e.SetAll([]StateValue{{v, m}})
}

// SetAll copies values to states on all ranks, and renews the copies of these states in 16 bits; of several processes all take the values of rank 0.
// The values may be changed when it returns.
func (e *Executable) SetAll(list []StateValue) error {
	uploads := make([][]upload, len(e.others)+1)
	var bases []*program.Value
	for _, x := range list {
		v := x.Of
		m, err := e.meeting.same(x.Bytes)
		if err != nil {
			return err
		}
		if half := v.Base.Dtype; half != v.Dtype {
			v, m = in(v, v.Base), Rounded(m, half)
		}
		if !slices.Contains(bases, v.Base) {
			bases = append(bases, v.Base)
		}
		err = e.eachPart(v, m, func(rank int, s Span, m []byte) error {
			uploads[rank] = append(uploads[rank], upload{s, m})
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := e.uploadAll(uploads); err != nil {
		return err
	}
	for _, base := range bases {
		if err := e.Round(base); err != nil {
			return err
		}
	}
	return nil
}

// upload is a copy of host memory to a span.
type upload struct {
	to   Span
	from []byte
}

// uploadAll copies to the memory of each rank of this process, and waits.
func (e *Executable) uploadAll(list [][]upload) error {
	for i, rank := range e.Ranks() {
		if err := uploadTo(rank.backend, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// uploadTo copies to the memory of a backend, and waits.
func uploadTo(b Backend, list []upload) error {
	if b, ok := b.(bulkUploader); ok {
		return b.uploadAll(list)
	}
	return uploadEach(b, list)
}

// uploadEach is uploadTo for values one by one.
func uploadEach(b Backend, list []upload) (err error) {
	for _, x := range list {
		if err = b.Upload(x.to, x.from); err != nil {
			break
		}
	}
	return driver.Join(err, b.Sync())
}

// copiesOf returns the copies in 16 bits of a state.
func (e *Executable) copiesOf(state *program.Value) (list []*program.Value) {
	for _, u := range e.program.Updates {
		if of := u.State.Def.Op.(program.State).Rounds; of != nil && of == state {
			list = append(list, u.State)
		}
	}
	return list
}

// HalfOf returns the type of the copy in 16 bits of a state, or 0 without one.
func (e *Executable) HalfOf(state *program.Value) kernels.Dtype {
	for _, half := range e.copiesOf(state) {
		return half.Dtype
	}
	return 0
}

// Round queues a launch on each rank for each copy of a state in 16 bits, which sets the copy: other programs may have changed the state alone.
func (e *Executable) Round(state *program.Value) error {
	for _, half := range e.copiesOf(state) {
		for _, rank := range e.Ranks() {
			if err := rank.round(state, half); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Executable) round(state, half *program.Value) error {
	run := e.rounds[half]
	if run == nil {
		x := gemm.Prepare{Form: gemm.BF16, Batch: 1, Rows: 1, Cols: state.Elements()}
		if half.Dtype == expr.F16 {
			x.Form = gemm.F16
		}
		if x.Cols%8 == 0 {
			x.Rows, x.Cols = x.Cols/8, 8
		}
		p, err := x.Plan(e.backend.Device())
		if err != nil {
			return err
		}
		to := part(half)
		to.Size = p.Out // with the elements that fill up its last row; memory is aligned to more
		if run, err = e.backend.Bind(p, []Span{part(state)}, []Span{to}, Span{}); err != nil {
			return err
		}
		if e.rounds == nil {
			e.rounds = map[*program.Value]func() error{}
		}
		e.rounds[half] = run
	}
	return run()
}

// in returns the place of a state, or of a part of one, in a state of as many elements: its copy, or itself in the type in which it is stored.
func in(v, state *program.Value) *program.Value {
	return &program.Value{Type: program.Type{Numeric: true, Dtype: state.Dtype, Shape: v.Shape}, Base: state, View: v.View}
}

// Rounded returns float32 elements in BF16 or F16.
func Rounded(m []byte, d kernels.Dtype) []byte {
	x := kernels.Elements[float32](m)
	to := make([]uint16, len(x))
	kernels.Parallel(int64(len(x)), kernels.Grain, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			to[i] = expr.ToHalf(d, x[i])
		}
	})
	return kernels.Bytes(to)
}

// State copies v, a state or a contiguous part of one, to m: from the first rank or, of a sharded state, from those that have it. It is
// a call of all processes for a sharded state. The value is that after the last run.
func (e *Executable) State(v *program.Value, m []byte) error {
	if half := v.Base.Dtype; half != v.Dtype {
		stored := make([]uint16, len(m)/4)
		err := e.State(in(v, v.Base), kernels.Bytes(stored))
		for i, to := 0, kernels.Elements[float32](m); err == nil && i < len(stored); i++ {
			to[i] = expr.FromHalf(half, stored[i])
		}
		return err
	}
	if !sharded(v) {
		return e.download(v, m)
	}
	clear(m) // others have the rest
	ranks := e.Ranks()
	err := e.eachPart(v, m, func(rank int, s Span, m []byte) error { return downloadFrom(ranks[rank].backend, s, m) })
	if err != nil {
		return err
	}
	all, err := e.Together(m)
	copy(m, all)
	return err
}

// sharded reports whether a value is a part of a sharded state.
func sharded(v *program.Value) bool {
	op, _ := v.Base.Def.Op.(program.State)
	return op.Sharded
}

// eachPart calls f, for each rank of this process, with the span of v and the part of m that the rank has.
func (e *Executable) eachPart(v *program.Value, m []byte, f func(rank int, s Span, m []byte) error) error {
	for i := range len(e.others) + 1 {
		own, part := v, m
		if sharded(v) {
			n := v.Base.Elements()
			first := int64(e.rank(i)) * n // of the value that the ranks have together
			from, to := max(v.View.Offset, first), min(v.View.Offset+v.Elements(), first+n)
			if from >= to {
				continue
			}
			part = m[(from-v.View.Offset)*v.Dtype.Size() : (to-v.View.Offset)*v.Dtype.Size()]
			own = &program.Value{Type: program.Type{Numeric: true, Dtype: v.Dtype, Shape: []int{int(to - from)}}, Base: v.Base}
			own.View = program.Contiguous(own.Shape)
			own.View.Offset = from - first
		}
		s, err := stateSpan(own, part)
		if err == nil {
			err = f(i, s, part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// download copies v, a state of the rank or a part of one, to m, and waits.
func (e *Executable) download(v *program.Value, m []byte) error {
	s, err := stateSpan(v, m)
	if err != nil {
		return err
	}
	return downloadFrom(e.backend, s, m)
}

// downloadFrom copies a span to m, and waits.
func downloadFrom(b Backend, s Span, m []byte) error {
	if err := b.Download(m, s); err != nil {
		return err
	}
	return b.Sync()
}

// States returns copies of the states of each rank of this process, in the order of [program.Program.Updates], nil for states that runs do
// not change. Without shared it returns nil for those in a Home, too, which may have been freed.
func (e *Executable) States(shared bool) ([][][]byte, error) {
	if e.apart != nil {
		return nil, e.differ()
	}
	list := make([][][]byte, len(e.others)+1)
	for r, rank := range e.Ranks() {
		list[r] = make([][]byte, len(e.program.Updates))
		for i, u := range e.program.Updates {
			if u.Next == u.State || u.State.Buffer.Home != nil && !shared {
				continue
			}
			m := make([]byte, u.State.Bytes())
			if err := rank.download(u.State, m); err != nil {
				return nil, err
			}
			list[r][i] = m
		}
	}
	return list, nil
}

// SetStates sets the states that runs change to values returned by States, except those that are nil.
func (e *Executable) SetStates(list [][][]byte) error {
	e.Rejoin()
	uploads := make([][]upload, len(list))
	for i, u := range e.program.Updates {
		for r := range list {
			if m := list[r][i]; m != nil && u.Next != u.State {
				s, err := stateSpan(u.State, m)
				if err != nil {
					return err
				}
				uploads[r] = append(uploads[r], upload{s, m})
			}
		}
	}
	return e.uploadAll(uploads)
}

// Share returns the bytes that the first rank of all processes has. Unlike states, they may have any length, also another one elsewhere.
func (e *Executable) Share(b []byte) ([]byte, error) {
	if e.meeting == nil || e.meeting.peers == nil {
		return b, nil
	}
	length, err := e.meeting.same(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length)
	if uint64(len(b)) != n {
		b = make([]byte, n)
	}
	return e.meeting.same(b)
}

// Together returns the bytes of all processes, of one length, added up.
func (e *Executable) Together(b []byte) ([]byte, error) { return e.meeting.together(b) }

// stateSpan returns the span of a state or of a part of one, which must be as long as m.
func stateSpan(v *program.Value, m []byte) (Span, error) {
	if !program.Is[program.State](v.Base.Def.Op) || !v.IsContiguous() || v.Bytes() != int64(len(m)) {
		return Span{}, fmt.Errorf("got %d bytes for %v, want the %d of a state", len(m), v, v.Bytes())
	}
	return part(v), nil
}
