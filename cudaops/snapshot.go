package cudaops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Snapshot holds everything that a VM with the option [Train] or [State] keeps from run to run. Another VM of the
// same graph and options that restores it computes the same bits as the first VM.
//
// Package checkpoint writes it to a file.
type Snapshot struct {
	Learnables []Learnable   // in the order of Train, each with a unique name
	States     []Learnable   // the nodes of State, without moments; their names are unique too
	Averages   []RunningMean // one for each [gorgonia.BatchNormOp], in the order in which their nodes were made
	Solvers    []SolverState // one for each Train
	Steps      int           // made by the solvers, and skipped by LossScaling
	Scale      *LossScale    // of LossScaling, or nil
	Added      int           // runs since the last step, whose gradients are summed: see [StepEvery]
	Runs       int           // of the graph; it and Seed determine the random numbers
	Seed       uint64        // see [Seed]
	// Calibration names the calibration of the device that the choice of kernels depended on, or is "". Under another one, last bits may differ.
	Calibration string
}

// SolverState describes a solver.
type SolverState struct {
	Kind string // "AdamSolver", "VanillaSolver", ...
	// Options holds the options in use, keyed by the name of Gorgonia's option without "With", such as "LearnRate", and
	// "WeightDecay" of AdamW. "ClipNorm" is the limit of [ClipNorm], "StepEvery" the runs of a step if there are more than one, and
	// "EMA" the decay of [EMA].
	Options map[string]float64
}

// Learnable is a learnable with its solver state.
type Learnable struct {
	Name    string // of the node
	Value   gorgonia.Value
	Moments []gorgonia.Value // of the type and shape of Value; under [StepEvery] the last one is the sum of gradients
	EMA     gorgonia.Value   // the average of [EMA], or nil
	Solver  int              // index in Snapshot.Solvers
}

// RunningMean is the state of a [gorgonia.BatchNormOp] for each channel.
type RunningMean struct{ Mean, Variance gorgonia.Value }

// Snapshot returns copies of all values that the VM keeps from run to run. It first copies values that were
// bound to learnables since the last run to the device.
//
// Every learnable and state needs a unique name. After a step with indices of [gorgonia.ByIndices] outside of their
// axis, Snapshot returns an error until the next Restore.
func (vm *VM) Snapshot() (s *Snapshot, err error) {
	err = vm.between("Snapshot", func() error {
		if len(vm.trainer.onDevice()) == 0 && len(vm.params.states) == 0 {
			return errUntrained
		}
		if err := vm.params.named(); err != nil {
			return err
		}
		_, err := vm.params.refresh(vm.params.all)
		if err == nil {
			err = vm.params.usable(vm.params.states)
		}
		if err != nil {
			return err
		}
		s = &Snapshot{Runs: vm.next, Seed: vm.seed, Calibration: vm.calibration}
		if err := vm.snapshotTraining(s); err != nil {
			return err
		}
		for _, i := range vm.params.states {
			from := vm.params.values[i]
			v, m := values.New(from.Dtype, from.Shape)
			if err := vm.exec.State(from, m); err != nil {
				return fmt.Errorf("state %s: %w", vm.params.nodes[i].Name(), err)
			}
			s.States = append(s.States, Learnable{Name: vm.params.nodes[i].Name(), Value: v})
		}
		for i, op := range internal.BatchNorms(vm.source) {
			mean, variance := op.Stats()
			stats := RunningMean{}
			if stats.Mean, err = fresh(mean, false, mean.Shape()); err == nil {
				stats.Variance, err = fresh(variance, false, variance.Shape())
			}
			if err != nil {
				return fmt.Errorf("BatchNorm %d: %w", i, err)
			}
			s.Averages = append(s.Averages, stats)
		}
		return nil
	})
	if err != nil {
		s = nil
	}
	return s, err
}

// snapshotTraining adds the learnables and the state of the solvers.
func (vm *VM) snapshotTraining(s *Snapshot) error {
	t := vm.trainer
	if len(t.onDevice()) == 0 {
		return nil
	}
	if t.spoilt != nil {
		return t.spoilt
	}
	s.Steps, s.Added = t.steps(), t.runs%t.every
	if t.scaler != nil {
		scale, err := t.scale(vm.exec)
		if err != nil {
			return err
		}
		s.Scale = &scale
	}
	for i := range t.sets {
		options := t.sets[i].reader.Read()
		s.Solvers = append(s.Solvers, SolverState{string(options.Kind), t.used(options)})
	}
	for i, own := range t.graph.Trained.Learned {
		l := Learnable{Name: own.Node.Name(), Solver: t.setOf(i)}
		for k := range own.States {
			v, err := vm.part(own, k)
			switch {
			case err != nil:
				return err
			case k == 0:
				l.Value = v
			case k == own.EMA:
				l.EMA = v
			default:
				l.Moments = append(l.Moments, v)
			}
		}
		s.Learnables = append(s.Learnables, l)
	}
	return nil
}

