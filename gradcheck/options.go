package gradcheck

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
)

type config struct {
	machine  func(*gorgonia.ExprGraph) (gorgonia.VM, error)
	step     float64
	abs, rel float64
	own      bool // the caller set abs and rel
	seed     uint64
	modes    []Mode
	max      int
	largest  *float64
}

// Option is an option of [Check].
type Option func(*config)

// Machine runs the graphs of mode SymDiff on the machine that f makes, instead of tape.NewMachine,
// Gorgonia's tape machine. Mode DoDiff always needs Gorgonia's LispMachine.
func Machine(f func(*gorgonia.ExprGraph) (gorgonia.VM, error)) Option {
	return func(c *config) { c.machine = f }
}

// Step sets h, which is multiplied by |x| where |x| > 1; the default is 6e-6.
func Step(h float64) Option { return func(c *config) { c.step = h } }

// Tolerance sets the maximum error of a gradient, for inputs of any type: abs + rel * |want|, where want is the central
// difference.
func Tolerance(abs, rel float64) Option {
	return func(c *config) { c.abs, c.rel, c.own = abs, rel, true }
}

// Seed fixes the random weights and the choice of elements, which otherwise differ in every call.
func Seed(seed uint64) Option { return func(c *config) { c.seed = seed } }

// Modes sets the modes to check; the default is both.
func Modes(modes ...Mode) Option { return func(c *config) { c.modes = modes } }

// MaxElements checks at most n elements of each input, chosen at random: each
// one costs two runs of the expression. The default is to check all.
func MaxElements(n int) Option { return func(c *config) { c.max = n } }

// Largest stores the largest error of a gradient, tolerated or not, divided by the largest difference of the same input. It
// shows the error caused by a lower precision of products: see cudaops.Precision.
func Largest(to *float64) Option { return func(c *config) { c.largest = to } }

func (c *config) validate() error {
	if !(c.step > 0) || math.IsInf(c.step, 0) {
		return fmt.Errorf("Step: got %v, want a positive number", c.step)
	}
	if c.own && !(c.abs >= 0 && c.rel >= 0) {
		return fmt.Errorf("Tolerance: got %v and %v, want numbers of at least 0", c.abs, c.rel)
	}
	if c.max < 0 {
		return fmt.Errorf("MaxElements: got %d, want at least 0", c.max)
	}
	if len(c.modes) == 0 {
		return fmt.Errorf("Modes: got none, want SymDiff, DoDiff or both")
	}
	for _, m := range c.modes {
		if m != SymDiff && m != DoDiff {
			return fmt.Errorf("Modes: got %d, want SymDiff or DoDiff", int(m))
		}
	}
	if c.machine == nil {
		return fmt.Errorf("Machine: got nil")
	}
	return nil
}
