package kernels

import (
	"fmt"
)

var (
	dotRows = [2][2]*Kernel{
		Float32: {
			Float32: own.Kernel("dot", "dot_rows_f32", dotRowsBody[float32, float32]),
			Float64: own.Kernel("dot", "dot_rows_f32_f64", dotRowsBody[float32, float64]),
		},
		Float64: {Float64: own.Kernel("dot", "dot_rows_f64", dotRowsBody[float64, float64])},
	}
	dotShort = [2]*Kernel{
		Float32: own.Kernel("dot", "dot_short_f32", dotShortBody[float32]),
		Float64: own.Kernel("dot", "dot_short_f64", dotShortBody[float64]),
	}
)

// Dot plans out[i] = sum over j of a[i][j] * b[i][j] for rows of n elements.
func Dot(dev Device, dt Dtype, rows, n int64) *Plan {
	size := rows * n * dt.Size()
	p := &Plan{Op: fmt.Sprintf("dot_%v(%d x %d)", dt, rows, n), Inputs: []int64{size, size}, Out: rows * dt.Size(), Flops: 2 * rows * n}
	if rows == 0 {
		return p
	}
	pol := rowPolicies.on(dev)
	a, b, out := Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}
	if n <= pol.short {
		p.rowsShort(dotShort[dt], pol, []any{a, b}, out, rows, n, 1)
		return p
	}
	splits, chunk := pol.split(dev, rows, n)
	if splits == 1 {
		p.Launch(dotRows[dt][dt], int(rows), pol.block, a, b, out, n, n, int32(1), 1.0)
		return p
	}
	part := p.Workspace(rows * splits * 8)
	p.Launch(dotRows[dt][Float64], int(rows*splits), pol.block, a, b, part, n, chunk, int32(splits), 1.0)
	p.sumPass(dev, part, Float64, out, dt, rows, splits, 1, 1)
	return p
}

func dotRowsBody[In, To Float](c Call) {
	a, b, out := Slice[In](c, 0), Slice[In](c, 1), Slice[To](c, 2)
	n, chunk, splits, div := c.Int(3), c.Int(4), c.Int(5), c.Float(6)
	Parallel(int64(c.Grid[0]), max(Grain/chunk, 1), func(lo, hi int64) {
		var buffer []In
		for k := lo; k < hi; k++ {
			at, first := k/splits*n, k%splits*chunk
			last := min(first+chunk, n)
			out[k] = To(dotDouble(c.blas, a[at+first:at+last], alignedPart(b, at+first, at+last, &buffer)) / div)
		}
	})
}

func dotShortBody[T Float](c Call) {
	a, b, out := Slice[T](c, 0), Slice[T](c, 1), Slice[T](c, 2)
	rows, n, div := c.Int(3), c.Int(4), c.Float(6)
	Parallel(rows, Grain/max(n, 1), func(lo, hi int64) {
		var buffer []T
		for i := lo; i < hi; i++ {
			out[i] = T(dotDouble(c.blas, a[i*n:(i+1)*n], alignedPart(b, i*n, (i+1)*n, &buffer)) / div)
		}
	})
}

// dotDouble sums products in double; y is aligned.
func dotDouble[T Float](by BLAS, x, y []T) float64 {
	if x, ok := any(x).([]float32); ok {
		return by.Dsdot(len(x), x, 1, any(y).([]float32), 1)
	}
	return by.Ddot(len(x), any(x).([]float64), 1, any(y).([]float64), 1)
}