// part returns a copy of a learnable's part of a state.
func (vm *VM) part(l lower.Learned, k int) (gorgonia.Value, error) {
	v, m := values.New(l.Value.Dtype, l.Value.Shape)
	if err := vm.exec.State(l.Part(k), m); err != nil {
		return nil, fmt.Errorf("learnable %s: %w", internal.Name(l.Node), err)
	}
	return v, nil
}

// EMA returns copies of the averages of [EMA] by the names of their learnables, in the order of Train. [Store.SetParameters] takes
// them, to evaluate with the averages. Before the first step it returns an error.
func (vm *VM) EMA() (list []Learnable, err error) {
	err = vm.training("EMA", func(t *trainer) error {
		switch {
		case t.ema == 0:
			return errors.New("want a VM with the option EMA")
		case t.steps() == 0:
			return errors.New("got no step yet, want one")
		case t.scaler != nil:
			if s, err := t.scale(vm.exec); err != nil || s.Steps == 0 {
				return cmp.Or(err, errors.New("got no step yet that was not skipped, want one"))
			}
		}
		for _, l := range t.graph.Trained.Learned {
			v, err := vm.part(l, l.EMA)
			if err != nil {
				return err
			}
			list = append(list, Learnable{Name: l.Node.Name(), Value: v})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Runs returns the number of runs of the VM, as [Snapshot] counts them. A run that fails counts if the device has
// made its step of [Train] or added its gradients.
func (vm *VM) Runs() int {
	if vm == nil || vm.exec == nil {
		return 0
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.next
}

// Restore sets the VM to a snapshot; if it returns an error, nothing has changed. The nodes of learnables and states
// get the snapshot's values too, as by [VM.Pull]. Each solver gets its learning rate, the VM its seed.
//
// The graph must have learnables of the same names, types and shapes, in the same sets. The solvers must have the same
// options, except for the learning rate. The states must have the same names, types and shapes. Under [LossScaling] a snapshot without a scale, taken
// after a step, begins with the scale of the option.
func (vm *VM) Restore(s *Snapshot) error {
	return vm.between("Restore", func() error {
		p, t := vm.params, vm.trainer
		trains := len(t.onDevice()) > 0
		switch {
		case !trains && len(p.states) == 0:
			return errUntrained
		case s == nil:
			return errors.New("got a nil Snapshot")
		case !trains && len(s.Learnables) > 0:
			return fmt.Errorf("got a state of the learnables %s, want one of a VM without Train", names(s.Learnables))
		}
		if err := p.named(); err != nil {
			return err
		}
		states, err := p.fitStates(s)
		if err == nil && trains {
			var learnables []part
			learnables, err = t.fit(s)
			states = append(states, learnables...)
		}
		own := slices.Concat(p.trained(), p.states)
		if err == nil {
			err = p.takes(own)
		}
		if err != nil {
			return err
		}
		averages, err := fitAverages(s, internal.BatchNorms(vm.source))
		if err != nil {
			return err
		}
		set := make([]exec.StateValue, len(states))
		for i, p := range states {
			set[i] = exec.StateValue{Of: p.of, Bytes: p.memory}
		}
		if err := vm.exec.SetAll(set); err != nil {
			return err
		}
		vm.exec.Rejoin()
		for _, p := range averages {
			copy(p.to, p.memory)
		}
		p.kept = nil
		for _, i := range p.states {
			p.held[i].spoilt = nil
		}
		p.stepped(1)
		p.ran()
		if trains {
			t.runs, t.spoilt = s.Steps*t.every+s.Added, nil
			if err := t.restoreScale(vm.exec, s); err != nil {
				return err
			}
		}
		if err := p.pull(own); err != nil {
			return err
		}
		if trains {
			for i, set := range t.sets {
				gorgonia.WithLearnRate(s.Solvers[i].Options[learnRate])(set.solver)
			}
		}
		vm.next, vm.seed = s.Runs, s.Seed
		return nil
	})
}

// learnRate is the only option that may differ.
const learnRate = "LearnRate"

// used returns the options in use.
func (t *trainer) used(s internal.Solver) map[string]float64 {
	used := map[string]float64{learnRate: s.Rate}
	for name, o := range map[string]struct {
		x  float64
		is bool
	}{
		"L1Reg": {s.L1, s.UseL1}, "L2Reg": {s.L2, s.UseL2}, "Clip": {s.Clip, s.UseClip}, "BatchSize": {s.Batch, s.Batch > 1},
		"Momentum": {s.Momentum, s.Momentum != 0}, "Rho": {s.Rho, s.Rho != 0}, "Eps": {s.Eps, s.Eps != 0},
		"Beta1": {s.Beta1, s.Beta1 != 0}, "Beta2": {s.Beta2, s.Beta2 != 0}, "WeightDecay": {s.WeightDecay, s.WeightDecay != 0},
		"ClipNorm": {t.norm, t.norm > 0}, "StepEvery": {float64(t.every), t.every > 1}, "EMA": {t.ema, t.ema > 0},
	} {
		if o.is {
			used[name] = o.x
		}
	}
	return used
}

// named returns an error unless every learnable and state has a unique name.
func (p *parameters) named() error {
	seen := map[string]int{}
	for _, i := range slices.Concat(p.trained(), p.states) {
		n := p.nodes[i]
		name := internal.InputName(n)
		if name == "" {
			return fmt.Errorf("%s %d, of shape %v, has no name: give it one with gorgonia.WithName", p.what(i), i, n.Shape())
		}
		if before, twice := seen[name]; twice {
			return fmt.Errorf("%s %d and %s %d are both called %q, want unique names", p.what(before), before, p.what(i), i, name)
		}
		seen[name] = i
	}
	return nil
}

// fitStates returns the snapshot's entries for the nodes of State, or an error that names the first mismatch.
func (p *parameters) fitStates(s *Snapshot) (parts []part, err error) {
	if len(s.States) != len(p.states) {
		return nil, fmt.Errorf("got the states %s, want %d", names(s.States), len(p.states))
	}
	for _, i := range p.states {
		name, own := p.nodes[i].Name(), p.values[i]
		k := slices.IndexFunc(s.States, func(l Learnable) bool { return l.Name == name })
		if k < 0 {
			return nil, fmt.Errorf("got the states %s, want %s too", names(s.States), name)
		}
		dt := own.Dtype
		if v := s.States[k].Value; dt == kernels.Int && v != nil && v.Dtype() == tensor.Int64 && dt.Size() == kernels.Int64.Size() {
			dt = kernels.Int64 // as files have it
		}
		m, err := fitting(s.States[k].Value, dt, own.Shape)
		if err != nil {
			return nil, fmt.Errorf("state %s: %w", name, err)
		}
		parts = append(parts, part{of: own, memory: m})
	}
	return parts, nil
}

// part is an entry of a snapshot and where Restore writes it.
type part struct {
	of     *program.Value // a state of a learnable, or nil
	to     []byte         // the memory of a running mean or variance, or nil
	memory []byte
}

// fit returns the snapshot's entries for the learnables, or an error that names the first mismatch.
func (t *trainer) fit(s *Snapshot) (parts []part, err error) {
	if len(s.Solvers) != len(t.sets) {
		return nil, fmt.Errorf("got a state of %d solvers, want %d", len(s.Solvers), len(t.sets))
	}
	for i, set := range t.sets {
		got, options := s.Solvers[i], set.reader.Read()
		if got.Kind != string(options.Kind) {
			return nil, fmt.Errorf("got a state of the solver %q, want %s", got.Kind, options.Kind)
		}
		if err := sameOptions(got.Options, t.used(options)); err != nil {
			return nil, err
		}
	}
	if most := math.MaxInt / 2 / t.every; min(s.Steps, s.Runs) < 0 || max(s.Steps, s.Runs) > most { // the rest is for later runs
		return nil, fmt.Errorf("got a state after %d steps and %d runs, want 0 to %d", s.Steps, s.Runs, most)
	}
	if s.Added < 0 || s.Added >= t.every {
		return nil, fmt.Errorf("got a state after %d runs since the last step, want 0 to %d", s.Added, t.every-1)
	}
	if err := t.fitScale(s); err != nil {
		return nil, err
	}
	byName := map[string]Learnable{}
	for _, l := range s.Learnables {
		if _, twice := byName[l.Name]; twice {
			return nil, fmt.Errorf("got a state with two learnables %s, want unique names", l.Name)
		}
		byName[l.Name] = l
	}
	for i, own := range t.graph.Trained.Learned {
		name := own.Node.Name()
		l, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("got a state of the learnables %s, want %s too", names(s.Learnables), name)
		}
		delete(byName, name)
		moments := len(own.States) - 1
		if own.EMA > 0 {
			moments--
		}
		switch set := t.setOf(i); {
		case l.Solver != set:
			return nil, fmt.Errorf("learnable %s: got a state of solver %d, want %d", name, l.Solver, set)
		case len(l.Moments) != moments:
			return nil, fmt.Errorf("learnable %s: got a state with %d moments, want the %d of %s", name, len(l.Moments), moments, s.Solvers[set].Kind)
		}
		states := append([]gorgonia.Value{l.Value}, l.Moments...)
		if own.EMA > 0 {
			states = slices.Insert(states, own.EMA, l.EMA)
		}
		for k, v := range states {
			m, err := fitting(v, own.Value.Dtype, own.Value.Shape)
			if err != nil {
				return nil, fmt.Errorf("learnable %s%s: %w", name, moment(k, own.EMA), err)
			}
			parts = append(parts, part{of: own.Part(k), memory: m})
		}
	}
	for _, l := range s.Learnables {
		if _, left := byName[l.Name]; left {
			return nil, fmt.Errorf("got the state of learnable %s, which Train does not train", l.Name)
		}
	}
	return parts, nil
}

// moment names state k of a learnable, whose average is state ema.
func moment(k, ema int) string {
	switch {
	case k == 0:
		return ""
	case k == ema:
		return ", EMA"
	case ema > 0 && k > ema:
		k--
	}
	return fmt.Sprintf(", moment %d", k)
}

// names lists learnables.
func names(list []Learnable) string {
	return strings.Join(program.Collect(list, func(l Learnable) string { return l.Name }), ", ")
}

// sameOptions returns an error that names the first option that differs.
func sameOptions(got, want map[string]float64) error {
	if _, ok := got[learnRate]; !ok {
		return errors.New("got a state without a learning rate")
	}
	all := map[string]bool{}
	for _, m := range []map[string]float64{got, want} {
		for name := range m {
			all[name] = name != learnRate
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		g, has := got[name]
		w, wants := want[name]
		switch {
		case !all[name] || has && wants && g == w:
		case has && wants:
			return fmt.Errorf("got a state of a solver with %s %v, want %v", name, g, w)
		case has:
			return fmt.Errorf("got a state of a solver with %s %v, want a solver without it", name, g)
		default:
			return fmt.Errorf("got a state of a solver without %s, want %v", name, w)
		}
	}
	return nil
}

// fitting returns the memory of a value if it has the wanted type and shape.
func fitting(v gorgonia.Value, dt kernels.Dtype, shape tensor.Shape) ([]byte, error) {
	if v == nil {
		return nil, fmt.Errorf("got no value, want %v of shape %v", values.Tensor(dt), shape)
	}
	if want := values.Tensor(dt); v.Dtype() != want || !slices.Equal(v.Shape(), shape) {
		return nil, fmt.Errorf("got %v of shape %v, want %v of shape %v", v.Dtype(), v.Shape(), want, shape)
	}
	return values.Bytes(v)
}

// fitAverages returns the snapshot's entries for the running means and variances.
func fitAverages(s *Snapshot, ops []*gorgonia.BatchNormOp) (parts []part, err error) {
	if len(s.Averages) != len(ops) {
		return nil, fmt.Errorf("got a state of %d BatchNorms, want %d", len(s.Averages), len(ops))
	}
	for i, op := range ops {
		mean, variance := op.Stats()
		for _, p := range []struct {
			own  gorgonia.Value
			got  gorgonia.Value
			what string
		}{{mean, s.Averages[i].Mean, "mean"}, {variance, s.Averages[i].Variance, "variance"}} {
			dt, _ := values.Dtype(p.own.Dtype())
			to, ok := values.Own(p.own, dt, p.own.Shape())
			if !ok {
				return nil, fmt.Errorf("BatchNorm %d, %s: got a %T, want a contiguous tensor", i, p.what, p.own)
			}
			m, err := fitting(p.got, dt, p.own.Shape())
			if err != nil {
				return nil, fmt.Errorf("BatchNorm %d, %s: %w", i, p.what, err)
			}
			parts = append(parts, part{to: to, memory: m})
		}
	}
	return parts, nil
}
