package cudaops

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
// Several Trains have solvers for disjoint sets of learnables, such as weights with decay, and biases and norms without. Then
// every input that was passed to gorgonia.Grad must be in one set. All solvers make their steps in the same runs.
//
// A solver of another module makes its steps on the host, by its Step after each run; the report gives the reason. It must
// be the only one.
func Train(s gorgonia.Solver, learnables ...*gorgonia.Node) Option {
	return func(c *config) { c.addTraining(training{solver: s, learnables: learnables}) }
}

// SGD is [Train] with the steps of PyTorch's SGD for the options of a [gorgonia.Momentum]. Gorgonia's own steps, those of Train, are the same
// while the learning rate is constant and there is no regularization.
//
//	g = gradient + WithL2Reg · p        (weight_decay)
//	v = WithMomentum · v + g
//	p = p - WithLearnRate · v
//
// Gorgonia's velocity has the learning rates of the steps before, and the regularization is of the velocity, in place of p.
func SGD(s *gorgonia.Momentum, learnables ...*gorgonia.Node) Option {
	return func(c *config) { c.addTraining(training{solver: s, learnables: learnables, sgd: true}) }
}

// WeightDecay is an option of [gorgonia.NewAdamW]: the decay of weights, 0.01 without it, which Gorgonia calls
// [gorgonia.WithRho]. A step of [Train] first multiplies each learnable by 1 - LearnRate * decay, separately from its gradient, as
// PyTorch's AdamW does. Other solvers ignore the option, as they do Gorgonia's options that they do not have.
func WeightDecay(decay float64) gorgonia.SolverOpt {
	return func(s gorgonia.Solver) {
		if _, ok := s.(*gorgonia.AdamW); ok {
			gorgonia.WithRho(decay)(s)
		}
	}
}

// EMA keeps an exponential moving average of each learnable of [Train] on the device. The first step sets it to the learnable;
// each later step, after the solver's, adds (1 - decay) * (learnable - average), with a decay between 0 and 1. [VM.EMA]
// returns the averages, and they are part of the VM's [Snapshot].
func EMA(decay float64) Option { return func(c *config) { c.ema = append(c.ema, decay) } }

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

// training holds the arguments of a Train and the solver's options.
type training struct {
	solver     gorgonia.Solver
	learnables []*gorgonia.Node
	sgd        bool                   // of SGD
	reader     *internal.SolverReader // nil for a solver of another module
	options    internal.Solver        // when the graph was compiled
}

// trainer makes the steps of a VM's solvers.
type trainer struct {
	sets       []training
	compiler   lower.Solvers
	learnables []*gorgonia.Node  // of all sets
	onHost     bool              // the solver's Step runs on the host
	norm       float64           // limit of ClipNorm, or 0
	ema        float64           // decay of EMA, or 0
	scaler     *GradScaler       // of LossScaling, or nil
	began      bool              // the device has the first scale
	found      bool              // the last run whose results were copied has found a gradient that is not finite
	every      int               // runs per step
	reduced    kernels.Precision // of gradients between ranks
	shards     int               // ranks that the solver's state is divided among, 0 or 1 if it is not
	runs       int               // runs made so far
	*parameters
	spoilt   error // from a step with indices outside of their axis, or nil
	keptRuns int   // runs made before the current one
}

// addTraining adds a Train. Only options name it, so that programs that do not train link nothing of newTrainer and of lower.Gorgonia.
func (c *config) addTraining(t training) {
	c.train, c.newTrainer = append(c.train, t), newTrainer
}

