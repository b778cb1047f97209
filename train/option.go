package train

import (
	"errors"
	"fmt"
	"io"

	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// ErrStop is returned by a callback to end the training without an error.
var ErrStop = errors.New("train: stop")

// Option is an option of [Run].
type Option func(*config)

type config struct {
	epochs, steps int // 0: no limit
	from          Position
	checkpoint    saving
	validation    *evaluation // nil without Validate
	patience      int         // 0 without EarlyStop
	best          string      // path of KeepBest, or ""
	prefetch      int
	stage         func(map[*gorgonia.Node]gorgonia.Value) (bool, error) // the VM's Stage
	weights       *gorgonia.Node
	rates         []rate
	plateaus      []reduction
	steppers      []stepper
	ends          []func(Epoch) error
	progress      io.Writer
	faults        []error
}

// rate is a schedule of a solver's learning rate.
type rate struct {
	solver   gorgonia.Solver
	schedule func(step int) float64
}

// stepper is a callback after every n-th step.
type stepper struct {
	n int
	f func(Step) error
}

func (c *config) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

// positive records an error unless a number is above 0.
func (c *config) positive(option string, n int) {
	if n < 1 {
		c.fault("%s got %d, want a number above 0", option, n)
	}
}

// Epochs ends the training after n epochs, including those before [From]. Without Epochs and [Steps] it ends after one epoch.
func Epochs(n int) Option {
	return func(c *config) {
		c.positive("Epochs", n)
		c.epochs = n
	}
}

// Steps ends the training after n steps, including those before [From], over any number of epochs that [Epochs] allows.
func Steps(n int) Option {
	return func(c *config) {
		c.positive("Steps", n)
		c.steps = n
	}
}

// From starts at a position of another training. The VM must have the parameters and the solver state of that position. A
// source with another order is an error.
func From(p Position) Option {
	return func(c *config) {
		if p.Epoch < 0 || p.Batch < 0 || p.Step < 0 {
			c.fault("From got %v, want no number below 0", p)
		}
		c.from = p
	}
}

// Prefetch makes n batches ahead, 1 without the option and at most 65536. On a device another one is staged during each
// step. With 0 each batch is made after the previous step and its callbacks, for sources that depend on them.
func Prefetch(n int) Option {
	const maxAhead = 1 << 16
	return func(c *config) {
		if n < 0 || n > maxAhead {
			c.fault("Prefetch got %d, want 0 to %d", n, maxAhead)
		}
		c.prefetch = n
	}
}

// Weights names an input with a float for each row of a batch: 1/n for each of the batch's n rows, 0 for the copies that pad a
// short batch. The sum of the rows' losses times the weights is their mean:
//
//	loss := G.Must(G.Sum(G.Must(G.HadamardProd(weights, losses))))
//
// Ops that combine all rows, such as the mean in a BatchNorm, count the copies too.
func Weights(n *gorgonia.Node) Option {
	return func(c *config) {
		if n == nil {
			c.fault("Weights got a nil node")
		}
		c.weights = n
	}
}

// LearnRate sets the learning rate of a solver before each step to schedule(step), where step is the number of steps made so
// far: see [Cosine], [Linear] and [StepDecay]. A rate that is NaN or infinite is an error of Run, and so is a solver that is none of the VM's.
func LearnRate(s gorgonia.Solver, schedule func(step int) float64) Option {
	return func(c *config) {
		if guard.IsNil(s) || schedule == nil {
			c.fault("LearnRate got a nil solver or function")
		}
		c.rates = append(c.rates, rate{s, schedule})
	}
}

// AfterStep calls a function after every n-th step. An error of the function ends the training and is returned by Run, unless
// it is [ErrStop]. The function may use the VM, for example to pull and save parameters.
func AfterStep(n int, f func(Step) error) Option {
	return func(c *config) {
		c.positive("AfterStep", n)
		if f == nil {
			c.fault("AfterStep got a nil function")
		}
		c.steppers = append(c.steppers, stepper{n, f})
	}
}

// AfterEpoch calls a function at the end of each epoch, and at the end of a training that [Steps] ends within an epoch. An
// error of the function is handled as in [AfterStep].
func AfterEpoch(f func(Epoch) error) Option {
	return func(c *config) {
		if f == nil {
			c.fault("AfterEpoch got a nil function")
		}
		c.ends = append(c.ends, f)
	}
}

// Progress shows the current step, the loss, steps per second and the remaining time. On a terminal it is a bar; otherwise a
// line every ten seconds and one at the end.
func Progress(w io.Writer) Option {
	return func(c *config) {
		if guard.IsNil(w) {
			c.fault("Progress got a nil writer")
		}
		c.progress = w
	}
}
