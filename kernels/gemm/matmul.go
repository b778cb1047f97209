package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// typed returns the element type T, and a candidate's name with its suffix.
func typed[T kernels.Float](name string) (kernels.Dtype, string) {
	if _, is := any(T(0)).(float32); is {
		return kernels.Float32, name + "_f32"
	}
	return kernels.Float64, name + "_f64"
}

// tiled returns a kernel of matmul.cu, as it is compiled there for one element type.
func tiled[T kernels.Float](name string, t tile, split splitPolicy) candidate {
	dt, name := typed[T](name)
	c := candidate{name: name, dtype: dt, strided: true, orient: longRows, tile: t, split: split, cut: cutTiles, emit: emitTiles}
	if t.n < t.m { // C is narrow one way or the other
		c.orient = tall
	}
	if c.kernel = own.Kernel("matmul", "matmul_"+name, productBody[T](false)); t.cluster > 0 {
		c.joined = own.Kernel("matmul", "matmul_joined_"+name, productBody[T](true))
	}
	return c
}

// productArgs are the first arguments of kernels of products: the operands, their sizes and strides in elements, and the splits of K.
type productArgs struct {
	A, B, C                                           kernels.Ref
	M, N, K, LDA, LDB, MatrixA, MatrixB, Batch, Chunk int64
	Splits                                            int64 `arg:"int32"` // or tiles, rows or matrices of a block
	TransA, TransB                                    bool
}

// tileArgs are those of kernels that can write C transposed.
type tileArgs struct {
	productArgs
	TransC bool
}

func (x problem) arguments(to kernels.Ref, chunk, splits int64) tileArgs {
	lda, matrixA := x.A.strides(x.M, x.K)
	ldb, matrixB := x.B.strides(x.K, x.N)
	return tileArgs{productArgs{x.a, x.b, to, x.M, x.N, x.K, lda, ldb, matrixA, matrixB, x.Batch, chunk, splits, x.A.Trans, x.B.Trans}, x.transC}
}

// cutTiles cuts K in splits that a cluster adds up, or that another launch does.
func cutTiles(c candidate, x problem) (cut, bool) {
	tiles := c.count(x)
	if parts := c.split.parts(x, tiles, c.cluster); parts > 1 {
		return cut{parts: parts, chunk: kernels.CeilDiv(x.K, parts), blocks: arith.RoundUp(tiles*parts, c.cluster)}, true
	}
	return c.split.cut(x, tiles), true
}

func emitTiles(c candidate, p *kernels.Plan, x problem, d cut) {
	if d.parts > 1 {
		l := p.Launch(c.joined, int(d.blocks), c.threads, x.arguments(out, d.chunk, d.parts), x.epilogue.arguments(x.Dtype))
		l.Shared = int(c.bytes(x.size(), false) + c.m*c.n*x.size())
		return
	}
	n := x.N
	if x.transC {
		n = x.M
	}
	x.launch(p, d, func(to kernels.Ref, e epilogueArgs) {
		p.Launch(c.kernel, int(d.blocks), c.threads, x.arguments(to, d.chunk, d.partials), e).Shared = int(c.bytes(x.size(), e.Steps != 0 || n%(16/x.size()) != 0))
	})
}

// bytes returns the dynamic shared memory of a block of matmul.cu: stages of slices of A and B, whose rows along C are followed by 16
// unused bytes; in their place at the end, if there are several groups of threads or steps to take on sums or rows of C begin anywhere, a
// tile of sums for each group.
func (t tile) bytes(size int64, finished bool) int64 {
	pad := 16 / size
	n := t.stages * t.step * (t.m + pad + t.n + pad)
	if t.slices > 1 || finished {
		n = max(n, t.slices*t.m*t.n)
	}
	return n * size
}

// holds reports whether an SM has the shared memory of a block of matmul.cu.
func holds(c candidate, x problem) bool { return int64(x.dev.SharedOptin) >= c.bytes(x.size(), true) }

// productBody multiplies by the BLAS. Sums that no other launch adds up are whole: splits that a cluster adds up are one here.
func productBody[T kernels.Float](whole bool) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[tileArgs](c)
		if x.TransC {
			x.A, x.B, x.M, x.N, x.LDA, x.LDB, x.MatrixA, x.MatrixB, x.TransA, x.TransB = x.B, x.A, x.N, x.M, x.LDB, x.LDA, x.MatrixB, x.MatrixA, !x.TransB, !x.TransA
		}
		if whole {
			x.Splits, x.Chunk = 1, x.K
		}
		gemms(c.BLAS(), x.TransA, x.TransB, x.M, x.N, x.K, kernels.Slice[T](c, x.A), x.LDA, x.MatrixA, kernels.Slice[T](c, x.B), x.LDB, x.MatrixB,
			kernels.Slice[T](c, x.C), x.Batch, x.Chunk, x.Splits)
	}
}
