package gemm

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"gonum.org/v1/gonum/blas"
)

// ofVectors returns a kernel of matmul_vector.cu for one element type.
func ofVectors[T kernels.Float](name string, split splitPolicy, body func(kernels.Call), cutter func(*candidate, *problem) (cut, bool)) *candidate {
	dt, name := typed[T](name)
	return &candidate{name: name, dtype: dt, orient: column, able: limits{side: span{to: 1}}, split: split, kernel: own.Kernel("matmul_vector", "matmul_"+name, body), cut: cutter, args: vectorArguments, tile: tile{threads: vectorThreads}}
}

// combineKernel and joinKernel add partial sums up.
var (
	combineKernel = own.Pair("matmul_vector", "matmul_combine", combineBody[float32], combineBody[float64])
	joinKernel    = own.Pair("matmul_vector", "matmul_join", combineBody[float32], combineBody[float64])
)

// vectorThreads is the block of the kernels of matmul_vector.cu, rowThreads that of rows, wideThreads that of joined columns of large matrices.
const (
	vectorThreads = 256
	rowThreads    = 128
	wideThreads   = 512
)

// alignmentPeriod returns how many rows of n elements lie between two that begin at the same place within 16 bytes.
func alignmentPeriod(size, n int64) int64 {
	w := 16 / size
	switch {
	case n%w == 0:
		return 1
	case n%2 == 0:
		return w / 2
	}
	return w
}

// strips returns the strips of columns that blocks take of a matrix that is stored transposed.
func strips(x *problem) int64 {
	w := 16 / x.size()
	width := 64 * w
	if x.M%w != 0 {
		width -= w
	}
	return kernels.CeilDiv(x.M, width) * x.Batch
}

func cutColumns(c *candidate, x *problem) (cut, bool) { return c.split.cut(x, strips(x)), true }

// maxFlatColumns bounds the columns of a matrix that a block of flat loads as one array.
const maxFlatColumns = 256

// joinedShare is the share of the SMs that have blocks of clusters of 8, where an SM has several: 4 x 132 places have 62 clusters.
//
// H200, us, clusters of flat   49    62    63    65    66
// 129 x 164293                       27.9        39.9
// 136 x 63716                              15.8
// 35 x 375820                  18.1                    21.9
const joinedShare = 0.94

// cutsFlat appends the cuts into the blocks of a cluster, of each size, and into partial sums of blocks or clusters.
func cutsFlat(c *candidate, x *problem, list []cut) []cut {
	const minRows, unit, blocksPerSM = 32, 16, 8 // of a block; rows of a multiple of 16 bytes
	into := func(partials, parts int64) {
		if n := partials * parts; x.K <= maxChunk && (n == 1 || n*minRows <= x.K) {
			chunk := max(arith.RoundUp(kernels.CeilDiv(x.K, n), unit), unit)
			partials = max(kernels.CeilDiv(x.K, chunk*parts), 1)
			list = append(list, cut{partials: partials, parts: parts, chunk: chunk, blocks: partials * parts * x.Batch})
		}
	}
	for parts := int64(1); parts <= c.cluster && (parts == 1 || x.dev.HasClusters()); parts *= 2 {
		into(1, parts)
		if parts > 1 && parts < c.cluster {
			continue
		}
		counts, tried := splitCounts(x, x.Batch*parts, blocksPerSM)
		most := joinedShare * float64(x.sms()) / float64(x.Batch*parts) // clusters with a block on each SM
		for _, n := range counts[1:tried] {
			if parts == 1 || float64(n) < most {
				into(n, parts)
			}
		}
		for waves := 1.; parts > 1 && waves <= 4 && waves*most >= 2; waves++ {
			into(int64(waves*most), parts)
		}
	}
	return list
}

// cutShortRows gives a row a group of lanes.
func cutShortRows(_ *candidate, x *problem) (cut, bool) {
	lanes := int64(1)
	for ; lanes < 32 && lanes*4 < x.K; lanes *= 2 {
	}
	return cut{each: lanes, blocks: kernels.CeilDiv(x.M*x.Batch*lanes, vectorThreads)}, true
}

