package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// Run trains: for each batch of the source it binds the inputs and runs the VM, which makes
// a step of the solver of cudaops.Train. loss is the node of the loss, a scalar output of
// the graph.
//
// Run ends after the epochs and steps of its options. It ends early when the context is done, with the context's cause in
// the error; by an error of the source, the VM or a callback; by [ErrStop] or [EarlyStop]; or if the loss is NaN or infinite. A
// step during which the context ends is either made or has no effect. A step that cudaops.LossScaling skips counts as a step, and
// its loss is left out of the history if it is NaN or infinite.
//
// On several ranks (cudaops.OnDevices) a step takes the rows of all ranks for the inputs of cudaops.Split, in the order of the ranks, as one
// batch of the source. The batches of [Data] and [DeviceData] have them: the order of the rows is one permutation, of which every rank
// takes its share of each batch. A short batch is left out, and Weights is an error. Of several
// processes (cudaops.Processes) each makes the same data set and takes its share; from another source it takes its own rows.
//
// In any case every step is complete, the history contains exactly the steps made, as cudaops.VM.Runs counts them, and
// the learnables are pulled: their nodes have the values after the last step.
func Run(ctx context.Context, vm *cudaops.VM, loss *gorgonia.Node, source Source, opts ...Option) (History, error) {
	if guard.IsNil(ctx) {
		return History{}, errors.New("train: Run got a nil context")
	}
	l, err := newLoop(vm, loss, source, opts)
	if err != nil {
		return History{}, fmt.Errorf("train: %w", err)
	}
	err = errors.Join(l.run(ctx), l.save())
	if len(vm.Learnables()) > 0 {
		err = errors.Join(err, vm.Pull())
	}
	l.progress.end(l.position, l.last)
	l.history.End, l.history.Time = l.position, time.Since(l.start)
	l.history.Best, l.history.Stopped = l.best.Epoch, l.stopped()
	if err != nil {
		err = fmt.Errorf("train: %w", err)
	}
	return l.history, err
}

// loop is the state of a training.
type loop struct {
	vm       *cudaops.VM
	loss     *gorgonia.Node
	source   Source
	config   config
	fitter   *fitter
	progress *progress // may be nil

	start    time.Time
	position Position
	history  History
	seen     gorgonia.Value // value of the loss before the step: another VM may have set it
	last     float64        // the last loss
	part     part           // losses of the current epoch
	best     best           // of Validate
	plateaus []plateau      // of ReduceOnPlateau
	feeder   feeder
	bound    Batch // the last batch
	changed  bool  // since the last checkpoint
	failed   bool  // a step or its checkpoint failed
	staged   bool  // batches are staged on the device
}

func newLoop(vm *cudaops.VM, loss *gorgonia.Node, source Source, opts []Option) (*loop, error) {
	l := &loop{vm: vm, loss: loss, source: source, config: config{prefetch: 1}, last: math.NaN(), start: time.Now(), feeder: newFeeder(vm)}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("Run got a nil option")
		}
		o(&l.config)
	}
	c := &l.config
	switch {
	case vm == nil || loss == nil || guard.IsNil(source):
		return nil, errors.New("Run got a nil VM, loss or source")
	case vm.Report().Solver == "":
		return nil, errors.New("got a VM that makes no steps: make it with the option cudaops.Train")
	case loss.Shape().TotalSize() != 1:
		return nil, fmt.Errorf("loss: got node %s of shape %v, want a scalar", internal.Name(loss), loss.Shape())
	case !slices.Contains(vm.Results(), loss):
		return nil, fmt.Errorf("loss: got node %s, want an output of the VM or a node passed to cudaops.Keep", internal.Name(loss))
	}
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	if err := errors.Join(c.checkValidation(vm), c.checkFolders(vm)); err != nil {
		return nil, err
	}
	saved, err := l.load()
	if err == nil {
		err = l.beginPlateaus(saved)
	}
	if err != nil {
		return nil, err
	}
	if c.epochs == 0 && c.steps == 0 {
		c.epochs = 1
	}
	ranks, split := vm.Ranks()
	first, all := vm.Process()
	if s, ok := source.(ranked); ok && all > 1 {
		if source, err = s.onRanks(ranks, first, all, split); err != nil {
			return nil, err
		}
		l.source = source
	}
	if all > 1 && c.weights != nil {
		return nil, fmt.Errorf("got the option Weights and a VM of %d ranks, want one of them", all)
	}
	if has, want := order(source), c.from.Order; want != "" && has != want {
		return nil, fmt.Errorf("got a position in an order of %q, the source has %q", want, has)
	}
	l.fitter, err = newFitter(vm, c.weights)
	if err != nil {
		return nil, err
	}
	if c.stage == nil {
		c.stage = vm.Stage
	}
	if l.staged, err = c.stage(nil); err != nil {
		return nil, err
	}
	if l.staged = l.staged && c.prefetch > 0; l.staged {
		if data, ok := source.(*Data); ok {
			l.source = data.inPinned(c.prefetch)
		}
	}
	l.position = c.from
	l.position.Order = order(source)
	l.history.Begin = l.position
	l.progress = newProgress(c.progress, l.total(0), l.position.Step)
	if n := len(l.history.Epochs); n > 0 && c.validation != nil {
		l.progress.setScores(c.validation.metrics, l.history.Epochs[n-1].Scores)
	}
	return l, nil
}

