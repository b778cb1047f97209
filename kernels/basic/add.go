package basic

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

var addKernel = own.Pair("add", "add", AddBody[float32], AddBody[float64])

type addArgs struct {
	A, B, Out kernels.Ref
	N         int64
}

// Add plans out[i] = a[i] + b[i] for n elements.
func Add(dev kernels.Device, dt kernels.Dtype, n int64) *kernels.Plan {
	size := n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("add_%v(%d)", dt, n), Inputs: []int64{size, size}, Out: size, Flops: n}
	if n > 0 {
		appendStream(p, addKernel[dt], policy.Streaming.On(dev), n*dt.Size(), addArgs{kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), n})
	}
	return p
}

// AddBody is the Go body of kernels that compute out[i] = a[i] + b[i] for n elements; the arguments are a, b, out, n.
func AddBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[addArgs](c)
	a, b, out := kernels.Slice[T](c, args.A), kernels.Slice[T](c, args.B), kernels.Slice[T](c, args.Out)
	kernels.Parallel(args.N, kernels.Grain, func(lo, hi int64) {
		a, b, out := a[lo:hi], b[lo:hi], out[lo:hi]
		for i := range out {
			out[i] = a[i] + b[i]
		}
	})
}