// trainer returns the trainer of the options, or nil without Train.
func (c *config) trainer(g *gorgonia.ExprGraph) (*trainer, error) {
	switch {
	case len(c.every) > 1 || len(c.every) == 1 && c.every[0] < 1:
		return nil, fmt.Errorf("ReadEvery got %v, want a single number above 0", c.every)
	case len(c.clipNorm) > 1 || len(c.clipNorm) == 1 && !(c.clipNorm[0] > 0 && !math.IsInf(c.clipNorm[0], 0)):
		return nil, fmt.Errorf("ClipNorm got %v, want a single number above 0", c.clipNorm)
	case len(c.train) > 0 && c.forward:
		return nil, errors.New("got the options Train and ForwardOnly or Inference, want one of them")
	case len(c.clipNorm) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option ClipNorm without Train")
	case len(c.ema) > 1 || len(c.ema) == 1 && !(c.ema[0] > 0 && c.ema[0] < 1):
		return nil, fmt.Errorf("EMA got %v, want a single number between 0 and 1", c.ema)
	case len(c.ema) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option EMA without Train")
	case c.sharded && len(c.train) == 0:
		return nil, errors.New("got the option ShardSolver without Train")
	case len(c.reduced) > 1 || len(c.reduced) == 1 && !isHalf(c.reduced[0]):
		return nil, fmt.Errorf("GradientsIn got %v, want BF16 or F16, and one of them", c.reduced)
	case len(c.reduced) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option GradientsIn without Train")
	case len(c.scaler) > 1:
		return nil, fmt.Errorf("LossScaling got %v, want a single GradScaler", c.scaler)
	case len(c.scaler) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option LossScaling without Train")
	case len(c.stepEvery) > 1 || len(c.stepEvery) == 1 && c.stepEvery[0] < 1:
		return nil, fmt.Errorf("StepEvery got %v, want a single number above 0", c.stepEvery)
	case len(c.stepEvery) > 0 && len(c.train) == 0:
		return nil, errors.New("got the option StepEvery without Train: AddGradients adds up gradients for steps that the program makes")
	case c.add && len(c.every) > 0 && c.every[0] > 1:
		return nil, errors.New("got the options AddGradients and ReadEvery, want one of them: gradients are added in runs that hand them over")
	case len(c.train) == 0:
		return nil, nil
	}
	return c.newTrainer(c, g)
}

// newTrainer returns the trainer of options that are valid.
func newTrainer(c *config, g *gorgonia.ExprGraph) (*trainer, error) {
	t := &trainer{compiler: lower.Gorgonia, sets: slices.Clone(c.train), every: one(c.stepEvery, 1), norm: one(c.clipNorm, 0), ema: one(c.ema, 0), reduced: one(c.reduced, FullPrecision)}
	if c.sharded {
		t.shards = c.total()
	}
	if len(c.scaler) > 0 {
		s, err := c.scaler[0].complete()
		if err != nil {
			return nil, err
		}
		t.scaler = &s
	}
	for i := range t.sets {
		if err := t.add(&t.sets[i]); err != nil {
			return nil, err
		}
	}
	switch s := t.sets[0].solver; {
	case t.onHost && t.scaler != nil:
		return nil, fmt.Errorf("LossScaling wants one of Gorgonia's solvers, got a %T", s)
	case t.onHost && (t.norm > 0 || t.ema > 0):
		return nil, fmt.Errorf("ClipNorm and EMA want one of Gorgonia's solvers, got a %T", s)
	case t.onHost && c.total() > 1:
		return nil, fmt.Errorf("%d ranks want one of Gorgonia's solvers, got a %T", c.total(), s)
	case t.onHost && c.strict:
		return nil, fmt.Errorf("%s, and Strict is set", t.where(""))
	}
	if len(t.sets) > 1 {
		for _, n := range g.AllNodes() {
			if n.Op() == nil && n.Deriv() != nil && !slices.Contains(t.learnables, n) {
				return nil, fmt.Errorf("got input %s with a gradient in none of %d Trains, want it in one", internal.Name(n), len(t.sets))
			}
		}
	}
	return t, nil
}

// numbers prints what the steps depend on and the program does not show.
func (t *trainer) numbers() (text string) {
	if t == nil {
		return ""
	}
	if t.scaler != nil {
		text = fmt.Sprintf("%+v", *t.scaler)
	}
	for _, s := range t.sets {
		text += fmt.Sprint(t.used(s.options))
	}
	return text
}

// one returns the argument of an option that was given at most once, or what it is without.
func one[T any](list []T, without T) T { return append(list, without)[0] }

