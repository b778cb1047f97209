package cudaops

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/safely"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// Stage copies values of inputs to the device for a run to come, while the run before is
// under way there: another goroutine may call it meanwhile. The run to which one of these
// very values is bound takes it from there. It may be changed in place once that run has begun, and another
// value may be bound.
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

// Pinned returns a new value for an input, in memory that the device reads directly if [VM.Stage] is of use:
// the host need not copy it then. The memory is Go's, and the value may be kept for longer than the machine. The
// machine keeps it until it is closed.
func (vm *VM) Pinned(n *gorgonia.Node) (gorgonia.Value, error) {
	if err := vm.has("Pinned", n); err != nil {
		return nil, err
	}
	dt, ok := values.Dtype(n.Dtype())
	if !ok || n.Shape().TotalSize() == 0 {
		return nil, fmt.Errorf("cudaops: Pinned: node %s is a %v of shape %v, want numbers", internal.Name(n), n.Type(), n.Shape())
	}
	v, err := vm.pinned(program.Type{Numeric: true, Dtype: dt, Shape: n.Shape()})
	if err != nil {
		return nil, fmt.Errorf("cudaops: Pinned: node %s: %w", internal.Name(n), err)
	}
	return v, nil
}

func (vm *VM) pinned(t program.Type) (gorgonia.Value, error) {
	e := vm.shown.Load().exec
	if !e.Stages() || t.Shape.IsScalar() {
		v, _, err := values.Make(t.Dtype, t.Shape)
		return v, err
	}
	m, err := e.Pinned(t.Bytes())
	if err != nil {
		return nil, err
	}
	return values.Over(t.Dtype, t.Shape, m), nil
}
