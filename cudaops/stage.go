package cudaops

import (
	"fmt"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/safely"
	"gorgonia.org/gorgonia"
)

// Stage copies values of inputs to the device for a run to come, while the run before is
// under way there: another goroutine may call it meanwhile. The run to which one of these
// very values is bound takes it from there. It may be changed in place once that run, or another one, has begun: when
// RunAll returns. Values in memory of [Pinned] are copied by the device alone, others by way of such memory.
//
// Two runs' values have room on the device: those of a run that is under way, and those that are
// staged. Stage waits for room, and reports whether it did anything: only a machine with [Train] on a
// device does. Without values it reports whether it is one.
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
		if err := safely.Call("its value", func() error { return check(v, now.boundary.inputs[i].Type) }); err != nil {
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
