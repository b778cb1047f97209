package gemm

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"gonum.org/v1/gonum/blas"
)

// vectorKernels are those of matmul_vector.cu for one element type.
type vectorKernels struct{ rows, short, columns, flat, combine, join *kernels.Kernel }

func vectorsOf[T kernels.Float](suffix string) vectorKernels {
	kernel := func(name string, body func(kernels.Call)) *kernels.Kernel {
		return own.Kernel("matmul_vector", "matmul_"+name+"_"+suffix, body)
	}
	return vectorKernels{
		rows:    kernel("rows", matmulRowsBody[T]),
		short:   kernel("shortrows", matmulShortRowsBody[T]),
		columns: kernel("columns", matmulColumnsBody[T]),
		flat:    kernel("flat", matmulColumnsBody[T]),
		combine: kernel("combine", matmulCombineBody[T]),
		join:    kernel("join", matmulCombineBody[T]),
	}
}

var matmulVector = [...]vectorKernels{kernels.Float32: vectorsOf[float32]("f32"), kernels.Float64: vectorsOf[float64]("f64")}

// vectorBlock is the block of the kernels of matmul_vector.cu.
const vectorBlock = 256

// apart returns how many rows of n elements lie between two that begin at the same place
// within 16 bytes.
func apart(dt kernels.Dtype, n int64) int64 {
	w := 16 / dt.Size()
	switch {
	case n%w == 0:
		return 1
	case n%2 == 0:
		return w / 2
	}
	return w
}

// appendMatVec appends the launches of y = op(X) v for each matrix of the batch: y has
// n elements, each a sum of k terms. X is stored n x k, or k x n with trans. y is a
// column of C, or with across a row.
func appendMatVec(p *kernels.Plan, dev kernels.Device, c result, x, v kernels.Ref, n, k int64, trans, across bool) {
	pol, variants := matmulPolicies.On(dev), matmulVector[c.dt]
	launch := func(kernel *kernels.Kernel, blocks int64, e Epilogue, args any) {
		if across {
			e = e.transposed()
		}
		p.Launch(kernel, int(blocks), vectorBlock, args, e.arguments(c.dt))
	}
	switch {
	case trans:
		w := 16 / c.dt.Size()
		width := 64 * w // columns of a block
		if n%w != 0 {
			width -= w
		}
		kernel, strips, splits := variants.columns, kernels.CeilDiv(n, width), pol.columns
		switch {
		case n <= pol.few:
			kernel, strips, splits = variants.flat, 1, pol.flat
		case strips*c.batch <= pol.strips && k >= pol.terms[0] && k <= pol.terms[1]:
			splits = pol.scarce
		}
		if splits.unit == 0 && strips*c.batch*(k/splits.terms) < pol.halved*int64(dev.SMs) {
			splits.terms /= 2
		}
		appendSplit(p, dev, c, strips*c.batch, splits, k, func(y kernels.Ref, e Epilogue, splits, chunk int64) {
			launch(kernel, strips*c.batch*splits, e, vectorArgs{x, v, y, n, k, c.batch, chunk})
		})
	case k <= pol.shortRows[c.dt]:
		lanes := int64(1)
		for ; lanes < 32 && lanes*4 < k; lanes *= 2 {
		}
		launch(variants.short, kernels.CeilDiv(n*c.batch*lanes, vectorBlock), c.epilogue, shortArgs{x, v, out, n, k, c.batch, lanes})
	default:
		const rows, warps = 4, 8 // of a warp, in float32; of a block
		groups := n * c.batch
		if step := apart(c.dt, k); c.dt == kernels.Float32 {
			groups = kernels.CeilDiv(n, rows*step) * step * c.batch
		}
		appendSplit(p, dev, c, kernels.CeilDiv(groups, warps), pol.rows, k, func(y kernels.Ref, e Epilogue, splits, chunk int64) {
			launch(variants.rows, kernels.CeilDiv(groups*splits, warps), e, vectorArgs{x, v, y, n, k, c.batch, chunk})
		})
	}
}

// appendCombine appends the launch that adds splits up in partial, [splits][count of C], and makes C of them.
func appendCombine(p *kernels.Plan, dev kernels.Device, c result, partial kernels.Ref, splits int64) {
	args := combineArgs{partial, out, c.count(), splits, c.m, c.n, c.epilogue.arguments(c.dt)}
	if pol := matmulPolicies.On(dev); splits >= pol.copies && c.count() <= pol.joined {
		const elements, threads = 32, 1024
		p.Launch(matmulVector[c.dt].join, int(kernels.CeilDiv(c.count(), elements)), threads, args)
		return
	}
	p.LaunchElements(matmulVector[c.dt].combine, c.count(), args)
}

// vectorArgs are the first arguments of the kernels of a matrix X and a vector V: N sums of K terms, in splits of Chunk.
type vectorArgs struct {
	X, V, Y            kernels.Ref
	N, K, Batch, Chunk int64
}

// shortArgs are those with the lanes of a row in place of the splits.
type shortArgs struct {
	X, V, Y     kernels.Ref
	N, K, Batch int64
	Lanes       int64 `arg:"int32"`
}

