package exec

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// SetState fills a state, or a part of one that v is a view of. m may be changed when it
// returns.
func (e *Executable) SetState(v *program.Value, m []byte) error {
	s, err := stateSpan(v, m)
	if err == nil {
		err = e.backend.Upload(s, m)
	}
	if err != nil {
		return err
	}
	return e.backend.Sync()
}

// State copies the value of a state, or of a part of one, after the last run into m.
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

// States returns copies of the states that runs change, in the order of
// [program.Program.Updates], nil for the others.
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

// SetStates fills the states that runs change with values that States returned.
func (e *Executable) SetStates(list [][]byte) error {
	for i, u := range e.program.Updates {
		if u.Next == u.State {
			continue
		}
		if err := e.SetState(u.State, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// stateSpan returns the place of a state or of a part of one, which must be as long as m.
func stateSpan(v *program.Value, m []byte) (Span, error) {
	if _, state := v.Base.Def.Op.(program.State); !state || !v.IsContiguous() || v.Bytes() != int64(len(m)) {
		return Span{}, fmt.Errorf("got %d bytes for %v, want the %d of a state", len(m), v, v.Bytes())
	}
	return Span{v.Base.Buffer.Offset + v.View.Offset*v.Dtype.Size(), v.Bytes()}, nil
}