// cutRows gives a row 8 to 128 threads, each of which has two vectors of 16 bytes of the row, or if there are enough rows to fill the device four, or eight on 9.0.
//
// H100, time over the best of these, geometric mean   2      4      8
// up to 10 rows an SM                                 1.00   1.15   1.39
// 10 to 30                                            1.12   1.11   1.10
// 30 to 256                                           1.19   1.09   1.03
// from 256 rows an SM on                              1.35   1.05   1.00
//
// H200, us, rows that are not aligned                 2      4      8      16
// 3603 x 765                                          8.0           5.9    8.4
// 8379 x 297                                                 6.8    6.2    7.5
// 31687 x 543                                                30.7   22.6   24.8
// 12535 x 1723                                               28.0   25.0   23.5
// 3001 x 1001, float64                                9.1           7.9    8.7
// 11003 x 655, float64                                       23.2   18.4   17.6
func cutRows(c *candidate, x *problem) (cut, bool) {
	const fewRowsPerSM, fewUnalignedPerSM, longBytes = 10, 30, 2048
	each, few, bytes := int64(4), int64(fewRowsPerSM), x.K*x.size()
	if isHopper(x.dev) {
		each = 8
	}
	if bytes%16 != 0 && (bytes < longBytes || !isHopper(x.dev)) {
		few = fewUnalignedPerSM
	}
	if x.M*x.Batch <= few*x.sms() {
		each = 2
	}
	return cutRowsBy(c, x, each), true
}

// cutLongRows gives a row 8 to 128 threads, each of which has eight vectors of 16 bytes of the row, or sixteen if there are very many rows.
//
// H200, us, m x k   4     8     16
// 4096 x 1024       5.90  4.86  5.24
// 2048 x 2048       6.09  5.03  5.49
// 16384 x 1024      17.9  15.5  15.7
// 50304 x 768       48.7  36.9  33.4
func cutLongRows(c *candidate, x *problem) (cut, bool) {
	const manyRowsPerSM = 256
	each := int64(8)
	if x.M*x.Batch >= manyRowsPerSM*x.sms() {
		each = 16
	}
	return cutRowsBy(c, x, each), true
}

// cutRowsBy gives a thread `each` vectors of 16 bytes of a row. The blocks of a cluster add up splits of as many as it may have.
func cutRowsBy(c *candidate, x *problem, each int64) cut {
	const maxRowThreads, fewThreadsPerSM = 512, 1024
	threads := min(max(arith.Pow2(kernels.CeilDiv(kernels.CeilDiv(x.K*x.size(), 16), each)), 8), rowThreads)
	d := c.split.cut(x, kernels.CeilDiv(x.M*x.Batch, rowThreads/threads))
	d.each = threads
	if n := d.partials; n > 1 && n <= c.cluster && arith.Pow2(n) == n && threads == rowThreads && x.K <= maxChunk && isHopper(x.dev) {
		d.parts, d.partials = n, 1
		for ; d.each < maxRowThreads && x.M*x.Batch*n*d.each < fewThreadsPerSM*x.sms() && d.chunk*x.size() >= 4*16*d.each; d.each *= 2 {
		}
		d.threads = d.each
	}
	return d
}

// cutJoinedColumns divides the rows among the 8 blocks of a cluster, which have a strip of columns: as many as the candidate's n times 16 bytes have, one vector less where rows
// begin anywhere within 16 bytes.
func cutJoinedColumns(c *candidate, x *problem) (cut, bool) { return cutJoined(c, x, c.cluster) }

func cutJoined(c *candidate, x *problem, cluster int64) (cut, bool) {
	vectors := c.n
	if x.M*x.size()%16 != 0 {
		vectors--
	}
	return cut{parts: cluster, each: c.n, blocks: kernels.CeilDiv(x.M*x.size(), 16*vectors) * x.Batch * cluster}, x.K <= maxChunk
}

// allJoinedColumns appends the cuts for clusters of each size that has a row for each group of threads, and blocks that all run at once.
func allJoinedColumns(c *candidate, x *problem, list []cut) []cut {
	const threadsPerSM = 1280 // registers of five blocks of 256 threads
	for n := int64(1); n <= c.cluster && (n == 1 || n*int64(c.threads) <= x.K*c.n); n *= 2 {
		if d, ok := cutJoined(c, x, n); ok && (n == 1 || d.blocks*int64(c.threads) <= threadsPerSM*x.sms()) {
			list = append(list, d)
		}
	}
	return list
}

func flatArguments(_ *candidate, x *problem, d cut, to kernels.Ref) any {
	return rowsArgs{vectorArgs{x.a, x.b, to, x.M, x.K, x.Batch, d.chunk}, max(d.parts, 1)}
}

func vectorArguments(_ *candidate, x *problem, d cut, to kernels.Ref) any {
	switch {
	case d.each > 0 && d.chunk > 0:
		return partsArgs{rowsArgs{vectorArgs{x.a, x.b, to, x.M, x.K, x.Batch, d.chunk}, d.each}, max(d.parts, 1)}
	case d.parts > 0:
		return rowsArgs{vectorArgs{x.a, x.b, to, x.M, x.K, x.Batch, int32(d.each)}, d.parts}
	case d.each > 0:
		return vectorArgs{x.a, x.b, to, x.M, x.K, x.Batch, int32(d.each)}
	}
	return vectorArgs{x.a, x.b, to, x.M, x.K, x.Batch, d.chunk}
}