// combineArgs are the arguments of the kernels that add splits up.
type combineArgs struct {
	Partial, C          kernels.Ref
	Count, Splits, M, N int64
	epilogueArgs
}

// matmulRowsBody is y[r] = sum over l of x[r][l] * v[l].
func matmulRowsBody[T kernels.Float](c kernels.Call) { rowsBody[T](c, kernels.Args[vectorArgs](c)) }

func matmulShortRowsBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[shortArgs](c)
	rowsBody[T](c, vectorArgs{x.X, x.V, x.Y, x.N, x.K, x.Batch, max(x.K, 1)})
}

func rowsBody[T kernels.Float](c kernels.Call, a vectorArgs) {
	x, v, y := kernels.Slice[T](c, a.X), align.Vector(kernels.Slice[T](c, a.V)), kernels.Slice[T](c, a.Y)
	rows, k := a.N, a.K
	splits := max(kernels.CeilDiv(k, a.Chunk), 1)
	kernels.Parallel(splits*a.Batch, max(kernels.Grain/max(rows*min(k, a.Chunk), 1), 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			matrix, k0 := i%a.Batch, i/a.Batch*a.Chunk
			matvec(c.BLAS(), rows, min(a.Chunk, k-k0), x[matrix*rows*k+k0:], k, v[matrix*k+k0:], y[i*rows:(i+1)*rows])
		}
	})
}

// matvec is y[r] = sum over l of x[r*ld+l] * v[l], for all rows r and terms l. gonum's BLAS
// takes float64 four rows at a time, so a goroutine starts at a multiple of four:
// then the order of a sum does not depend on the goroutines.
func matvec[T kernels.Float](by kernels.BLAS, rows, terms int64, x []T, ld int64, v, y []T) {
	if terms == 0 {
		clear(y)
		return
	}
	if own, ok := by.(kernels.Multiplier); ok && multiply(own, kernels.Matrices[T]{M: rows, N: 1, K: terms, A: x, LDA: ld, B: v, LDB: 1, C: y}) {
		return
	}
	const group = 4
	kernels.Parallel(kernels.CeilDiv(rows, group), max(kernels.Grain/(group*terms), 1), func(lo, hi int64) {
		first, last := lo*group, min(hi*group, rows)
		rowsTimes(by, last-first, terms, x[first*ld:], ld, v, y[first:])
	})
}

// rowsTimes is y[r] = sum over l of x[r*ld+l] * v[l], for all rows r and terms l.
func rowsTimes[T kernels.Float](by kernels.BLAS, rows, terms int64, x []T, ld int64, v, y []T) {
	switch x := any(x).(type) {
	case []float32:
		v, y := any(v).([]float32), any(y).([]float32)
		for r := range rows {
			y[r] = by.Sdot(int(terms), x[r*ld:], 1, v, 1)
		}
	case []float64:
		by.Dgemv(blas.NoTrans, int(rows), int(terms), 1, x, int(ld), any(v).([]float64), 1, 0, any(y).([]float64), 1)
	}
}

// matmulColumnsBody is y[j] = sum over l of v[l] * x[l][j].
func matmulColumnsBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[vectorArgs](c)
	x, v, y := kernels.Slice[T](c, a.X), kernels.Slice[T](c, a.V), kernels.Slice[T](c, a.Y)
	n, k, batch, chunk := a.N, a.K, a.Batch, a.Chunk
	splits := max(kernels.CeilDiv(k, chunk), 1)
	for i := range splits * batch {
		matrix, k0 := i%batch, i/batch*chunk
		x, v, y := x[matrix*k*n:], v[matrix*k:], y[i*n:(i+1)*n]
		if own, ok := c.BLAS().(kernels.Multiplier); ok && k > 0 &&
			multiply(own, kernels.Matrices[T]{TransA: true, M: n, N: 1, K: min(chunk, k-k0), A: x[k0*n:], LDA: n, B: v[k0:], LDB: 1, C: y}) {
			continue
		}
		kernels.Parallel(n, max(kernels.Grain/max(k, 1), 16), func(lo, hi int64) {
			y := y[lo:hi]
			clear(y)
			for l := k0; l < min(k0+chunk, k); l++ {
				axpy(c.BLAS(), v[l], x[l*n+lo:l*n+hi], y)
			}
		})
	}
}

// axpy is y += f * x. The BLAS does nothing where f is 0, but 0 x Inf is NaN.
func axpy[T kernels.Float](by kernels.BLAS, f T, x, y []T) {
	if f == 0 {
		for i, v := range x {
			y[i] += f * v
		}
		return
	}
	switch y := any(y).(type) {
	case []float32:
		by.Saxpy(len(y), float32(f), any(x).([]float32), 1, y, 1)
	case []float64:
		by.Daxpy(len(y), float64(f), any(x).([]float64), 1, y, 1)
	}
}

// matmulCombineBody is c[i] = sum over s of partial[s][i].
func matmulCombineBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[combineArgs](c)
	partial, out := kernels.Slice[T](c, x.Partial), kernels.Slice[T](c, x.C)
	for i := range out[:x.Count] {
		var sum T
		for s := range x.Splits {
			sum += partial[s*x.Count+int64(i)]
		}
		out[i] = sum
	}
}
