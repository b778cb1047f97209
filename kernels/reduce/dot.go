package reduce

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	dotRows  = own.Pair("dot", "dot_rows", dotRowsBody[float32], dotRowsBody[float64])
	dotShort = own.Pair("dot", "dot_short", dotShortBody[float32], dotShortBody[float64])
)

type dotRowsArgs struct {
	A, B kernels.Ref
	rowsArgs
}

type dotShortArgs struct {
	A, B, Out kernels.Ref
	Rows      int64
	N, Lanes  int64 `arg:"int32"`
}

// Dot plans out[i] = sum over j of a[i][j] * b[i][j] for rows of n elements.
func Dot(dev kernels.Device, dt kernels.Dtype, rows, n int64) *kernels.Plan {
	size := rows * n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("dot_%v(%d x %d)", dt, rows, n), Inputs: []int64{size, size}, Out: rows * dt.Size(), Flops: 2 * rows * n}
	if rows == 0 {
		return p
	}
	a, b, out := kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0)
	pol := rowPolicies.On(dev)
	few := dev.Kind == kernels.GPU && rows <= int64(dev.SMs)*pol.dotFewRowsPerSM
	if n <= pol.shortMax && (!few || n <= pol.dotShortMaxFew) {
		// A group of lanes sums two rows, a lane about five elements of each.
		//
		//	H200, us, by lanes      1      2      4      8     16
		//	1903431 x 5          21.9   22.8      -      -      -
		//	1000000 x 17            -      -   37.0   45.5      -
		//	300000 x 50             -      -      -   39.0   32.9
		const rowsEach, elements = 2, 5
		lanes := min(arith.Pow2(kernels.CeilDiv(n, elements)), 32)
		p.Launch(dotShort[dt], int(kernels.CeilDiv(rows*lanes, rowsEach*int64(pol.block))), pol.block, dotShortArgs{a, b, out, rows, n, lanes})
		return p
	}
	if dev.Kind == kernels.GPU {
		pol.chunkMin = pol.dotChunkMin
	}
	splits, chunk := pol.split(dev, rows, n)
	block := pol.block
	if few && n*dt.Size() <= pol.dotLoneMaxBytes { // one block, whose threads have all their elements in flight
		splits, chunk = 1, n
		if n*dt.Size() <= 64*int64(pol.narrowBlock) {
			block = pol.narrowBlock
		}
	}
	if rows >= int64(dev.SMs)*pol.narrowMinRowsPerSM && n <= pol.narrowMax {
		block = pol.narrowBlock
	}
	appendRows(p, dotRows[dt], [2]kernels.Ref{a, b}, out, int64(block), rows, n, splits, chunk, 1)
	return p
}

func dotRowsBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[dotRowsArgs](c)
	a, b := kernels.Slice[T](c, args.A), kernels.Slice[T](c, args.B)
	reduceRows[T](c, args.rowsArgs, func(from, to int64) float64 {
		var buffer []T
		return dotDouble(c.BLAS(), a[from:to], align.Part(b, from, to, &buffer))
	})
}

func dotShortBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[dotShortArgs](c)
	a, b, out, n := kernels.Slice[T](c, args.A), kernels.Slice[T](c, args.B), kernels.Slice[T](c, args.Out), args.N
	kernels.Parallel(args.Rows, kernels.Grain/max(n, 1), func(lo, hi int64) {
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