// combine appends the launch that adds partial sums up, [partials][elements of C], and makes C of them.
func (x *problem) combine(p *kernels.Plan, partial kernels.Ref, partials int64) {
	as := x.transposedIf(x.transC)
	x = &as
	args := combineArgs{partial, x.c, x.elements(), partials, x.M, x.N, x.epilogue.arguments(x.Dtype)}
	if partials >= warpReduceMinPartials && x.elements() <= warpReduceMaxElements {
		const elements, threads = 32, 1024
		p.Launch(joinKernel[x.Dtype], int(kernels.CeilDiv(x.elements(), elements)), threads, args)
		return
	}
	p.LaunchElements(combineKernel[x.Dtype], x.elements(), args)
}

// vectorArgs are the first arguments of the kernels of a matrix X and a vector V: N sums of K terms.
type vectorArgs struct {
	X, V, Y     kernels.Ref
	N, K, Batch int64
	Chunk       any // of a split, an int64; the lanes of a short row or of a strip, an int32
}

// rowsArgs are those of joined columns and flat, with the blocks of a cluster, and partsArgs those of rows, with the threads of a row and the blocks of a cluster.
type (
	rowsArgs struct {
		vectorArgs
		Count int64 `arg:"int32"`
	}
	partsArgs struct {
		rowsArgs
		Parts int64 `arg:"int32"`
	}
)

// combineArgs are the arguments of the kernels that add splits up.
type combineArgs struct {
	Partial, C          kernels.Ref
	Count, Splits, M, N int64
	epilogueArgs
}

// shortRowsBody is y[r] = sum over l of x[r][l] * v[l], rowsBody the same for each split.
func shortRowsBody[T kernels.Float](c kernels.Call) {
	rowsInParts[T](c, max(kernels.Args[vectorArgs](c).K, 1))
}

func rowsBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[partsArgs](c)
	rowsInParts[T](c, a.Chunk.(int64)*a.Parts)
}

func rowsInParts[T kernels.Float](c kernels.Call, chunk int64) {
	a := kernels.Args[vectorArgs](c)
	x, v, y := kernels.Slice[T](c, a.X), align.Vector(kernels.Slice[T](c, a.V)), kernels.Slice[T](c, a.Y)
	rows, k := a.N, a.K
	kernels.Parallel(max(kernels.CeilDiv(k, chunk), 1)*a.Batch, max(kernels.Grain/max(rows*min(k, chunk), 1), 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			matrix, k0 := i%a.Batch, i/a.Batch*chunk
			matvec(c.BLAS(), rows, min(chunk, k-k0), x[matrix*rows*k+k0:], k, v[matrix*k+k0:], y[i*rows:(i+1)*rows])
		}
	})
}

// matvec is y[r] = sum over l of x[r*ld+l] * v[l], for all rows r and terms l. gonum's BLAS takes float64 four rows at a time, so a goroutine starts
// at a multiple of four: then the order of a sum does not depend on the goroutines.
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
		switch x := any(x[first*ld:]).(type) {
		case []float32:
			v, y := any(v).([]float32), any(y).([]float32)
			for r := first; r < last; r++ {
				y[r] = by.Sdot(int(terms), x[(r-first)*ld:], 1, v, 1)
			}
		case []float64:
			by.Dgemv(blas.NoTrans, int(last-first), int(terms), 1, x, int(ld), any(v).([]float64), 1, 0, any(y[first:]).([]float64), 1)
		}
	})
}

// columnsBody is y[j] = sum over l of v[l] * x[l][j] for each split, joinedColumnsBody for all of K.
func columnsBody[T kernels.Float](c kernels.Call) {
	columnsOf[T](c, kernels.Args[vectorArgs](c).Chunk.(int64))
}

func flatBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[rowsArgs](c)
	columnsOf[T](c, a.Chunk.(int64)*a.Count)
}

func joinedColumnsBody[T kernels.Float](c kernels.Call) {
	columnsOf[T](c, max(kernels.Args[vectorArgs](c).K, 1))
}

func columnsOf[T kernels.Float](c kernels.Call, chunk int64) {
	a := kernels.Args[vectorArgs](c)
	x, v, y := kernels.Slice[T](c, a.X), kernels.Slice[T](c, a.V), kernels.Slice[T](c, a.Y)
	n, k, batch := a.N, a.K, a.Batch
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

// combineBody is c[i] = sum over s of partial[s][i].
func combineBody[T kernels.Float](c kernels.Call) {
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
