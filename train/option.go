package train

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// ErrStop is returned by a callback to end the training without an error.
var ErrStop = errors.New("train: stop")

// Option is an option of [Run].
type Option func(*config)

type config struct {
	epochs, steps int // 0 for no limit
	from          Position
	checkpoint    saving
	prefetch      int
	stage         func(map[*gorgonia.Node]gorgonia.Value) (bool, error) // that of the VM
	weights       *gorgonia.Node
	rates         []rate
	steppers      []stepper
	ends          []func(Epoch) error
	progress      io.Writer
	faults        []error
}

// rate is a schedule of a solver's learning rate.
type rate struct {
	solver gorgonia.Solver
	of     func(step int) float64
}

// stepper is a callback after every n-th step.
type stepper struct {
	n int
	f func(Step) error
}

func (c *config) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

// positive notes a number that is not above 0.
func (c *config) positive(option string, n int) {
	if n < 1 {
		c.fault("%s got %d, want a number above 0", option, n)
	}
}

// Epochs ends the training after n epochs, those before [From] among them. Without Epochs
// and [Steps] it is one.
func Epochs(n int) Option {
	return func(c *config) {
		c.positive("Epochs", n)
		c.epochs = n
	}
}

// Steps ends the training after n steps, those before [From] among them, in as many epochs
// as it takes, or as [Epochs] allows.
func Steps(n int) Option {
	return func(c *config) {
		c.positive("Steps", n)
		c.steps = n
	}
}

// From begins at a position of another training. The VM must have the parameters and the
// solver's state of that moment. It is an error if the source has another order.
func From(p Position) Option {
	return func(c *config) {
		if p.Epoch < 0 || p.Batch < 0 || p.Step < 0 {
			c.fault("From got %v, want no number below 0", p)
		}
		c.from = p
	}
}

// Prefetch has n batches ready before they are needed, 1 without the option, and on a device one more,
// which is copied there while a step runs. With 0 a batch is made when the step before it
// has ended, and its callbacks: for sources that depend on them. At most 65536 can be ready.
func Prefetch(n int) Option {
	const most = 1 << 16
	return func(c *config) {
		if n < 0 || n > most {
			c.fault("Prefetch got %d, want 0 to %d", n, most)
		}
		c.prefetch = n
	}
}

// Weights names an input with a float for each row of a batch: 1/n for each of n rows, 0 for the
// copies that fill up a batch with fewer rows than the inputs. A loss that is the sum of the rows'
// losses times the weights is their mean:
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

// LearnRate sets the learning rate of a solver before each step to the result of the function
// for the number of steps made so far.
func LearnRate(s gorgonia.Solver, of func(step int) float64) Option {
	return func(c *config) {
		if guard.IsNil(s) || of == nil {
			c.fault("LearnRate got a nil solver or function")
		}
		c.rates = append(c.rates, rate{s, of})
	}
}

// Cosine returns a schedule for [LearnRate]: the rate grows from 0 to top in the first
// warmup steps, and falls to 0 along half a cosine until step total.
func Cosine(top float64, warmup, total int) func(step int) float64 {
	return func(step int) float64 {
		if step < warmup {
			return top * float64(step+1) / float64(warmup)
		}
		left := float64(step-warmup) / float64(max(total-warmup, 1))
		return top * (1 + math.Cos(math.Pi*min(left, 1))) / 2
	}
}

// AfterStep calls a function after every n-th step. Its error ends the training, and is
// that of Run unless it is [ErrStop]. The function may use the VM: to pull parameters and save
// them, say.
func AfterStep(n int, f func(Step) error) Option {
	return func(c *config) {
		c.positive("AfterStep", n)
		if f == nil {
			c.fault("AfterStep got a nil function")
		}
		c.steppers = append(c.steppers, stepper{n, f})
	}
}

// AfterEpoch calls a function at the end of each epoch, and of a training that [Steps]
// ends within one. Its error is as that of an [AfterStep].
func AfterEpoch(f func(Epoch) error) Option {
	return func(c *config) {
		if f == nil {
			c.fault("AfterEpoch got a nil function")
		}
		c.ends = append(c.ends, f)
	}
}

// Progress shows how far the training is, its loss, steps in a second and the time left: as a bar
// if w is a terminal, else by a line every ten seconds and one at the end.
func Progress(w io.Writer) Option {
	return func(c *config) {
		if guard.IsNil(w) {
			c.fault("Progress got a nil writer")
		}
		c.progress = w
	}
}
