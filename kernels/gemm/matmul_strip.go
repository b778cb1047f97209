package gemm

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// skinnyThreads is the block of the kernels of matmul_strip.cu and matmul_narrow.cu.
const skinnyThreads = 128

// skinny is a kernel for a C of few rows, whose second operand is the large one; resident are the blocks of an SM.
func skinny[T kernels.Float](name string, minRows, rows, columns, resident int64, able limits) *candidate {
	dt, name := typed[T](name)
	able.side, able.k.from = span{minRows, rows}, max(able.k.from, 1)
	return &candidate{name: name, dtype: dt, apart: true, orient: wide, able: able, tile: tile{m: rows, n: columns, threads: skinnyThreads},
		split: splitPolicy{blocksPerSM: resident, minK: 64, roundToNearest: true}, cut: cutSkinny, args: skinnyArguments}
}

// strip is a kernel of matmul_strip.cu, whose threads compute that many columns of C each.
func strip[T kernels.Float](name string, minRows, rows, each, resident int64, on func(kernels.Device) bool, countSplits int64) *candidate {
	c := skinny[T](name, minRows, rows, each*skinnyThreads, resident, limits{on: on, straight: true})
	c.copies, c.shares, c.able.also = elements, true, func(_ *candidate, x *problem) bool { return !x.B.Shared }
	c.split.minBlocksPerSM, c.split.countSplitsBytesPerSM = 0.5, countSplits
	c.kernel = own.Kernel("matmul_strip", "matmul_"+c.name, stripBody[T])
	return c
}

// narrow is a kernel of matmul_narrow.cu, whose C is the transpose of this one. Its threads compute that many rows of it each.
func narrow[T kernels.Float](name string, minRows, rows, each, stages, resident int64) *candidate {
	const slice, aligned = 9 * 16, 4 // bytes of a row in a stage, with the pad; elements of K before those of a step
	size, k := int64(unsafe.Sizeof(T(0))), int64(256)
	if rows*size > 64 {
		k = 128
	}
	shared := max(stages*slice*each*skinnyThreads+(k+aligned)*rows*size, each*skinnyThreads*(rows|1)*size)
	c := skinny[T](name, minRows, rows, each*skinnyThreads, resident, limits{on: isHopper, transB: true, k: span{from: 40},
		also: func(_ *candidate, x *problem) bool { return int64(x.dev.SharedOptin) >= shared }})
	c.split.minBlocksPerSM, c.split.countSplitsBytesPerSM = 1, 1<<18
	c.shared, c.kernel = shared, own.Kernel("matmul_narrow", "matmul_"+c.name, narrowBody[T])
	return c
}

// cutSkinny splits K so that all blocks are resident at once, or twice as often if the splits stay long. It returns false if there are too few
// blocks.
func cutSkinny(c *candidate, x *problem) (cut, bool) {
	const doubleMinK = 1024 // of a split
	s, blocks := c.split, kernels.CeilDiv(x.N, c.n)*x.Batch
	if x.K/(2*s.splits(x, blocks)) >= doubleMinK {
		s.blocksPerSM *= 2
	}
	enough := blocks
	if x.large() >= s.countSplitsBytesPerSM*x.sms() {
		enough *= s.splits(x, blocks)
	}
	return s.cut(x, blocks), x.N >= c.n/2 && float64(enough) >= s.minBlocksPerSM*float64(x.sms())
}

// full reports whether three quarters of the blocks' columns are columns of C.
func full(c *candidate, x *problem) bool { return 4*x.N >= 3*kernels.CeilDiv(x.N, c.n)*c.n }

func skinnyArguments(_ *candidate, x *problem, d cut, to kernels.Ref) any {
	_, matrix := x.A.strides(x.M, x.K)
	args := stripArgs{A: x.a, B: x.b, C: to, M: x.M, N: x.N, K: x.K, RowV: x.K, TermV: 1, MatrixV: matrix, RowC: x.N, ColumnC: 1, Batch: x.Batch, Chunk: d.chunk}
	if x.A.Trans {
		args.RowV, args.TermV = 1, x.M
	}
	if x.transC {
		args.RowC, args.ColumnC = 1, x.M
	}
	if x.B.Trans {
		args.A, args.B, args.M, args.N, args.RowC, args.ColumnC = x.b, x.a, x.N, x.M, args.ColumnC, args.RowC
	}
	return args
}

// stripArgs are the arguments of the kernels: the small operand has strides, and so has C.
type stripArgs struct {
	A, B, C              kernels.Ref
	M, N, K              int64
	RowV, TermV, MatrixV int64
	RowC, ColumnC        int64
	Batch, Chunk         int64
}

// stripBody is C = op(A) B of few rows of A, by the BLAS.
func stripBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[stripArgs](c)
	denseBody[T](c, denseArgs{x.A, x.B, x.C, x.M, x.N, x.K, x.TermV != 1, false}, x.MatrixV == 0, x.ColumnC != 1, x.Batch, x.Chunk)
}

// narrowBody is C = A op(B) of few columns of B, by the BLAS.
func narrowBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[stripArgs](c)
	denseBody[T](c, denseArgs{x.B, x.A, x.C, x.N, x.M, x.K, x.TermV != 1, true}, false, x.RowC != 1, x.Batch, x.Chunk)
}
