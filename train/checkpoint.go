package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/internal/guard"
)

// Checkpoint saves the training to a file, as checkpoint.Save does, after every n-th step and at the end. If the file exists,
// Run continues from it. So a program that was killed makes the same steps after a restart as an uninterrupted one, and its
// history has the same epochs. Schedules depend only on the step, which the file has.
//
// value, at most one, is a pointer to state of the caller, such as the mean of something over all steps: any value that encoding/json
// encodes. Each save encodes it, and Run sets it to the file's value, if the file has one, before the first step. Callbacks may
// change it.
//
// The file does not change if a run fails, or if the loss, a parameter or a moment is NaN or infinite.
func Checkpoint(path string, n int, value ...any) Option {
	return func(c *config) {
		c.positive("Checkpoint", n)
		if path == "" {
			c.fault("Checkpoint got no path")
		}
		if c.checkpoint.path != "" {
			c.fault("got the option Checkpoint twice, want it once")
		}
		c.checkpoint = saving{path: path, n: n}
		for _, v := range value {
			if len(value) > 1 || guard.IsNil(v) || reflect.TypeOf(v).Kind() != reflect.Pointer {
				c.fault("Checkpoint got %d values, one of them a %T, want one pointer", len(value), v)
			}
			c.checkpoint.value = v
		}
	}
}

// saving holds where and how often a training is saved.
type saving struct {
	path  string // "" without the option
	n     int    // steps
	value any    // a pointer, or nil
}

// state is the position of checkpoint.Save.
type state struct {
	Position
	Part   part         // the current epoch
	Epochs []epochState `json:",omitempty"`
	Best   best         // of Validate
	// Plateaus are the states of ReduceOnPlateau.
	Plateaus []plateau       `json:",omitempty"`
	Value    json.RawMessage `json:",omitempty"` // of the caller
}

// part holds the losses of the current epoch.
type part struct {
	Sum          number
	Known, Steps int // numbers of losses and of steps
}

// epochState is an [Epoch] without its time.
type epochState struct {
	Position
	Number, Steps int
	Loss          number
	Scores        map[string]number `json:",omitempty"`
}

// state returns what is saved with the VM.
func (l *loop) state() (s state, err error) {
	s = state{Position: l.position, Part: l.part, Best: l.best, Plateaus: l.plateaus}
	for _, e := range l.history.Epochs {
		s.Epochs = append(s.Epochs, epochState{e.Position, e.Number, e.Steps, number(e.Loss), converted[number](e.Scores)})
	}
	if v := l.config.checkpoint.value; v != nil {
		if s.Value, err = json.Marshal(v); err != nil {
			err = fmt.Errorf("the value of Checkpoint: %w", err)
		}
	}
	return s, err
}

func converted[To, From number | float64](m map[string]From) map[string]To {
	if m == nil {
		return nil
	}
	out := map[string]To{}
	for name, x := range m {
		out[name] = To(x)
	}
	return out
}

// load restores the checkpoint if the file exists, and returns the states of ReduceOnPlateau in it.
func (l *loop) load() ([]plateau, error) {
	c := &l.config
	if c.checkpoint.path == "" {
		return nil, nil
	}
	if c.from != (Position{}) {
		return nil, errors.New("got the options From and Checkpoint, want one of them")
	}
	var s state
	note, err := checkpoint.Load(c.checkpoint.path, l.vm, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if v := c.validation; v != nil && s.Best.Metric != "" && s.Best.Metric != v.metrics[0].Name {
		return nil, fmt.Errorf("%s: got a training whose best epoch is that of the metric %q, Validate has %q first", c.checkpoint.path, s.Best.Metric, v.metrics[0].Name)
	}
	if v := c.checkpoint.value; v != nil && s.Value != nil {
		decoded := reflect.New(reflect.TypeOf(v).Elem())
		if err := json.Unmarshal(s.Value, decoded.Interface()); err != nil {
			return nil, fmt.Errorf("%s: the value %.200s: %w", c.checkpoint.path, s.Value, err)
		}
		reflect.ValueOf(v).Elem().Set(decoded.Elem())
	}
	for _, e := range s.Epochs {
		l.history.Epochs = append(l.history.Epochs,
			Epoch{Number: e.Number, Position: e.Position, Steps: e.Steps, Loss: float64(e.Loss), Scores: converted[float64](e.Scores)})
	}
	c.from, l.part, l.best, l.history.Note = s.Position, s.Part, s.Best, note
	return s.Plateaus, nil
}

// save saves the training unless it has not changed since the last save.
func (l *loop) save() error {
	if l.config.checkpoint.path == "" || l.failed || !l.changed {
		return nil
	}
	err := l.write(l.config.checkpoint.path)
	l.changed = err != nil
	return err
}
