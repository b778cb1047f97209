package exec

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// SetState copies m to v, a state or a contiguous part of one, and sets the same part of its copies in 16 bits, on all ranks; of several processes all take
// the m of rank 0. m may be changed when it returns.
func (e *Executable) SetState(v *program.Value, m []byte) error {
	m, err := e.meeting.same(m)
	if err != nil {
		return err
	}
	for _, o := range e.others {
		if err := o.SetState(v, m); err != nil {
			return err
		}
	}
	s, err := stateSpan(v, m)
	if err == nil {
		err = e.backend.Upload(s, m)
	}
	for _, u := range e.program.Updates {
		if of := u.State.Def.Op.(program.State).Rounds; err == nil && of != nil && of == v.Base {
			err = e.backend.Upload(Span{u.State.Buffer.Offset + v.View.Offset*u.State.Dtype.Size(), int64(len(m)) / 2, u.State.Buffer.Home}, rounded(m, u.State.Dtype))
		}
	}
	if err != nil {
		return err
	}
	return e.backend.Sync()
}

// rounded returns float32 elements in BF16 or F16.
func rounded(m []byte, d kernels.Dtype) []byte {
	x := kernels.Elements[float32](m)
	to := make([]uint16, len(x))
	for i, v := range x {
		to[i] = expr.ToHalf(d, v)
	}
	return kernels.Bytes(to)
}

// State copies v, a state or a contiguous part of one, to m, from the first rank. Its value is that after the last run.
func (e *Executable) State(v *program.Value, m []byte) error {
	s, err := stateSpan(v, m)
	if err == nil {
		err = e.backend.Download(m, s)
	}
	if err != nil {
		return err
	}
	return e.backend.Sync()
}

// States returns copies of the states in the order of [program.Program.Updates], nil for states that runs do not change.
func (e *Executable) States() ([][]byte, error) {
	list := make([][]byte, len(e.program.Updates))
	for i, u := range e.program.Updates {
		if u.Next == u.State {
			continue
		}
		list[i] = make([]byte, u.State.Bytes())
		if err := e.State(u.State, list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// SetStates sets the states that runs change to values returned by States, except those that are nil.
func (e *Executable) SetStates(list [][]byte) error {
	e.apart = nil
	for i, u := range e.program.Updates {
		if list[i] == nil || u.Next == u.State {
			continue
		}
		if err := e.SetState(u.State, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// stateSpan returns the span of a state or of a part of one, which must be as long as m.
func stateSpan(v *program.Value, m []byte) (Span, error) {
	if _, state := v.Base.Def.Op.(program.State); !state || !v.IsContiguous() || v.Bytes() != int64(len(m)) {
		return Span{}, fmt.Errorf("got %d bytes for %v, want the %d of a state", len(m), v, v.Bytes())
	}
	return part(v), nil
}
