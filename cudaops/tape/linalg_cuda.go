//go:build cuda

package tape

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// linAlg is Gorgonia's own matrix product in the order of the graph. Gorgonia
// starts cuBLAS on a thread that has no context, so cuBLAS works in the
// device's primary context and nothing orders it with the machine's: what comes
// next may start before the product is there. And of two vectors there is no
// product in Gorgonia's CUDA build at all.
type linAlg struct{ gorgonia.Op }

var _ gorgonia.CUDADoer = linAlg{}

// ordered replaces the op of an instruction where that is needed.
func ordered(op gorgonia.Op) gorgonia.Op {
	if reflect.TypeOf(op).String() == "gorgonia.linAlgBinOp" {
		return linAlg{op}
	}
	return op
}

func (l linAlg) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	if prealloc != nil && prealloc.Shape().IsScalar() && strings.Contains(l.String(), "⋅") {
		return l.dot(extern, dev, prealloc, in)
	}
	e, err := engine(extern, dev)
	if err != nil {
		return nil, err
	}
	c, err := contextOf(e, int(dev))
	if err != nil {
		return nil, err
	}
	if err := settle(e); err != nil {
		return nil, err
	}
	if err := c.stream.Sync(); err != nil {
		return nil, err
	}
	out, err := l.Op.(gorgonia.CUDADoer).CUDADo(extern, dev, prealloc, in...)
	if err != nil {
		return nil, err
	}
	d, err := driver.Get(int(dev))
	if err != nil {
		return nil, err
	}
	primary, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer primary.Close()
	return out, primary.DefaultStream().Sync()
}

// dot is the product of two vectors.
func (l linAlg) dot(extern gorgonia.External, dev gorgonia.Device, out gorgonia.Value, in []gorgonia.Value) (gorgonia.Value, error) {
	dt, ok := values.Dtype(out.Dtype())
	if !ok || len(in) != 2 {
		return nil, fmt.Errorf("tape: %v: got %d inputs for an output of %v, want 2 and float32 or float64", l, len(in), out.Dtype())
	}
	p := product{dt, int64(in[0].Shape().TotalSize())}
	done, err := Run(extern, dev, p, out, in)
	if err != nil || done {
		return out, err
	}
	plan, err := p.Plan(kernels.HostDevice())
	if err != nil {
		return nil, err
	}
	mem := make([][]byte, len(in))
	for i, v := range in {
		if mem[i], err = values.Bytes(v); err != nil {
			return nil, err
		}
	}
	to, err := values.Bytes(out)
	if err != nil {
		return nil, err
	}
	return out, plan.Run(mem, to, nil)
}

// product plans the dot product of n elements.
type product struct {
	dt kernels.Dtype
	n  int64
}

// Plan implements kernels.Planner.
func (p product) Plan(dev kernels.Device) (*kernels.Plan, error) {
	return kernels.Dot(dev, p.dt, 1, p.n), nil
}
