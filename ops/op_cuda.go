//go:build cuda

package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// cudaOp is an Op that Gorgonia's machines run on a CUDA device.
type cudaOp struct{ *Op }

var _ gorgonia.CUDADoer = cudaOp{}

// forMachines returns the form of the op for a graph. Gorgonia chooses the ops of a
// device by type alone, and its machines panic if there is none, so the op stays a plain one there.
func forMachines(o *Op) gorgonia.Op {
	if tape.Available() != nil {
		return o
	}
	return cudaOp{o}
}

// CallsExtern makes Gorgonia's machines allocate the output before CUDADo.
func (o cudaOp) CallsExtern() bool { return true }

// CUDADo runs the op's plan on a device of one of Gorgonia's machines, into
// prealloc or, if that is nil, into a new value in the machine's memory. Where
// there is no kernel for the device the op runs on the host, in the same memory.
func (o cudaOp) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (out gorgonia.Value, err error) {
	if err := o.checkValues(in); err != nil {
		return nil, err
	}
	if out = prealloc; out == nil {
		if out, err = tape.New(extern, dev, o.out.Dtype, o.out.Shape); err != nil {
			return nil, fmt.Errorf("ops: %v: %w", o, err)
		}
	}
	if out.Dtype() != values.Tensor(o.out.Dtype) || !out.Shape().Eq(o.out.Shape) {
		return nil, fmt.Errorf("ops: %v: the preallocated value is %v of shape %v, want %v of shape %v",
			o, out.Dtype(), out.Shape(), values.Tensor(o.out.Dtype), o.out.Shape)
	}
	done, err := tape.Run(extern, dev, o, out, in)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	if done {
		return out, nil
	}
	mem, ok := values.Own(out, o.out.Dtype, o.out.Shape)
	if !ok {
		return nil, fmt.Errorf("ops: %v: the preallocated value of shape %v is not contiguous", o, out.Shape())
	}
	return out, o.run(mem, in)
}

// settle waits until values on the context's device are ready for the host.
func settle(ctx gorgonia.ExecutionContext) error { return tape.Settle(ctx) }
