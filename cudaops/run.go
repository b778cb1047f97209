package cudaops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// RunAll runs the graph once. If it returns an error, nothing on the host has changed, except by the user's own code and
// by the Step of a solver of another module. An error of the writer of a log or a trace is returned after a complete run.
// [VM.Runs] tells whether the run made its step of [Train] before it failed.
func (vm *VM) RunAll() error { return vm.RunContext(context.Background()) }

// RunContext is RunAll that stops with an error when ctx is done. It stops before a host step of [VM.Report], or before
// device steps that are launched at once, such as all steps between two host steps. A run that has started to change
// learnables of [Train] completes. With [In] it also stops waiting for another VM of the Store. The error wraps ctx's error and
// cause. Nothing has changed then, and the VM may run again.
func (vm *VM) RunContext(ctx context.Context) error {
	if vm == nil || vm.exec == nil {
		return fmt.Errorf("cudaops: RunAll of a VM that NewVM did not make")
	}
	if guard.IsNil(ctx) {
		return fmt.Errorf("cudaops: RunContext got a nil context")
	}
	done, err := vm.runOnce(ctx)
	if err == nil {
		err = errors.Join(vm.log(done), vm.tracer.run(done))
	}
	return failure("cudaops", err)
}

// failure returns an error with where it came from; it is nil if err is.
func failure(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}

// runOnce runs the graph, after the runs that other goroutines have started, and returns the VM's report data.
func (vm *VM) runOnce(ctx context.Context) (*shown, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.closed {
		return nil, errors.New("RunAll after Close")
	}
	leave, err := vm.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	release, err := vm.nodes.claim()
	if err != nil {
		return nil, err
	}
	defer release()
	vm.began = time.Now()
	made := vm.trainer.made()
	err = vm.run(ctx)
	if err == nil || vm.trainer.made() > made {
		vm.next++
	}
	if err != nil {
		return nil, err
	}
	vm.took = time.Since(vm.began)
	vm.runs++
	return vm.show(), nil
}

func (vm *VM) run(ctx context.Context) error {
	if err := guard.Recover("a slice of gorgonia.UnsafeLet", vm.graph.MoveSlices); err != nil {
		return err
	}
	if err := vm.rebuild(); err != nil {
		return err
	}
	if state := vm.graph.Random; state != nil {
		first, _ := vm.Process()
		for r := range len(state) / 2 {
			state[2*r], state[2*r+1] = int64(vm.seed+uint64(first+r)*rankSeed), int64(vm.next)
		}
	}
	in, err := vm.boundary.fetch()
	if err != nil {
		return err
	}
	if err := vm.resident.before(vm.exec); err != nil {
		return err
	}
	watched := len(vm.config.watch) > 0
	if _, err := vm.params.refresh(vm.params.all); err != nil {
		return err
	}
	if err := vm.params.round(); err != nil {
		return err
	}
	if err := vm.trainer.before(in); err != nil {
		return err
	}
	if err := vm.params.usable(vm.params.all); err != nil {
		return err
	}
	if err := vm.params.checkIndices(); err != nil {
		return err
	}
	if watched {
		if err := vm.params.keep(); err != nil {
			return err
		}
	}
	if err = vm.start(ctx, in, watched); err == nil {
		err = vm.trainer.stepOnHost()
	}
	if err != nil {
		vm.trainer.undo()
		return driver.Join(err, vm.params.undo())
	}
	if !watched || vm.trainer == nil || vm.trainer.onHost { // else the watch has saved the new ones
		vm.params.kept = nil
	}
	return nil
}

// start starts a run. If the run has results, it waits for the end and binds them.
func (vm *VM) start(ctx context.Context, in []gorgonia.Value, watched bool) error {
	err := vm.exec.Start(ctx, in)
	if err == nil || vm.exec.Changed() {
		vm.trainer.started()
		vm.params.ran()
	}
	if err != nil {
		return err
	}
	if (vm.next+1)%vm.every != 0 && !vm.graph.Keeps() && !vm.graph.ComputesIndices() && !watched && !vm.trainer.takesGradients() {
		vm.params.computedIndices(nil)
		return nil
	}
	all, err := vm.exec.FinishRanks()
	if err != nil {
		return err
	}
	for _, out := range all {
		if err := vm.graph.Check(out); err != nil {
			vm.trainer.spoil(err)
			if !watched { // else the run is undone
				vm.params.spoil(err)
			}
			return err
		}
	}
	vm.params.computedIndices(all)
	if err := vm.trainer.checkSkips(all[0]); err != nil {
		return err
	}
	if watched {
		if err := vm.look(all); err != nil {
			return err
		}
	}
	return vm.boundary.deliver(all[0], func(n *gorgonia.Node) bool { return vm.config.add || vm.trainer.adds(n) })
}
