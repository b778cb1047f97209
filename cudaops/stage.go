package cudaops

import (
	"fmt"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// Stage copies input values to the device for a later run, while another run computes. Any goroutine may call it. A run whose
// input is bound to one of these values uses the staged copy. A value may be changed in place after that RunAll, or another
// RunAll after Stage, has returned. Values in memory of [Pinned] are copied directly, other values through pinned memory.
//
// The device holds the values of two runs: the current one and a staged one. Stage waits until a buffer is free. It reports
// whether it staged the values, which only a machine with [Train] on a device does. Without values it reports
// whether the machine can stage.
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
		if err := guard.Recover("its value", func() error { return check(v, now.boundary.inputs[i]) }); err != nil {
			return false, fmt.Errorf("cudaops: Stage: input %s has %w", internal.Name(input.Node), err)
		}
		in[i] = v
		found++
	}
	if found == 0 {
		return false, nil
	}
	done, err := now.exec.Stage(in)
	return done, failure("cudaops: Stage", err)
}
