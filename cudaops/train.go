package cudaops

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// Train makes a step of one of Gorgonia's solvers a part of every run: forward, backward and update run as one piece of
// work on the device. The learnables and the solver's moments stay on the device between runs. The program does not call
// the solver's Step, and the gradients of the learnables are not copied to the host.
//
// Learnables are inputs of the graph that were passed to [gorgonia.Grad]. The first run copies their values to the
// device. After that [gorgonia.Node.Value] is the value last pulled by [VM.Pull] or [VM.Close]. A value bound by
// [gorgonia.Let] is copied to the device in the next run, and a value changed in place by [VM.Push]. No two
// learnables may share memory on the host.
//
// The solver's options are read before every run, so a learning rate schedule calls
// gorgonia.WithLearnRate(rate)(solver) between runs. The solver itself does not change; it must not have made steps
// before.
//
// A solver of another module makes its steps on the host, by its Step after each run; the report gives the reason.
func Train(s gorgonia.Solver, learnables ...*gorgonia.Node) Option {
	return func(c *config) { c.train = append(c.train, training{s, learnables}) }
}

// ClipNorm limits the norm of the gradients of all learnables together, the root of the sum of the squares of all their
// elements. If it exceeds limit, all gradients are scaled by one factor, before the solver's own options apply.
func ClipNorm(limit float64) Option {
	return func(c *config) { c.clipNorm = append(c.clipNorm, limit) }
}

// ReadEvery copies results, values of nodes and variables of Read, to the host only in every n-th run. Other runs do not
// wait for the device; their failures are returned by a later call.
//
// Every run copies its results in these cases: a [gorgonia.BatchNormOp] trains, whose running mean and variance are stored
// in the op; the graph computes indices of [gorgonia.ByIndices], which are checked after the run; under [Watch]; and if
// the solver of [Train] makes its steps on the host. Indices that are inputs are checked before the run.
func ReadEvery(n int) Option { return func(c *config) { c.every = append(c.every, n) } }

// StepEvery makes the step of [Train] only in every n-th run, with the sum of the gradients of n runs (gradient
// accumulation). So n small batches make the step of one large batch. If the cost is a mean over the batch,
// [gorgonia.WithBatchSize](n) of the solver, or a cost divided by n, averages the gradients.
//
// [ClipNorm] limits the norm of the sum. Random numbers differ in each run, and a [gorgonia.BatchNormOp] normalizes each
// batch separately. The sum is part of the VM's [Snapshot].
func StepEvery(n int) Option { return func(c *config) { c.stepEvery = append(c.stepEvery, n) } }

// training holds the arguments of Train.
type training struct {
	solver     gorgonia.Solver
	learnables []*gorgonia.Node
}

// trainer makes the steps of a VM's solver.
type trainer struct {
	training
	onHost  bool // the solver's Step runs on the host
	reader  *internal.SolverReader
	options internal.Solver // the solver's options when the graph was compiled
	norm    float64         // limit of ClipNorm, or 0
	every   int             // runs per step
	runs    int             // runs made so far
	graph   *lower.Trained
	*parameters
	spoilt   error // from a step with indices outside of their axis, or nil
	keptRuns int   // runs made before the current one
}

// newTrainer returns the trainer of the options, or nil without Train.
func newTrainer(c *config) (*trainer, error) {
	switch {
	case len(c.every) > 1 || len(c.every) == 1 && c.every[0] < 1:
		return nil, fmt.Errorf("ReadEvery got %v, want a single number above 0", c.every)
	case len(c.train) > 1:
		return nil, fmt.Errorf("got the option Train %d times, want it once", len(c.train))
	case len(c.clipNorm) > 1 || len(c.clipNorm) == 1 && !(c.clipNorm[0] > 0 && !math.IsInf(c.clipNorm[0], 0)):
		return nil, fmt.Errorf("ClipNorm got %v, want a single number above 0", c.clipNorm)
	case len(c.train) > 0 && c.forward:
		return nil, errors.New("got the options Train and ForwardOnly or Inference, want one of them")
	case len(c.clipNorm) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option ClipNorm without Train")
	case len(c.stepEvery) > 1 || len(c.stepEvery) == 1 && c.stepEvery[0] < 1:
		return nil, fmt.Errorf("StepEvery got %v, want a single number above 0", c.stepEvery)
	case len(c.stepEvery) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option StepEvery without Train: AddGradients adds up gradients for steps that the program makes")
	case c.add && len(c.every) > 0 && c.every[0] > 1:
		return nil, errors.New("got the options AddGradients and ReadEvery, want one of them: gradients are added in runs that hand them over")
	case len(c.train) == 0:
		return nil, nil
	}
	t := &trainer{training: c.train[0], every: 1}
	if len(c.stepEvery) > 0 {
		t.every = c.stepEvery[0]
	}
	if t.solver == nil {
		return nil, errors.New("Train got a nil solver")
	}
	if guard.IsNil(t.solver) {
		return nil, fmt.Errorf("Train got a nil %T", t.solver)
	}
	if len(t.learnables) == 0 {
		return nil, errors.New("Train got no learnables")
	}
	var err error
	if t.reader, err = internal.NewSolverReader(t.solver); err != nil {
		return nil, fmt.Errorf("Train: %w", err)
	}
	if t.onHost = t.reader == nil; !t.onHost {
		t.options = t.reader.Read()
	}
	switch {
	case t.onHost && len(c.clipNorm) > 0:
		return nil, fmt.Errorf("ClipNorm wants one of Gorgonia's solvers, got a %T", t.solver)
	case t.onHost && c.strict:
		return nil, fmt.Errorf("%s, and Strict is set", t.where(""))
	case t.options.Stepped:
		return nil, fmt.Errorf("Train got a %T that has made steps, want a new one", t.solver)
	}
	if len(c.clipNorm) > 0 {
		t.norm = c.clipNorm[0]
	}
	return t, nil
}