// add checks a set and adds its learnables.
func (t *trainer) add(s *training) (err error) {
	switch {
	case s.solver == nil:
		return errors.New("Train got a nil solver")
	case guard.IsNil(s.solver):
		return fmt.Errorf("Train got a nil %T", s.solver)
	case len(s.learnables) == 0:
		return errors.New("Train got no learnables")
	}
	for _, n := range s.learnables {
		switch {
		case n == nil:
			return errors.New("Train: got a nil learnable")
		case slices.Contains(t.learnables, n):
			return fmt.Errorf("Train: learnable %s: got it twice, want it once", internal.Name(n))
		}
		t.learnables = append(t.learnables, n)
	}
	if s.reader, err = internal.NewSolverReader(s.solver); err != nil {
		return fmt.Errorf("Train: %w", err)
	}
	if s.reader == nil {
		if t.onHost = true; len(t.sets) > 1 {
			return fmt.Errorf("several Trains want Gorgonia's solvers, got a %T", s.solver)
		}
		return nil
	}
	if s.sgd {
		s.reader.AsSGD()
	}
	if s.options = s.reader.Read(); s.options.Stepped {
		return fmt.Errorf("Train got a %T that has made steps, want a new one", s.solver)
	}
	return nil
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
	l := &lower.Training{Solvers: t.compiler, ClipNorm: t.norm > 0, Adds: t.every > 1, EMA: t.ema, Scaler: t.scaler.compiled(), Reduced: t.reduced, Sharded: t.shards > 1, Homes: t.homes()}
	l.Sets = program.Collect(t.sets, func(s training) lower.Set { return lower.Set{Solver: s.options, Learnables: s.learnables} })
	return l
}

// setOf returns the index of a learnable's set.
func (t *trainer) setOf(i int) int {
	set := 0
	for ; i >= len(t.sets[set].learnables); set++ {
		i -= len(t.sets[set].learnables)
	}
	return set
}

// groups returns, for each learnable, the number of those with which it is contiguous in memory: those of one set and element type or, if
// the solver's state is divided, of a part of these that is reduced in one operation.
func (t *trainer) groups() []int {
	type of struct {
		set int
		d   tensor.Dtype
	}
	last, bytes := map[of]int{}, []int64{}
	list := make([]int, len(t.onDevice()))
	for i, n := range t.onDevice() {
		d, _ := internal.ElementType(n)
		key := of{t.setOf(i), d}
		k, known := last[key]
		if !known || t.shards > 1 && bytes[k] >= lower.BucketBytes {
			k = len(bytes)
			last[key], bytes = k, append(bytes, 0)
		}
		bytes[k] += int64(n.Shape().TotalSize()) * int64(d.Size())
		list[i] = k
	}
	return list
}

// solvers names the types of the solvers.
func (t *trainer) solvers() string {
	return strings.Join(program.Collect(t.sets, func(s training) string { return fmt.Sprintf("%T", s.solver) }), " and ")
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
		return fmt.Sprintf("steps of %s%s on the host: it is not one of Gorgonia's solvers", t.solvers(), perStep)
	}
	if t.shards > 1 {
		perStep += fmt.Sprintf(", state divided among %d ranks", t.shards)
	}
	return fmt.Sprintf("steps of %s%s on %s", t.solvers(), perStep, device)
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
	now := make([]internal.Solver, len(t.sets))
	for i, s := range t.sets {
		if now[i] = s.reader.Read(); !solver.Same(now[i], s.options) {
			return fmt.Errorf("the %T uses other options than when the VM was made: got %+v, want the options of %+v, whose numbers may differ", s.solver, now[i], s.options)
		}
	}
	step := 0 // no step in this run
	if (t.runs+1)%t.every == 0 {
		step = t.steps() + 1
	}
	numbers := t.graph.Trained.Numbers(now, step, t.norm)
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
	s := t.sets[0].solver
	err := guard.Recover("its Step", func() error { return s.Step(gorgonia.NodesToValueGrads(t.learnables)) })
	if err != nil {
		return fmt.Errorf("solver %T: %w", s, err)
	}
	return nil
}
