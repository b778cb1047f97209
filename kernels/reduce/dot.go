package reduce

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	dotRows = [2]*kernels.Kernel{
		kernels.Float32: own.Kernel("dot", "dot_rows_f32", dotRowsBody[float32]),
		kernels.Float64: own.Kernel("dot", "dot_rows_f64", dotRowsBody[float64]),
	}
	dotShort = [2]*kernels.Kernel{
		kernels.Float32: own.Kernel("dot", "dot_short_f32", dotShortBody[float32]),
		kernels.Float64: own.Kernel("dot", "dot_short_f64", dotShortBody[float64]),
	}
)

// Dot plans out[i] = sum over j of a[i][j] * b[i][j] for rows of n elements.
func Dot(dev kernels.Device, dt kernels.Dtype, rows, n int64) *kernels.Plan {
	size := rows * n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("dot_%v(%d x %d)", dt, rows, n), Inputs: []int64{size, size}, Out: rows * dt.Size(), Flops: 2 * rows * n}
	if rows == 0 {
		return p
	}
	a, b, out := kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0)
	if pol := rowPolicies.On(dev); n <= pol.short {
		// A group of lanes takes two rows, a lane about five elements of each: H200, us, 1903431 x 5 21.9, two lanes 22.8; 1000000 x 17, four lanes 37.0, eight 45.5;
		// 300000 x 50, 16 lanes 32.9, eight 39.0
		const rowsEach, elements = 2, 5
		lanes := min(arith.Pow2(kernels.CeilDiv(n, elements)), 32)
		p.Launch(dotShort[dt], int(kernels.CeilDiv(rows*lanes, rowsEach*int64(pol.block))), pol.block, a, b, out, rows, int32(n), int32(lanes))
		return p
	}
	appendSumRows(p, dev, dotRows[dt], []any{a, b}, out, rows, n, 1)
	return p
}

func dotRowsBody[T kernels.Float](c kernels.Call) {
	a, b, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), kernels.Slice[T](c, 2)
	reduceRowsBody(c, 2, out, func(from, to int64) float64 {
		var buffer []T
		return dotDouble(c.BLAS(), a[from:to], align.Part(b, from, to, &buffer))
	})
}

func dotShortBody[T kernels.Float](c kernels.Call) {
	a, b, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), kernels.Slice[T](c, 2)
	rows, n := c.Int(3), c.Int(4)
	kernels.Parallel(rows, kernels.Grain/max(n, 1), func(lo, hi int64) {
		if n <= 8 { // a call takes longer
			for i := lo; i < hi; i++ {
				sum, y := 0.0, b[i*n:(i+1)*n]
				for j, x := range a[i*n : (i+1)*n] {
					sum += float64(x) * float64(y[j])
				}
				out[i] = T(sum)
			}
			return
		}
		var buffer []T
		for i := lo; i < hi; i++ {
			out[i] = T(dotDouble(c.BLAS(), a[i*n:(i+1)*n], align.Part(b, i*n, (i+1)*n, &buffer)))
		}
	})
}

// dotDouble sums products in double; y is aligned.
func dotDouble[T kernels.Float](by kernels.BLAS, x, y []T) float64 {
	if x, ok := any(x).([]float32); ok {
		return by.Dsdot(len(x), x, 1, any(y).([]float32), 1)
	}
	return by.Ddot(len(x), any(x).([]float64), 1, any(y).([]float64), 1)
}
