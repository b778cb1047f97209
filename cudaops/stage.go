package cudaops

import (
	"fmt"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// Stage copies values of inputs to the device for a later run, while another run is under
// way: another goroutine may call it meanwhile. When one of these very values is bound to its input, the next run
// takes it from the device. A value may be changed in place when the RunAll that takes it, or another one after Stage, has
// returned. The device copies values in memory of [Pinned] by itself, and others by way of such memory.
//
// The device has room for the values of two runs: of one that is under way, and of one that is
// staged. Stage waits for room, and reports whether it did anything: only a machine with [Train] on a
// device does. Without values it reports whether the machine is one.
func (vm *VM) Stage(batch map[*gorgonia.Node]gorgonia.Value) (bool, error) {
	if vm == nil || vm.exec == nil {
		return false, fmt.Errorf("cudaops: Stage of a VM that NewVM did not make")
	}
	now := vm.shown.Load()
	if !now.exec.Stages() || len(batch) == 0 {
		return now.exec.Stages(), nil
	}
	in, found := make([]gorgonia.Value, len(now.boundary.inputs)), 0
	for i, input := range now.graph.Inputs {
		v, ok := batch[input.Node]
		if !ok || input.State != nil {
			continue
		}
		if err := guard.Recover("its value", func() error { return check(v, now.boundary.inputs[i].Type) }); err != nil {
			return false, fmt.Errorf("cudaops: Stage: input %s has %w", internal.Name(input.Node), err)
		}
		in[i] = v
		found++
	}
	if found == 0 {
		return false, nil
	}
	done, err := now.exec.Stage(in)
	if err != nil {
		err = fmt.Errorf("cudaops: Stage: %w", err)
	}
	return done, err
}
