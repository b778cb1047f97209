package cudaops

import (
	"errors"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// GradScaler has the numbers of [LossScaling]. Zeros stand for the numbers of PyTorch's GradScaler, in parentheses.
type GradScaler struct {
	Scale    float64 // the first scale, at least 1 (65536)
	Growth   float64 // its factor after Interval steps without an overflow (2)
	Backoff  float64 // its factor after a skipped step (0.5)
	Interval int     // (2000)
}

// LossScaling is dynamic loss scaling of [Train], for gradients that underflow in F16: see [Mixed]. The derivative of the loss w.r.t. itself is the scale
// instead of 1, and gradients are divided by the scale before [ClipNorm] and the solver's options apply. If the gradient of a learnable is NaN or infinite,
// the step is skipped: no learnable, moment or average and no step number of the solver changes, and the scale is multiplied by Backoff, but stays at 1 or
// above: it can't fall until gradients vanish, or hide that they are infinite without it, as PyTorch's can. After Interval steps in a row it is multiplied
// by Growth. The device decides that; the program does not wait.
//
// The loss and all gradients that a run hands over are not scaled. Under [StepEvery] the sum of the gradients is scaled, by one scale, and a step is skipped
// if the sum is NaN or infinite. On several ranks the gradients are reduced before, so all ranks decide alike.
//
// Derivatives are not watched by [Watch]: NaN or infinity in one that a learnable needs skips the step. After 100 skipped steps in a row a run that copies its results returns an error.
// [VM.LossScale] returns the scale, which is part of the [Snapshot].
//
// The gradients must be those that [gorgonia.Grad] makes of one or more losses. The solver must be one of Gorgonia's, except BarzilaiBorweinSolver.
func LossScaling(s GradScaler) Option { return func(c *config) { c.scaler = append(c.scaler, s) } }

// LossScale is the state of [LossScaling].
type LossScale struct {
	Scale   float64
	Good    int // steps made since the scale has changed, or since a step was skipped
	Steps   int // steps made: the step number of the solvers
	Skipped int // steps skipped since one was made
}

// maxSkipped is the number of skipped steps in a row that is an error.
const maxSkipped = 100

// complete returns the numbers with those of PyTorch in place of zeros, or an error for unusable ones.
func (s GradScaler) complete() (GradScaler, error) {
	given := s
	for of, number := range map[*float64]float64{&s.Scale: 65536, &s.Growth: 2, &s.Backoff: 0.5} {
		if *of == 0 {
			*of = number
		}
	}
	if s.Interval == 0 {
		s.Interval = 2000
	}
	if !(s.Scale >= 1 && s.Scale <= math.MaxFloat32) || !(s.Growth >= 1 && s.Growth <= math.MaxFloat32) || !(s.Backoff > 0 && s.Backoff <= 1) || s.Interval < 1 {
		return s, fmt.Errorf("LossScaling got %+v, want a Scale of at least 1, a Growth of at least 1, a Backoff above 0 and up to 1, all of float32, and an Interval of at least 1", given)
	}
	s.Scale = float64(float32(s.Scale))
	return s, nil
}

// compiled returns the scaler to compile, or nil without LossScaling.
func (s *GradScaler) compiled() *solver.Scaler {
	if s == nil {
		return nil
	}
	return &solver.Scaler{Growth: s.Growth, Backoff: s.Backoff, Interval: s.Interval}
}

// begin sets the first scale of a new VM.
func (t *trainer) begin(e *exec.Executable) error {
	if t == nil || t.scaler == nil || t.began {
		return nil
	}
	t.began = true
	return t.setScale(e, LossScale{Scale: t.scaler.Scale})
}

// setScale sets the states of the scaler.
func (t *trainer) setScale(e *exec.Executable, s LossScale) error {
	for i, v := range t.graph.Trained.Scaling.States() {
		m := kernels.Bytes([]float32{max(float32(s.Scale), 1)}) // files of earlier versions have smaller ones
		if i > 0 {
			m = kernels.Bytes([]float64{float64([]int{s.Good, s.Steps, s.Skipped}[i-1])})
		}
		if err := e.SetState(v, m); err != nil {
			return err
		}
	}
	return nil
}

// scale returns the states of the scaler.
func (t *trainer) scale(e *exec.Executable) (s LossScale, err error) {
	read := func(v *program.Value) (x float64) {
		m := make([]byte, v.Bytes())
		if err == nil {
			err = e.State(v, m)
		}
		if v.Dtype == kernels.Float32 {
			return float64(kernels.Elements[float32](m)[0])
		}
		return kernels.Elements[float64](m)[0]
	}
	on := t.graph.Trained.Scaling
	return LossScale{read(on.Scale), int(read(on.Good)), int(read(on.Steps)), int(read(on.Skipped))}, err
}

// checkSkips reads what a run has found, and returns an error after too many skipped steps.
func (t *trainer) checkSkips(out []gorgonia.Value) error {
	if t == nil || t.scaler == nil {
		return nil
	}
	number := func(i int) float64 { return out[i].Data().(float64) }
	t.found = number(t.graph.Trained.Scaling.Found) != 0
	if n := number(t.graph.Trained.Scaling.Skips); n >= maxSkipped {
		return fmt.Errorf("LossScaling: got %.0f skipped steps in a row, want a finite gradient at some scale: Watch(NaN | Inf) without LossScaling names the node that makes the first other number", n)
	}
	return nil
}

// fitScale returns an error if the scale of a snapshot does not fit.
func (t *trainer) fitScale(s *Snapshot) error {
	switch of := s.Scale; {
	case t.scaler == nil && of != nil:
		return errors.New("got a state with a scale of the loss, want one of a VM without LossScaling")
	case t.scaler != nil && of == nil && s.Added > 0:
		return fmt.Errorf("got a state without a scale of the loss after %d runs since the last step, want one after a step for LossScaling", s.Added)
	case of != nil && (!(of.Scale > 0 && of.Scale <= math.MaxFloat32) || min(of.Good, of.Steps, of.Skipped) < 0 || of.Steps > s.Steps):
		return fmt.Errorf("got the scale %+v of the loss after %d steps, want a scale above 0, counts of at least 0 and no more steps", *of, s.Steps)
	}
	return nil
}

// restoreScale sets the states of the scaler to those of a snapshot.
func (t *trainer) restoreScale(e *exec.Executable, s *Snapshot) error {
	switch {
	case t.scaler == nil:
		return nil
	case s.Scale == nil:
		return t.setScale(e, LossScale{Scale: t.scaler.Scale, Steps: s.Steps})
	}
	return t.setScale(e, *s.Scale)
}

// LossScale returns the state of [LossScaling] after the last run, for which it waits.
func (vm *VM) LossScale() (s LossScale, err error) {
	err = vm.training("LossScale", func(t *trainer) error {
		if t.scaler == nil {
			return errors.New("want a VM with the option LossScaling")
		}
		s, err = t.scale(vm.exec)
		return err
	})
	if err != nil {
		return LossScale{}, err
	}
	return s, nil
}

// Overflowed reports whether the last run whose results were copied to the host has found a gradient that is NaN or infinite under [LossScaling]: its step is
// skipped.
func (vm *VM) Overflowed() bool {
	if vm == nil || vm.exec == nil {
		return false
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.trainer != nil && vm.trainer.found
}
