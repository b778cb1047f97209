package basic

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

var scaleRows = own.Pair("scale", "scale_rows", scaleBody[float32], scaleBody[float64])

type scaleArgs struct {
	S, X, Out   kernels.Ref
	Elements, N int64
}

// Scale plans out[i][j] = s[i] * x[i][j] for rows of n elements; input 0 is x, input 1 is s.
func Scale(dev kernels.Device, dt kernels.Dtype, rows, n int64) *kernels.Plan {
	size := rows * n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("scale_%v(%d x %d)", dt, rows, n), Inputs: []int64{size, rows * dt.Size()}, Out: size, Flops: rows * n}
	if size > 0 {
		appendStream(p, scaleRows[dt], policy.Scaling.On(dev), size, scaleArgs{kernels.In(1), kernels.In(0), kernels.At(kernels.Out, 0), rows * n, n})
	}
	return p
}

func scaleBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[scaleArgs](c)
	s, x, out, n := kernels.Slice[T](c, args.S), kernels.Slice[T](c, args.X), kernels.Slice[T](c, args.Out), args.N
	kernels.Parallel(args.Elements, kernels.Grain, func(lo, hi int64) {
		if n == 1 {
			for i, v := range x[lo:hi] {
				out[lo+int64(i)] = s[lo+int64(i)] * v
			}
			return
		}
		for row := lo / n; lo < hi; row++ {
			end, f := min((row+1)*n, hi), s[row]
			dst := out[lo:end]
			for i, v := range x[lo:end] {
				dst[i] = f * v
			}
			lo = end
		}
	})
}
