package train

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// ReduceOnPlateau sets the learning rate of a solver to rate, and multiplies it by factor after each patience + 1 epochs in a row that were not better than the best one
// before by more than a ten-thousandth of its score: PyTorch's ReduceLROnPlateau with its other defaults. It needs [Validate], whose first metric is the score.
// [Checkpoint] saves the rate.
func ReduceOnPlateau(s gorgonia.Solver, rate, factor float64, patience int) Option {
	return func(c *config) {
		if guard.IsNil(s) || !(rate > 0) || !(factor > 0 && factor < 1) || patience < 0 {
			c.fault("ReduceOnPlateau got a solver %T, rate %v, factor %v and patience %d, want a solver, a rate above 0, a factor between 0 and 1, and patience of 0 or more", s, rate, factor, patience)
		}
		c.plateaus = append(c.plateaus, reduction{s, rate, factor, patience})
	}
}

// reduction holds the arguments of ReduceOnPlateau.
type reduction struct {
	solver       gorgonia.Solver
	rate, factor float64
	patience     int
}

// plateau is the state of a reduction.
type plateau struct {
	Rate, Best number
	Behind     int `json:",omitempty"` // epochs since the last better one or reduction
}

// update records an epoch's score.
func (p *plateau) update(r reduction, m Metric, score float64) {
	const threshold, least = 1e-4, 1e-8 // of PyTorch
	best := float64(p.Best)
	if m.Min && score < best*(1-threshold) || !m.Min && score > best*(1+threshold) {
		p.Best, p.Behind = number(score), 0
		return
	}
	if p.Behind++; p.Behind <= r.patience {
		return
	}
	if next := float64(p.Rate) * r.factor; float64(p.Rate)-next > least {
		p.Rate = number(next)
	}
	p.Behind = 0
}

// beginPlateaus sets the rates of ReduceOnPlateau by the states in a checkpoint, if it has some. It returns an error if a solver has two rates, or is none of the VM's.
func (l *loop) beginPlateaus(saved []plateau) error {
	c := &l.config
	if n := len(c.plateaus); n > 0 && c.validation == nil {
		return errors.New("got ReduceOnPlateau without Validate, want both")
	} else if len(saved) > 0 && len(saved) != n {
		return fmt.Errorf("%s: got a training with %d ReduceOnPlateau, want %d as in the options", c.checkpoint.path, len(saved), n)
	}
	for i, r := range c.plateaus {
		p := plateau{Rate: number(r.rate), Best: number(math.Inf(-1))}
		if c.validation.metrics[0].Min {
			p.Best = number(math.Inf(1))
		}
		if len(saved) > 0 {
			p = saved[i]
		}
		l.plateaus = append(l.plateaus, p)
		c.rates = append(c.rates, rate{r.solver, func(int) float64 { return float64(l.plateaus[i].Rate) }})
	}
	for i, r := range c.rates {
		// A VM without learnables on its device has a solver of another module, which may contain that of the rate.
		if len(l.vm.Learnables()) > 0 && !slices.Contains(l.vm.Solvers(), r.solver) {
			return fmt.Errorf("got a learning rate of a %T by LearnRate or ReduceOnPlateau that is none of the VM's, want the solver of cudaops.Train", r.solver)
		}
		for _, other := range c.rates[:i] {
			if reflect.ValueOf(r.solver).Comparable() && r.solver == other.solver {
				return errors.New("got two learning rates of one solver by LearnRate or ReduceOnPlateau, want one")
			}
		}
	}
	return nil
}
