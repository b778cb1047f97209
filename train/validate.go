package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"gorgonia.org/gorgonia"
)

// Validate evaluates at the end of each epoch, before the functions of [AfterEpoch], as [Evaluate] does: [Epoch].Scores and [Progress]
// have the metrics. The first metric decides which epoch is the best one, for [EarlyStop], [KeepBest] and [History].Best: the
// first of those with the best value. NaN is never the best.
//
// The VM and that of the training have the option cudaops.In of one Store. They share its states of cudaops.Transient by name and shape, such as those of nn.Carry: a VM whose runs would
// change those of the training is an error.
func Validate(vm *cudaops.VM, source Source, metrics ...Metric) Option {
	return func(c *config) {
		if c.validation != nil {
			c.fault("got the option Validate twice, want it once")
		}
		e, err := newEvaluation(vm, source, metrics)
		if err != nil {
			c.fault("Validate: %w", err)
			e = &evaluation{}
		}
		c.validation = e
	}
}

// EarlyStop ends the training when so many epochs in a row were not better than the best one before. It needs [Validate]. With
// [Checkpoint], a training that ended so ends at once when it is run again.
func EarlyStop(patience int) Option {
	return func(c *config) {
		c.positive("EarlyStop", patience)
		c.patience = patience
	}
}

// KeepBest saves the training to a file, as checkpoint.Save does, after each epoch that is better than all before. It needs
// [Validate]. checkpoint.LoadStore and checkpoint.LoadParameters read the parameters, and [Checkpoint] continues from a copy. The file has the parameters of
// cudaops.Train and the states: frozen parameters are in files of checkpoint.SaveStore.
func KeepBest(path string) Option {
	return func(c *config) {
		if path == "" {
			c.fault("KeepBest got no path")
		}
		if c.best != "" {
			c.fault("got the option KeepBest twice, want it once")
		}
		c.best = path
	}
}

// checkValidation returns an error unless the options of validation fit together and to the VM of the training.
func (c *config) checkValidation(vm *cudaops.VM) error {
	switch {
	case c.validation == nil && c.patience > 0:
		return errors.New("got EarlyStop without Validate, want both")
	case c.validation == nil && c.best != "":
		return errors.New("got KeepBest without Validate, want both")
	case c.best != "" && c.checkpoint.path != "" && absolute(c.best) == absolute(c.checkpoint.path):
		return fmt.Errorf("got %s for KeepBest and Checkpoint, want two files", c.best)
	case c.validation != nil && (vm.Store() == nil || c.validation.vm.Store() != vm.Store()):
		return errors.New("Validate got a VM that does not share the parameters in training, want the option cudaops.In of the same Store for both")
	case c.validation == nil:
		return nil
	}
	for _, n := range c.validation.vm.Transients() {
		if slices.ContainsFunc(vm.Transients(), func(of *gorgonia.Node) bool { return of.Name() == n.Name() }) {
			return fmt.Errorf("Validate got a VM whose runs change the state %s of the training: want one for batches of another size, whose states are its own", n.Name())
		}
	}
	return nil
}

// absolute returns the absolute path of a file, or the path as it is without a working directory.
func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return filepath.Clean(path)
}

// checkFolders returns an error unless the folders of the files are there, so that a training does not find out when it saves. Of several processes the
// first one saves.
func (c *config) checkFolders(vm *cudaops.VM) error {
	if rank, _ := vm.Process(); rank > 0 {
		return nil
	}
	for _, path := range []string{c.checkpoint.path, c.best} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return fmt.Errorf("got the file %s, want one in a folder that is there", path)
		}
	}
	return nil
}

// best is the best epoch of a validation.
type best struct {
	Metric string `json:",omitempty"` // the name of the first metric
	Epoch  int    `json:",omitempty"` // 0 if there is none
	Score  number
	Behind int `json:",omitempty"` // epochs since then
}

// update records an epoch and reports whether it is the best one.
func (b *best) update(epoch int, m Metric, score float64) bool {
	better := !math.IsNaN(score)
	if b.Epoch > 0 {
		better = !m.Min && score > float64(b.Score) || m.Min && score < float64(b.Score)
	}
	if b.Behind++; better {
		b.Epoch, b.Score, b.Behind = epoch, number(score), 0
	}
	b.Metric = m.Name
	return better
}

// number is a float64 in JSON, with NaN and Inf.
type number float64

func (x number) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(x), 'g', -1, 64), nil
}

func (x *number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	*x = number(v)
	return err
}

// validate sets the scores of an epoch. It reports whether the epoch is the best one.
func (l *loop) validate(ctx context.Context, e *Epoch) (better bool, err error) {
	v := l.config.validation
	if v == nil {
		return false, nil
	}
	if e.Scores, err = v.run(ctx); err != nil {
		return false, fmt.Errorf("%v: Validate: %w", l.position, err)
	}
	first := v.metrics[0]
	l.progress.setScores(v.metrics, e.Scores)
	for i, r := range l.config.plateaus {
		l.plateaus[i].update(r, first, e.Scores[first.Name])
	}
	return l.best.update(e.Number, first, e.Scores[first.Name]), nil
}

// keepBest saves the training after its best epoch.
func (l *loop) keepBest() error {
	if l.config.best == "" {
		return nil
	}
	return l.write(l.config.best)
}

// stopped reports whether EarlyStop has ended the training.
func (l *loop) stopped() bool { return l.config.patience > 0 && l.best.Behind >= l.config.patience }

// write saves the training to a file. A training that cannot be saved is not saved again.
func (l *loop) write(path string) error {
	s, err := l.state()
	if err == nil {
		err = checkpoint.Save(path, l.vm, s)
	}
	l.failed = err != nil
	return err
}