// nodes returns the learnables.
func (t *trainer) nodes() []*gorgonia.Node {
	if t == nil {
		return nil
	}
	return t.learnables
}

// onDevice returns the learnables that stay on the device.
func (t *trainer) onDevice() []*gorgonia.Node {
	if t == nil || t.onHost {
		return nil
	}
	return t.learnables
}

// lowered returns the training to compile into the program, or nil.
func (t *trainer) lowered() *lower.Training {
	if t == nil || t.onHost {
		return nil
	}
	return &lower.Training{Learnables: t.learnables, Solver: t.options, ClipNorm: t.norm > 0, Adds: t.every > 1, Homes: t.homes()}
}

// where describes where the steps are made.
func (t *trainer) where(device string) string {
	if t == nil {
		return ""
	}
	perStep := ""
	if t.every > 1 {
		perStep = fmt.Sprintf(", each of %d runs", t.every)
	}
	if t.onHost {
		return fmt.Sprintf("steps of %T%s on the host: it is not one of Gorgonia's solvers", t.solver, perStep)
	}
	return fmt.Sprintf("steps of %T%s on %s", t.solver, perStep, device)
}

// steps returns the number of steps made so far.
func (t *trainer) steps() int { return t.runs / t.every }

// step returns the number of the step that includes the last run, counted from 1.
func (t *trainer) step() int { return (t.runs-1)/t.every + 1 }

// adds reports whether the current run adds the gradient of a node to the node's previous gradient. With a solver on the host
// it does so for learnables, except in the first run of a step.
func (t *trainer) adds(n *gorgonia.Node) bool {
	return t.takesGradients() && (t.runs-1)%t.every > 0 && slices.Contains(t.learnables, n)
}

// before prepares a step: it sets the last inputs of the program to the numbers of the step.
func (t *trainer) before(in []gorgonia.Value) error {
	if t == nil {
		return nil
	}
	if t.keptRuns = t.runs; t.onHost {
		return nil
	}
	now := t.reader.Read()
	if !solver.Same(now, t.options) {
		return fmt.Errorf("the %T uses other options than when the VM was made: got %+v, want the options of %+v, whose numbers may differ", t.solver, now, t.options)
	}
	step := 0 // no step in this run
	if (t.runs+1)%t.every == 0 {
		step = t.steps() + 1
	}
	numbers := t.graph.Numbers(now, step, t.norm)
	copy(in[len(in)-len(numbers):], numbers)
	return nil
}

// undo uncounts the current run, unless the device's states stay as the run has made them.
func (t *trainer) undo() {
	if t == nil || !t.onHost && t.kept == nil {
		return
	}
	steps := t.steps()
	if t.runs = t.keptRuns; !t.onHost {
		t.stepped(t.steps() - steps)
		t.spoilt = nil
	}
}

// started counts a run that is in flight.
func (t *trainer) started() {
	if t == nil {
		return
	}
	if t.runs++; t.runs%t.every == 0 {
		t.stepped(1)
	}
}

// spoil records that a step was made with indices outside of their axis.
func (t *trainer) spoil(err error) {
	if t != nil && !t.onHost {
		t.spoilt = fmt.Errorf("step %d was made with a wrong index, %w: want Restore with a snapshot taken before it", t.step(), err)
	}
}

// made returns the number of runs made so far.
func (t *trainer) made() int {
	if t == nil {
		return 0
	}
	return t.runs
}

// takesGradients reports whether the solver reads gradients on the host.
func (t *trainer) takesGradients() bool { return t != nil && t.onHost }

// stepOnHost makes the step of a solver on the host.
func (t *trainer) stepOnHost() error {
	if !t.takesGradients() || t.runs%t.every != 0 {
		return nil
	}
	err := guard.Recover("its Step", func() error { return t.solver.Step(gorgonia.NodesToValueGrads(t.learnables)) })
	if err != nil {
		return fmt.Errorf("solver %T: %w", t.solver, err)
	}
	return nil
}

// built records the training in a compiled graph.
func (t *trainer) built(graph *lower.Trained) {
	if t != nil {
		t.graph = graph
	}
}
