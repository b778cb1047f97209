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

// Program is a training step or, without a Solver, a whole graph of Gorgonia's ops.
type Program struct {
	graphspec.Step
	host *trained // by the host backend, last: steps in several precisions are compared with the same
}

// programBudget is the longest time of the runs of a program, on the device and with copies each.
const programBudget = time.Second / 2

// Key implements [Case].
func (p Program) Key() records.Key {
	return records.Key{Op: p.Name, Case: p.Size, Dtype: kernels.Float32.String()}
}

// Describe implements [Case].
func (p Program) Describe() any { return p.Step.Describe() }

// Measure implements [Case]: it checks the first runs of a machine, times further ones, and then the launches alone, of which the parts follow
// where they are wanted.
func (p Program) Measure(b Bench) ([]records.Record, error) {
	in, where := p.Values(b.Block.F32), cudaops.OnDevice(b.Device.Ordinal)
	values := map[string]float64{"bytes": float64(p.Bytes()), "flops": float64(p.Flops)}
	run, training := p.runGraph, (*bench.Training)(nil)
	program := p.Program(in)
	if p.Solver != nil {
		run = p.runSteps
		training = &bench.Training{Solver: p.Solver(), Learnables: program.Learnables, UpdateAlone: p.UpdateAlone, Precision: p.Precision, Parts: p.Parts}
	}
	checked, times, err := run(values, in, b.Runs, where)
	if err != nil {
		return nil, err
	}
	timing, err := bench.TimeGraph(b.Device.Ordinal, program.Graph, training, b.Runs, programBudget)
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	values["run"], values["launches"], values["host"] = Micros(times[len(times)/2]), float64(timing.Launches), float64(len(timing.Host))
	if !p.FromHost {
		times = timing.Runs
	}
	r := timed(p, times, timing.Kernels, values)
	r.Note = checked
	all := []records.Record{r}
	for _, part := range timing.Parts {
		all = append(all, records.Record{Kind: records.Part, Key: p.Key(), By: part.Op, Us: Micros(part.Time), Values: map[string]float64{"least": Micros(part.Least)}, Note: strings.Trim(fmt.Sprint(part.Shape), "[]")})
	}
	return all, nil
}

// runGraph compares the first run of a machine with the reference, and times further ones.
func (p Program) runGraph(values map[string]float64, in []gorgonia.Value, runs int, where cudaops.Option) (checked string, times []time.Duration, err error) {
	graph, nodes := p.Graph(in)
	vm, err := cudaops.NewVM(graph, where)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	if err := vm.RunAll(); err != nil {
		return "", nil, err
	}
	worst, err := p.Check(in, valuesOf(nodes))
	if err != nil {
		return "", nil, err
	}
	if values["error"] = worst.Share; !(worst.Share <= 1) {
		return "", nil, fmt.Errorf("wrong result: output %s is off by %.3g times the error that the case allows", worst.Output, worst.Share)
	}
	for began := time.Now(); len(times) == 0 || len(times) < runs && time.Since(began) < programBudget; {
		start := time.Now()
		if err := vm.RunAll(); err != nil {
			return "", nil, err
		}
		times = append(times, time.Since(start))
	}
	return "all", times, nil
}

func valuesOf(nodes gorgonia.Nodes) []gorgonia.Value {
	list := make([]gorgonia.Value, len(nodes))
	for i, n := range nodes {
		list[i] = n.Value()
	}
	return list
}

// runSteps checks steps, and times further ones.
func (p Program) runSteps(values map[string]float64, in []gorgonia.Value, runs int, where cudaops.Option) (checked string, times []time.Duration, err error) {
	if checked, err = p.checkSteps(values, in, where); err == nil {
		times, err = p.timeSteps(in, runs, where)
	}
	return checked, times, err
}

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

// checkSteps makes steps on a machine and, in full precision, on the host, from the same values, and compares the
// losses and where the learnables are then. It says how many steps it made.
func (p Program) checkSteps(values map[string]float64, in []gorgonia.Value, where cudaops.Option) (checked string, err error) {
	steps, checked := checkedSteps, fmt.Sprintf("%d steps", checkedSteps)
	if float64(steps)*float64(p.Flops) > mostChecked {
		steps, checked = 1, "1 step"
	}
	ours, err := p.train(in, steps, where, cudaops.Precision(p.Precision))
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(p.Name, ", "+p.Precision.String())
	if of := name + " " + p.Size; p.host.of != of {
		if *p.host, err = p.train(in, steps, cudaops.OnHost()); err != nil {
			return "", fmt.Errorf("on the host: %w", err)
		}
		p.host.of = of
	}
	for i, loss := range ours.losses {
		want := p.host.losses[i]
		if off := math.Abs(loss-want) / math.Abs(want); !(off <= lossError[p.Precision]) {
			return "", fmt.Errorf("wrong result: loss %d is %g, want %g", i+1, loss, want)
		}
	}
	tolerance := shareOff[p.Precision]
	if p.Rule == "Adam" {
		tolerance = shareOffAdam
	}
	began, err := graphspec.Elements(valuesOf(p.Program(in).Learnables))
	if err != nil {
		return "", err
	}
	for k, got := range ours.learned {
		off := strayed(began[k], got, p.host.learned[k])
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
func (p Program) train(in []gorgonia.Value, steps int, opts ...cudaops.Option) (t trained, err error) {
	program := p.Program(in)
	var loss gorgonia.Value
	gorgonia.Read(program.Loss, &loss)
	vm, err := cudaops.NewVM(program.Graph, append(opts, cudaops.Train(p.Solver(), program.Learnables...))...)
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
	t.learned, err = graphspec.Elements(valuesOf(program.Learnables))
	return t, err
}

// readEvery is how many steps are made for one whose loss is read.
const readEvery = 10

// timeSteps times calls of RunAll, one after the other, with the batch on the device, or a loop of
// package train over batches of the host's: the mean of those between two that hand the loss over.
func (p Program) timeSteps(in []gorgonia.Value, runs int, where cudaops.Option) (times []time.Duration, err error) {
	program := p.Program(in)
	var loss gorgonia.Value
	gorgonia.Read(program.Loss, &loss)
	options := []cudaops.Option{where, cudaops.Train(p.Solver(), program.Learnables...), cudaops.ReadEvery(readEvery), cudaops.Precision(p.Precision)}
	if !p.FromHost {
		options = append(options, cudaops.Resident(program.Batch...))
	}
	vm, err := cudaops.NewVM(program.Graph, options...)
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
		return len(times) > warm && (len(times) >= warm+runs || now.Sub(began) >= programBudget)
	}
	if p.FromHost {
		err = p.fromHost(vm, program, enough)
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
	return times[warm:], nil
}

// fromHost trains on a data set of the host's, of some batches in order, until it is enough.
func (p Program) fromHost(vm *cudaops.VM, program graphspec.Program, enough func() bool) error {
	const batches = 4
	one, err := graphspec.Elements(valuesOf(program.Batch))
	if err != nil {
		return err
	}
	columns := train.Columns{}
	for i, n := range program.Batch {
		all := slices.Repeat(one[i], batches)
		if columns[n] = all; p.Pageable {
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
	_, err = train.Run(context.Background(), vm, program.Loss, data, train.Epochs(1<<30), train.Prefetch(2), train.AfterStep(readEvery, func(train.Step) error {
		if enough() {
			return train.ErrStop
		}
		return nil
	}))
	return err
}