// total returns the number of steps of the training, or 0 if it is unknown. perEpoch is the number of steps of an epoch, or 0
// if that is unknown.
func (l *loop) total(perEpoch int) int {
	if s, ok := l.source.(counted); ok && perEpoch == 0 {
		perEpoch = s.batches(l.config.weights != nil)
	}
	total := l.config.epochs * perEpoch
	if steps := l.config.steps; steps > 0 && (total == 0 || steps < total) {
		total = steps
	}
	return total
}

// run makes the steps of the training.
func (l *loop) run(ctx context.Context) (err error) {
	if l.stopped() {
		return nil
	}
	if limit := l.config.steps; limit > 0 && l.position.Step >= limit {
		if err := l.endEpoch(ctx, false); !errors.Is(err, ErrStop) {
			return err
		}
		return nil
	}
	p := prefetch(ctx, l.source, l.fitter, &l.config)
	next := p.next
	if l.staged {
		next = stage(p, l.config.stage)
	}
	defer func() {
		if errors.Is(err, ErrStop) {
			err = nil
		}
		err = p.finish(err)
	}()
	for {
		it, ok := next()
		if ctx.Err() != nil && (ok || !p.complete) {
			return context.Cause(ctx)
		}
		switch {
		case !ok:
			if p.err == nil {
				err = l.endEpoch(ctx, false)
			}
			return err
		case it.batch == nil:
			l.history.Left += it.left
			err = l.endEpoch(ctx, true)
		default:
			err = l.step(ctx, it.batch)
		}
		if err != nil {
			return err
		}
	}
}

// step makes a step and calls those who wait for it.
func (l *loop) step(ctx context.Context, b Batch) error {
	at := l.position
	for _, r := range l.config.rates {
		now := r.schedule(at.Step)
		if math.IsNaN(now) || math.IsInf(now, 0) {
			return fmt.Errorf("%v: LearnRate: got the rate %v, want a finite number", at, now)
		}
		gorgonia.WithLearnRate(now)(r.solver)
	}
	before := l.vm.Runs()
	l.seen = l.loss.Value()
	err := l.bind(b)
	if err == nil {
		err = l.vm.RunContext(ctx)
	}
	made := l.vm.Runs() > before
	if !made && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	if l.failed = err != nil; l.failed {
		at.Step++
		err = fmt.Errorf("%v: %w", at, err)
	}
	if made {
		l.position.Step++
		l.position.Batch++
		l.history.Steps++
		l.part.Steps++
		l.changed = true
		err = errors.Join(err, l.read())
	}
	if err != nil {
		return err
	}
	l.progress.step(l.position, l.last)
	for _, s := range l.config.steppers {
		if l.position.Step%s.n != 0 {
			continue
		}
		l.progress.clear()
		if err := s.f(Step{l.position, l.last}); err != nil {
			return err
		}
	}
	if n := l.config.checkpoint.n; n > 0 && l.position.Step%n == 0 {
		return l.save()
	}
	return nil
}

// bind binds a batch to the inputs. The batch before it is not needed any more.
func (l *loop) bind(b Batch) error {
	if err := l.feeder.bind(b); err != nil {
		return err
	}
	if data, ok := l.source.(*Data); ok && l.bound != nil {
		data.recycle(l.bound)
	}
	l.bound = b
	return nil
}

// read records the loss if the run had results: then the node of the loss is bound to a new value.
func (l *loop) read() error {
	v := l.loss.Value()
	if v == nil || v == l.seen {
		return nil
	}
	var loss float64
	switch x := v.Data().(type) {
	case float32:
		loss = float64(x)
	case float64:
		loss = x
	case []float32:
		loss = float64(x[0])
	case []float64:
		loss = x[0]
	default:
		return fmt.Errorf("the loss, node %s, is a %T, want a float", internal.Name(l.loss), x)
	}
	finite := loss-loss == 0
	if !finite && l.vm.Overflowed() {
		return nil
	}
	l.last = loss
	l.history.Losses = append(l.history.Losses, Loss{l.position.Step, l.last})
	l.part.Sum += number(l.last)
	l.part.Known++
	if finite {
		return nil
	}
	class := "NaN"
	if math.IsInf(l.last, 0) {
		class = "Inf"
	}
	l.failed = true
	return fmt.Errorf("%v: the loss is %v: cudaops.Watch(cudaops.%s) names the node that made it", l.position, l.last, class)
}

// endEpoch validates, advances to the next epoch if this one is complete, and calls the callbacks. It does not report an epoch
// that ended before the position of From.
func (l *loop) endEpoch(ctx context.Context, whole bool) error {
	e := Epoch{
		Number: l.position.Epoch + 1, Position: l.position, Steps: l.part.Steps,
		Loss: float64(l.part.Sum) / float64(l.part.Known), Time: time.Since(l.start),
	}
	if whole {
		e.Epoch++
		e.Batch = 0
	}
	if e.Steps == 0 {
		l.position = e.Position
		return nil
	}
	better, err := l.validate(ctx, &e)
	if err != nil {
		return err
	}
	l.position, l.part, l.changed = e.Position, part{}, true
	l.history.Epochs = append(l.history.Epochs, e)
	if l.config.from.Batch == 0 || e.Number > l.config.from.Epoch+1 {
		l.progress.setTotal(l.total(e.Steps))
	}
	if better {
		if err := l.keepBest(); err != nil {
			return err
		}
	}
	for _, f := range l.config.ends {
		l.progress.clear()
		if err := f(e); err != nil {
			return err
		}
	}
	if l.stopped() {
		return ErrStop
	}
	return nil
}
