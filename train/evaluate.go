package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// Evaluate computes metrics over the batches of epoch 0 of a source, each row once, and returns them by name. A short batch is
// padded with copies of its rows, which do not count.
//
// The VM has the option cudaops.Inference or cudaops.EvalMode. With cudaops.In of the Store of a training VM it computes with the
// parameters in training, on the device. The nodes of the metrics are outputs of the VM or nodes passed to cudaops.Keep, or inputs
// in the batches. An error names the batch or the metric.
func Evaluate(ctx context.Context, vm *cudaops.VM, source Source, metrics ...Metric) (map[string]float64, error) {
	if guard.IsNil(ctx) {
		return nil, errors.New("train: Evaluate got a nil context")
	}
	e, err := newEvaluation(vm, source, metrics)
	var scores map[string]float64
	if err == nil {
		scores, err = e.run(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("train: Evaluate: %w", err)
	}
	return scores, nil
}

// evaluation holds the arguments of Evaluate.
type evaluation struct {
	vm      *cudaops.VM
	source  Source
	metrics []Metric
	feeder  feeder
	sums    [][]float64 // of each metric
}

func newEvaluation(vm *cudaops.VM, source Source, metrics []Metric) (*evaluation, error) {
	if vm == nil || guard.IsNil(source) {
		return nil, errors.New("got a nil VM or source")
	}
	if len(metrics) == 0 {
		return nil, errors.New("got no metric, want at least one")
	}
	if n, _ := vm.Ranks(); n > 1 {
		return nil, fmt.Errorf("got a VM of %d ranks, want one of one rank", n)
	}
	switch r := vm.Report(); {
	case r.Solver != "":
		return nil, errors.New("got a VM that makes steps, want another one of its Store, with the option cudaops.Inference")
	case !r.Evaluates:
		return nil, errors.New("got a VM that does not evaluate, want one with the option cudaops.Inference")
	}
	names, results := map[string]bool{}, vm.Results()
	for _, m := range metrics {
		if err := m.check(); err != nil {
			return nil, err
		}
		if names[m.Name] {
			return nil, fmt.Errorf("got two metrics called %q, want unique names", m.Name)
		}
		names[m.Name] = true
		for _, n := range m.Nodes {
			if n.Op() != nil && !slices.Contains(results, n) {
				return nil, fmt.Errorf("metric %s: got node %s, want an output of the VM, a node passed to cudaops.Keep, or an input in the batches", m.Name, internal.Name(n))
			}
		}
	}
	return &evaluation{vm: vm, source: source, metrics: slices.Clone(metrics), feeder: newFeeder(vm)}, nil
}

// run returns the metrics by name.
func (e *evaluation) run(ctx context.Context) (scores map[string]float64, err error) {
	e.sums = make([][]float64, len(e.metrics))
	p := prefetch(ctx, e.source, &fitter{fill: true, vm: e.vm}, &config{epochs: 1, prefetch: 1})
	defer func() {
		if err = p.finish(err); err != nil {
			scores = nil
		}
	}()
	for k := 0; ; k++ {
		it, ok := p.next()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !ok && p.err != nil:
			return nil, nil // finish returns the error
		case !ok:
			return e.scores(), nil
		case it.batch == nil:
			continue // the end of the epoch
		}
		if err := e.add(ctx, it); err != nil {
			return nil, fmt.Errorf("batch %d: %w", k, err)
		}
	}
}

// scores returns the metrics of all batches.
func (e *evaluation) scores() map[string]float64 {
	scores := map[string]float64{}
	for i, m := range e.metrics {
		scores[m.Name] = m.Value(e.sums[i])
	}
	return scores
}

// add adds a batch to the sums.
func (e *evaluation) add(ctx context.Context, it item) error {
	if err := e.feeder.bind(it.batch); err != nil {
		return err
	}
	before := map[*gorgonia.Node]gorgonia.Value{}
	for _, m := range e.metrics {
		for _, n := range m.Nodes {
			before[n] = n.Value()
		}
	}
	if err := e.vm.RunContext(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return context.Cause(ctx)
		}
		return err
	}
	for i, m := range e.metrics {
		sums, err := m.sums(it, before)
		if err == nil && e.sums[i] != nil && len(sums) != len(e.sums[i]) {
			err = fmt.Errorf("got %d sums, want %d as of the first batch", len(sums), len(e.sums[i]))
		}
		if err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
		if e.sums[i] == nil {
			e.sums[i] = make([]float64, len(sums))
		}
		for k, x := range sums {
			e.sums[i][k] += x
		}
	}
	return nil
}

// sums returns the sums of a batch after its run. before holds the values of the nodes before the run.
func (m *Metric) sums(it item, before map[*gorgonia.Node]gorgonia.Value) ([]float64, error) {
	list := make([]gorgonia.Value, len(m.Nodes))
	for i, n := range m.Nodes {
		v := n.Value()
		if _, fed := it.batch[n]; !fed && (v == nil || v == before[n]) {
			return nil, fmt.Errorf("node %s got no value by the run, want an input in the batches, or an output of a VM without cudaops.ReadEvery", internal.Name(n))
		}
		var err error
		if list[i], err = ownRows(v, it); err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(n), err)
		}
	}
	return m.Sums(list)
}

// ownRows returns a value without the copies that pad a batch.
func ownRows(v gorgonia.Value, it item) (gorgonia.Value, error) {
	if it.full == 0 {
		return v, nil
	}
	shape := v.Shape().Clone()
	if len(shape) == 0 || shape[0] == 0 || shape[0]%it.full != 0 {
		return nil, fmt.Errorf("got shape %v in a batch of %d rows that is padded to %d, want rows along axis 0, so that the copies do not count", shape, it.short, it.full)
	}
	dt, _ := values.Dtype(v.Dtype())
	m, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	shape[0] = shape[0] / it.full * it.short
	return values.Over(dt, shape, m[:len(m)/it.full*it.short]), nil
}

// feeder binds batches to the inputs of a VM.
type feeder struct {
	vm    *cudaops.VM
	known map[*gorgonia.Node]bool // inputs of the VM's graph found in batches so far
}

func newFeeder(vm *cudaops.VM) feeder { return feeder{vm: vm, known: map[*gorgonia.Node]bool{}} }

func (f *feeder) bind(b Batch) error {
	for n, v := range b {
		if !f.known[n] && slices.Contains(f.vm.Learnables(), n) {
			return fmt.Errorf("got a value for the learnable %s, want only values of inputs", internal.Name(n))
		}
		var err error
		if split := !f.vm.RunShape(n).Eq(n.Shape()); split || !f.known[n] { // Let of Gorgonia refuses the rows of several ranks
			err = f.vm.Let(n, v)
			f.known[n] = true
		} else {
			err = internal.Let(n, v)
		}
		if err != nil {
			return fmt.Errorf("input %s: %w", internal.Name(n), err)
		}
	}
	return nil
}
