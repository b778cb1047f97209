package train

import (
	"errors"
	"io/fs"

	"github.com/stheno-ml/stheno/checkpoint"
)

// Checkpoint saves the training to a file, as checkpoint.Save does, after every n-th step and at
// the end, and goes on from that file if it is there: a program that was ended, or killed, takes
// the steps that it would have taken when it is run again.
//
// A training that ends with a failed run, a loss that is NaN or infinite, or such numbers among parameters
// or moments leaves the file as it was.
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
	path string // "" for not at all
	n    int    // steps
}

// load goes on from the checkpoint, if there is one.
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

// save saves the training where it is, if it is not saved yet.
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
