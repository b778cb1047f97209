//go:build cuda

package tape

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/gorgonia"
)

// linAlg is Gorgonia's own matrix product, ordered with the rest of the graph. Gorgonia starts
// cuBLAS on a thread that has no context, so that cuBLAS works in the device's primary context and
// nothing orders it with the machine's: the next op may start before the product is complete.
// Gorgonia's CUDA build has no product of two vectors, and its products of batches take memory from
// the pool in each run that nothing frees here: for these two there are Stheno's kernels.
type linAlg struct{ gorgonia.Op }

var _ gorgonia.CUDADoer = linAlg{}

func (l linAlg) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	if p, ok := l.product(in); ok && prealloc != nil {
		return p.run(extern, dev, prealloc, in)
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

// product returns the product of two vectors or of batches of matrices; ok is false for others.
func (l linAlg) product(in []gorgonia.Value) (p product, ok bool) {
	if len(in) != 2 {
		return p, false
	}
	if p.Dtype, ok = values.Dtype(in[0].Dtype()); !ok || !p.Dtype.IsFloat() {
		return p, false
	}
	a, b := in[0].Shape(), in[1].Shape()
	switch name := l.String(); {
	case strings.Contains(name, "⋅"):
		p.Batch, p.M, p.N, p.K = 1, 1, 1, int64(a.TotalSize())
		return p, true
	case strings.Contains(name, "×××"):
		p.A.Trans, p.B.Trans = internal.Transposes(l.Op)
		rank := len(a)
		p.M, p.K, p.N = int64(a[rank-2]), int64(a[rank-1]), int64(b[rank-1])
		if p.A.Trans {
			p.M, p.K = p.K, p.M
		}
		if p.B.Trans {
			p.N = int64(b[rank-2])
		}
		p.Batch = 1
		for _, d := range a[:rank-2] {
			p.Batch *= int64(d)
		}
		return p, true
	}
	return p, false
}

// product is one that a machine runs.
type product struct{ gemm.Product }

// run runs the product on the device, or on the host in the same memory.
func (p product) run(extern gorgonia.External, dev gorgonia.Device, out gorgonia.Value, in []gorgonia.Value) (gorgonia.Value, error) {
	if size := p.Batch * p.M * p.N; out.Dtype() != values.Tensor(p.Dtype) || int64(out.Shape().TotalSize()) != size {
		return nil, fmt.Errorf("tape: a product for an output of %v of shape %v, want %d elements of %v", out.Dtype(), out.Shape(), size, p.Dtype)
	}
	done, err := Run(extern, dev, p, out, in)
	if err != nil || done {
		return out, err
	}
	return out, p.onHost(out, in)
}

func (p product) onHost(out gorgonia.Value, in []gorgonia.Value) error {
	plan, err := p.Plan(kernels.HostDevice())
	if err != nil {
		return err
	}
	mem := make([][]byte, len(in))
	for i, v := range in {
		if mem[i], err = values.Bytes(v); err != nil {
			return err
		}
	}
	to, err := values.Bytes(out)
	if err != nil {
		return err
	}
	return plan.Run(mem, to, nil)
}
