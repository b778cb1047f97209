package maintain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/gorgonia"
)

// Step is a training step.
type Step struct {
	graphspec.Step
	host *trained // by the host backend, last: steps in several precisions are compared with the same
}

// Key implements [Case].
func (s Step) Key() records.Key { return programKey(s.Case) }

// Describe implements [Case].
func (s Step) Describe() any { return s.Step.Describe() }

// trained is the result of some steps.
type trained struct {
	of      string // name and size
	losses  []float64
	learned [][]float32
}

// Of a check: the number of steps, one if they do more arithmetic than the host does in
// some seconds, and the error that they may have.
const (
	checkedSteps = 3
	mostChecked  = 2e12 // operations
	// shareOffAdam is shareOff for Adam, which makes steps of one size of all gradients: those near 0 may have either sign. Two
	// of 512 elements that go the other way in all steps are off by 0.125.
	shareOffAdam = 0.13
)

// What they may be off by, by the precision of products. shareOff is how far a learnable may be off, as a share of how
// far the steps took it: a rectifier whose number is within rounding of 0 may go either way.
var (
	lossError = [...]float64{kernels.FullPrecision: 1e-4, kernels.TF32: 1e-3, kernels.BF16: 1e-2}
	shareOff  = [...]float64{kernels.FullPrecision: 0.01, kernels.TF32: 0.02, kernels.BF16: 0.1}
)

// Measure implements [Case]: it holds the first steps against those of the host backend, times
// further ones, and then the launches alone, of which the parts follow where they are wanted.
func (s Step) Measure(b Bench) ([]records.Record, error) {
	in, where := s.Values(b.Block.F32), cudaops.OnDevice(b.Device.Ordinal)
	values := map[string]float64{"bytes": float64(s.Bytes()), "flops": float64(s.Flops)}
	checked, err := s.check(values, in, where)
	if err != nil {
		return nil, err
	}
	times, err := s.timeSteps(in, b.Runs, where)
	if err != nil {
		return nil, err
	}
	p := s.Program(in)
	timing, err := bench.TimeGraph(b.Device.Ordinal, p.Graph, &bench.Training{Solver: s.Solver(), Learnables: p.Learnables, UpdateAlone: s.UpdateAlone, Precision: s.Precision, Parts: s.Parts}, b.Runs, GraphBudget)
	if err != nil {
		return nil, err
	}
	values["run"], values["launches"], values["host"] = Micros(times[len(times)/2]), float64(timing.Launches), float64(len(timing.Host))
	if !s.FromHost {
		times = timing.Runs
	}
	r := timed(s, times, timing.Kernels, values)
	r.Note = checked
	all := []records.Record{r}
	for _, p := range timing.Parts {
		all = append(all, records.Record{Kind: records.Part, Key: s.Key(), By: p.Op, Us: Micros(p.Time), Values: map[string]float64{"least": Micros(p.Least)}, Note: strings.Trim(fmt.Sprint(p.Shape), "[]")})
	}
	return all, nil
}

// check makes steps on a machine and, in full precision, on the host, from the same values, and compares the
// losses and where the learnables are then. It says how many steps it made.
func (s Step) check(values map[string]float64, in []gorgonia.Value, where cudaops.Option) (checked string, err error) {
	steps, checked := checkedSteps, fmt.Sprintf("%d steps", checkedSteps)
	if float64(steps)*float64(s.Flops) > mostChecked {
		steps, checked = 1, "1 step"
	}
	ours, err := s.train(in, steps, where, cudaops.Precision(s.Precision))
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(s.Name, ", "+s.Precision.String())
	if of := name + " " + s.Size; s.host.of != of {
		if *s.host, err = s.train(in, steps, cudaops.OnHost()); err != nil {
			return "", fmt.Errorf("on the host: %w", err)
		}
		s.host.of = of
	}
	for i, loss := range ours.losses {
		want := s.host.losses[i]
		if off := math.Abs(loss-want) / math.Abs(want); !(off <= lossError[s.Precision]) {
			return "", fmt.Errorf("wrong result: loss %d is %g, want %g", i+1, loss, want)
		}
	}
	tolerance := shareOff[s.Precision]
	if s.Rule == "Adam" {
		tolerance = shareOffAdam
	}
	began, err := graphspec.Elements(valuesOf(s.Program(in).Learnables))
	if err != nil {
		return "", err
	}
	for k, got := range ours.learned {
		off := strayed(began[k], got, s.host.learned[k])
		values["off"] = max(values["off"], off)
		if values["error"] = max(values["error"], off/tolerance); !(off <= tolerance) {
			return "", fmt.Errorf("wrong result: learnable %d is off by %.2g of the way that it went, want %g at most", k, off, tolerance)
		}
	}
	return checked, nil
}

