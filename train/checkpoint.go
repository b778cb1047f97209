package train

import (
	"errors"
	"io/fs"

	"github.com/stheno-ml/stheno/checkpoint"
)

// Checkpoint saves the training to a file, as checkpoint.Save does, after every n-th step and at the end. If the file exists,
// Run continues from it. So a program that was killed makes the same steps after a restart as an uninterrupted one.
//
// The file does not change if a run fails, or if the loss, a parameter or a moment is NaN or infinite.
func Checkpoint(path string, n int) Option {
	return func(c *config) {
		c.positive("Checkpoint", n)
		if path == "" {
			c.fault("Checkpoint got no path")
		}
		c.checkpoint = saving{path, n}
	}
}

// saving holds where and how often a training is saved.
type saving struct {
	path string // "" without the option
	n    int    // steps
}

// load restores the checkpoint if the file exists.
func (l *loop) load() error {
	c := &l.config
	if c.checkpoint.path == "" {
		return nil
	}
	if c.from != (Position{}) {
		return errors.New("got the options From and Checkpoint, want one of them")
	}
	note, err := checkpoint.Load(c.checkpoint.path, l.vm, &c.from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.saved, l.history.Note = c.from.Step, note
	return err
}

// save saves the training unless the current step is already saved.
func (l *loop) save() error {
	if l.config.checkpoint.path == "" || l.failed || l.saved == l.position.Step {
		return nil
	}
	if err := checkpoint.Save(l.config.checkpoint.path, l.vm, l.position); err != nil {
		l.failed = true
		return err
	}
	l.saved = l.position.Step
	return nil
}
