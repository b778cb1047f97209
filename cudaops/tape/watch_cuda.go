//go:build cuda

package tape

import (
	"fmt"
	"math"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// watched implements WithNaNWatch and WithInfWatch for an op on a device: it waits for the op and
// checks its output. Gorgonia asks the engine, which cannot answer, and drops the engine's error.
type watched struct {
	gorgonia.Op
	nan, inf bool
}

var _ gorgonia.CUDADoer = watched{}

// watch makes a machine check values as its options ask. Values of ops on the host the machine
// checks itself.
func watch(vm gorgonia.VM) error {
	nan, inf, err := internal.Watches(vm)
	if err != nil || !nan && !inf {
		return err
	}
	program, err := internal.MachineTape(vm)
	if err != nil {
		return err
	}
	return program.EachOp(func(op gorgonia.Op) gorgonia.Op {
		if _, ok := op.(gorgonia.CUDADoer); !ok {
			return op
		}
		return watched{op, nan, inf}
	})
}

func (w watched) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	out, err := w.Op.(gorgonia.CUDADoer).CUDADo(extern, dev, prealloc, in...)
	if err != nil {
		return nil, err
	}
	e, err := engine(extern, dev)
	if err != nil {
		return nil, err
	}
	if err := settle(e); err != nil {
		return nil, err
	}
	return out, w.look(out)
}

// look returns an error that names the number that a value must not hold, and its place.
func (w watched) look(v gorgonia.Value) error {
	dt, ok := values.Dtype(v.Dtype())
	if !ok || !dt.IsFloat() {
		return nil
	}
	mem, err := values.Bytes(v)
	if err != nil {
		return fmt.Errorf("tape: to watch %v: %w", w.Op, err)
	}
	if dt == kernels.Float32 {
		return lookAt(w, kernels.Elements[float32](mem))
	}
	return lookAt(w, kernels.Elements[float64](mem))
}

func lookAt[T kernels.Float](w watched, x []T) error {
	for i, v := range x {
		if v := float64(v); w.nan && math.IsNaN(v) || w.inf && math.IsInf(v, 0) {
			return fmt.Errorf("tape: %v found in the value of %v, element %d of %d", v, w.Op, i, len(x))
		}
	}
	return nil
}
