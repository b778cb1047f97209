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
func tiled[T kernels.Float](name string, t tile, split splitPolicy) *candidate {
	dt, name := typed[T](name)
	c := &candidate{name: name, dtype: dt, strided: true, shares: true, copies: acrossK, orient: longRows, tile: t, split: split, cut: cutTiles, args: splitArguments}
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

func (x *problem) arguments(to kernels.Ref, chunk, splits int64) tileArgs {
	lda, matrixA := x.A.strides(x.M, x.K)
	ldb, matrixB := x.B.strides(x.K, x.N)
	return tileArgs{productArgs{x.a, x.b, to, x.M, x.N, x.K, lda, ldb, matrixA, matrixB, x.Batch, chunk, splits, x.A.Trans, x.B.Trans}, x.transC}
}

// splitArguments and lowKArguments are the arguments of kernels that split K, and of those that sum it in one go.
func splitArguments(_ *candidate, x *problem, d cut, to kernels.Ref) any {
	return x.arguments(to, d.chunk, max(d.partials, d.parts))
}

func lowKArguments(_ *candidate, x *problem, d cut, to kernels.Ref) any {
	return x.arguments(to, x.K, max(d.each, 1))
}

// cutTiles cuts K in splits that a cluster adds up, or that another launch does.
func cutTiles(c *candidate, x *problem) (cut, bool) {
	tiles, n := c.count(x), x.N
	if parts := c.split.parts(x, tiles, c.cluster); parts > 1 {
		return cut{parts: parts, chunk: kernels.CeilDiv(x.K, parts), blocks: arith.RoundUp(tiles*parts, c.cluster), shared: c.bytes(x.size(), false) + c.m*c.n*x.size()}, true
	}
	if x.transC {
		n = x.M
	}
	d := c.split.cut(x, tiles)
	d.shared = c.bytes(x.size(), d.partials == 1 && x.HasEpilogue() || n%(16/x.size()) != 0)
	return d, true
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
func holds(c *candidate, x *problem) bool { return int64(x.dev.SharedOptin) >= c.bytes(x.size(), true) }

// productBody multiplies by the BLAS. Sums that no other launch adds up are whole: splits that a cluster adds up are one here.
func productBody[T kernels.Float](whole bool) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[tileArgs](c)
		if whole {
			x.Splits, x.Chunk = 1, x.K
		}
		multiplyAll[T](c, x)
	}
}

func multiplyAll[T kernels.Float](c kernels.Call, x tileArgs) {
	if x.TransC {
		x.A, x.B, x.M, x.N, x.LDA, x.LDB, x.MatrixA, x.MatrixB, x.TransA, x.TransB = x.B, x.A, x.N, x.M, x.LDB, x.LDA, x.MatrixB, x.MatrixA, !x.TransB, !x.TransA
	}
	gemms(c.BLAS(), x.TransA, x.TransB, x.M, x.N, x.K, kernels.Slice[T](c, x.A), x.LDA, x.MatrixA, kernels.Slice[T](c, x.B), x.LDB, x.MatrixB,
		kernels.Slice[T](c, x.C), x.Batch, x.Chunk, x.Splits)
}
