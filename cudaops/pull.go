package cudaops

import (
	"context"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"gorgonia.org/gorgonia"
)

// Pull copies learnables and parameters of [In] from the device, all of them if no node is given. It writes into the tensors and scalars bound to
// their nodes, so every holder of these sees the new values. A learnable without a value is bound to a new one. A value
// that was bound to a node since the last run or Push is copied to the device instead.
//
// Another VM that keeps such a tensor on its device, as an input of [Resident] or a learnable of [Train], copies it again in
// its next run. If that VM has made steps of the learnable since, its next run and its Pull return errors until [VM.Push]
// copies the tensor. No VM that holds the tensor may run during a Pull.
func (vm *VM) Pull(nodes ...*gorgonia.Node) error {
	return vm.between("Pull", func() error {
		list, err := vm.params.find(nodes)
		if err != nil {
			return err
		}
		changed, err := vm.params.refresh(list)
		if err != nil {
			return err
		}
		return vm.params.pull(slices.DeleteFunc(list, func(i int) bool { return slices.Contains(changed, i) }))
	})
}

// Push copies the values of learnables, of parameters of [In] and of inputs of [Resident] to the device, of all if no node is given. The solver state
// of learnables does not change.
func (vm *VM) Push(nodes ...*gorgonia.Node) error {
	return vm.between("Push", func() error {
		residents, others := vm.resident.find(nodes)
		if len(others) > 0 || len(nodes) == 0 && (len(vm.params.nodes) > 0 || len(residents) == 0) {
			list, err := vm.params.find(others)
			if err == nil {
				err = vm.params.push(list)
			}
			if err != nil {
				return err
			}
		}
		for _, i := range residents {
			if err := vm.resident.push(vm.exec, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Learnables returns the nodes of [Train] whose values stay on the device between runs. There are none without Train, or if
// the solver makes its steps on the host.
func (vm *VM) Learnables() gorgonia.Nodes {
	if vm == nil {
		return nil
	}
	return slices.Clone(gorgonia.Nodes(vm.trainer.onDevice()))
}

// Solvers returns the solvers of [Train], in its order.
func (vm *VM) Solvers() []gorgonia.Solver {
	if vm == nil {
		return nil
	}
	return program.Collect(vm.config.train, func(t training) gorgonia.Solver { return t.solver })
}

// Transients returns the nodes of [Transient].
func (vm *VM) Transients() (nodes gorgonia.Nodes) {
	if vm == nil {
		return nil
	}
	for _, s := range vm.config.states {
		if s.transient {
			nodes = append(nodes, s.node)
		}
	}
	return nodes
}

// training calls f for the trainer of a VM with learnables on the device, between runs.
func (vm *VM) training(method string, do func(t *trainer) error) error {
	return vm.between(method, func() error {
		if len(vm.trainer.onDevice()) == 0 {
			return errUntrained
		}
		return do(vm.trainer)
	})
}

// between calls f between runs.
func (vm *VM) between(method string, do func() error) error {
	if vm == nil || vm.exec == nil {
		return fmt.Errorf("cudaops: %s of a VM that NewVM did not make", method)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.closed {
		return fmt.Errorf("cudaops: %s after Close", method)
	}
	leave, err := vm.enter(context.Background())
	if err == nil {
		defer leave()
		err = vm.mend()
	}
	if err == nil {
		var release func()
		if release, err = vm.nodes.claim(); err == nil {
			defer release()
			err = do()
		}
	}
	return failure("cudaops: "+method, err)
}

// enter waits until no other VM of the Store runs.
func (vm *VM) enter(ctx context.Context) (leave func(), err error) {
	s := vm.params.store
	if s == nil {
		return func() {}, nil
	}
	unlock, err := s.enter(ctx, vm.exec)
	return func() {
		s.last = vm.exec
		unlock()
	}, err
}