// strayed is how far a learnable is from where it should be, as a share of how far that is from where
// it began.
func strayed(began, got, want []float32) float64 {
	var off, way float64
	for i, w := range want {
		d, e := float64(got[i])-float64(w), float64(w)-float64(began[i])
		off, way = off+d*d, way+e*e
	}
	if share := math.Sqrt(off / way); !math.IsNaN(share) {
		return share
	}
	return math.Inf(1)
}

// train makes steps on a machine.
func (s Step) train(in []gorgonia.Value, steps int, opts ...cudaops.Option) (t trained, err error) {
	p := s.Program(in)
	var loss gorgonia.Value
	gorgonia.Read(p.Loss, &loss)
	vm, err := cudaops.NewVM(p.Graph, append(opts, cudaops.Train(s.Solver(), p.Learnables...))...)
	if err != nil {
		return t, err
	}
	for range steps {
		if err := vm.RunAll(); err != nil {
			return t, errors.Join(err, vm.Close())
		}
		t.losses = append(t.losses, float64(loss.Data().(float32)))
	}
	if err := vm.Close(); err != nil {
		return t, err
	}
	t.learned, err = graphspec.Elements(valuesOf(p.Learnables))
	return t, err
}

// readEvery is how many steps are made for one whose loss is read.
const readEvery = 10

// timeSteps times calls of RunAll, one after the other, with the batch on the device, or a loop of
// package train over batches of the host's: the mean of those between two that hand the loss over,
// sorted.
func (s Step) timeSteps(in []gorgonia.Value, runs int, where cudaops.Option) (times []time.Duration, err error) {
	p := s.Program(in)
	var loss gorgonia.Value
	gorgonia.Read(p.Loss, &loss)
	options := []cudaops.Option{where, cudaops.Train(s.Solver(), p.Learnables...), cudaops.ReadEvery(readEvery), cudaops.Precision(s.Precision)}
	if !s.FromHost {
		options = append(options, cudaops.Resident(p.Batch...))
	}
	vm, err := cudaops.NewVM(p.Graph, options...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	const warm = 2
	began, last := time.Now(), time.Now()
	enough := func() bool { // after every so manieth step
		now := time.Now()
		times = append(times, now.Sub(last)/readEvery)
		last = now
		return len(times) > warm && (len(times) >= warm+runs || now.Sub(began) >= GraphBudget)
	}
	if s.FromHost {
		err = s.fromHost(vm, p, enough)
	} else {
		for done := false; err == nil && !done; done = enough() {
			for range readEvery {
				err = errors.Join(err, vm.RunAll())
			}
		}
	}
	if err != nil {
		return nil, err
	}
	times = times[warm:]
	slices.Sort(times)
	return times, nil
}

// fromHost trains on a data set of the host's, of some batches in order, until it is enough.
func (s Step) fromHost(vm *cudaops.VM, p graphspec.Program, enough func() bool) error {
	const batches = 4
	one, err := graphspec.Elements(valuesOf(p.Batch))
	if err != nil {
		return err
	}
	columns := train.Columns{}
	for i, n := range p.Batch {
		all := slices.Repeat(one[i], batches)
		if columns[n] = all; s.Pageable {
			continue
		}
		rows := append([]int{batches * n.Shape()[0]}, n.Shape()[1:]...)
		set, err := cudaops.Pinned(n.Dtype(), rows...)
		if err != nil {
			return err
		}
		copy(set.Data().([]float32), all)
		columns[n] = set
	}
	data, err := train.NewData(columns)
	if err != nil {
		return err
	}
	_, err = train.Run(context.Background(), vm, p.Loss, data, train.Epochs(1<<30), train.Prefetch(2), train.AfterStep(readEvery, func(train.Step) error {
		if enough() {
			return train.ErrStop
		}
		return nil
	}))
	return err
}
