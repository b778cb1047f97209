package gemm

import (
	"cmp"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// matmulForm is a form of the tiled kernel, as matmul.cu compiles it for one element type.
type matmulForm struct {
	m, n, step     int64 // the tile of C of a block, and its step along k
	slices, stages int64
	threads        int
	join           int64           // blocks of a cluster, which add up splits of k; 0: there is no such kernel
	kernel, joined *kernels.Kernel // the latter in clusters
}

// tiled returns a form with its kernels.
func tiled[T kernels.Float](name string, m, n, step, slices, stages int64, threads int, join int64) matmulForm {
	f := matmulForm{m: m, n: n, step: step, slices: slices, stages: stages, threads: threads, join: join}
	f.kernel = own.Kernel("matmul", "matmul_"+name, matmulBody[T](false))
	if join > 0 {
		f.joined = own.Kernel("matmul", "matmul_joined_"+name, matmulBody[T](true))
	}
	return f
}

// Forms of the tiled kernel, by element type.
var (
	matmulLarge  = tiled[float32]("large_f32", 128, 128, 16, 1, 3, 256, 0)
	matmulMedium = [...]matmulForm{
		kernels.Float32: tiled[float32]("medium_f32", 64, 64, 32, 2, 3, 256, 2),
		kernels.Float64: tiled[float64]("medium_f64", 64, 64, 16, 2, 3, 256, 2),
	}
	matmulShort = [...]matmulForm{
		kernels.Float32: tiled[float32]("short_f32", 64, 64, 16, 1, 3, 128, 0),
		kernels.Float64: tiled[float64]("short_f64", 64, 64, 8, 1, 3, 128, 0),
	}
	matmulSmall = [...]matmulForm{
		kernels.Float32: tiled[float32]("small_f32", 32, 32, 16, 1, 3, 64, 8),
		kernels.Float64: tiled[float64]("small_f64", 32, 32, 16, 1, 3, 64, 8),
	}
	matmulThin = [...]matmulForm{
		kernels.Float32: tiled[float32]("thin_f32", 32, 16, 64, 8, 3, 256, 8),
		kernels.Float64: tiled[float64]("thin_f64", 32, 16, 32, 8, 3, 256, 8),
	}
)

// MatMul plans C = op(A) op(B) for each matrix of a batch, row-major:
//
//	c[i][j] = sum over l of opA[i][l] * opB[l][j]
//
// C is m x n. op(A) is m x k: A is stored so, or k x m with transA. op(B) is
// k x n: B is stored so, or n x k with transB. With k = 0, C is zero. A vector is a
// matrix of one column or one row.
func MatMul(dev kernels.Device, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) *kernels.Plan {
	return MatMulWith(dev, dt, batch, m, n, k, transA, transB, Epilogue{})
}

// MatMulWith plans [MatMul] with an epilogue.
func MatMulWith(dev kernels.Device, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool, e Epilogue) *kernels.Plan {
	p := newMatMul(dt, batch, m, n, k)
	defer appendEpilogue(p, e, dt, batch, m, n)
	if p.Out == 0 {
		return p
	}
	c := result{dt, batch, m, n, e}
	a, b := kernels.In(0), kernels.In(1)
	switch {
	case n == 1:
		appendMatVec(p, dev, c, a, b, m, k, transA, false)
	case m == 1:
		appendMatVec(p, dev, c, b, a, n, k, !transB, true)
	default:
		appendMatMul(p, dev, c, k, transA, transB)
	}
	return p
}

// result is the C of a plan: matrices of a batch, m x n each, and the epilogue applied to their elements.
type result struct {
	dt          kernels.Dtype
	batch, m, n int64
	epilogue    Epilogue
}

func (c result) count() int64 { return c.batch * c.m * c.n }

// newMatMul returns the plan of a batch of products without its launches.
func newMatMul(dt kernels.Dtype, batch, m, n, k int64) *kernels.Plan {
	op := ""
	if batch != 1 {
		op = fmt.Sprintf("%d x ", batch)
	}
	return &kernels.Plan{
		Op:     fmt.Sprintf("matmul_%v(%s%dx%d * %dx%d)", dt, op, m, k, k, n),
		Inputs: []int64{batch * m * k * dt.Size(), batch * k * n * dt.Size()},
		Out:    batch * m * n * dt.Size(),
		Flops:  2 * batch * m * n * k,
	}
}

// appendMatMul appends the launches of a product of two matrices.
func appendMatMul(p *kernels.Plan, dev kernels.Device, c result, k int64, transA, transB bool) {
	if k <= 1 { // a column is a row: take the form whose rows are long
		transA, transB = true, false
	}
	x := product{kernels.In(0), kernels.In(1), c.batch, c.m, c.n, k, transA, transB, false}
	if appendBand(p, dev, c, x) {
		return
	}
	if c.dt == kernels.Float32 && planesFit(dev, c.batch, c.m, c.n, k) {
		appendMatMulPlanes(p, dev, c, k, transA, transB, [2]*kernels.Ref{})
		return
	}
	if d, ok := doublePolicies.On(dev).cut(dev, c, k); ok {
		appendDouble(p, dev, d, c, k, transA, transB)
		return
	}
	if appendMMADouble(p, dev, c, k, transA, transB) {
		return
	}
	if appendNarrow(p, dev, c, x) || appendFewTerms(p, dev, c, x) || appendStrip(p, dev, c, x) {
		return
	}
	form, pol := matmulPolicies.On(dev).form(dev, c.dt, x)
	if form.n < form.m && c.m < c.n { // C is narrow the other way: its transpose
		x = x.transposed()
	}
	appendTiles(p, dev, c, form, pol, x)
}

// product is op(A) op(B), written transposed with transC.
type product struct {
	a, b                   kernels.Ref
	batch, m, n, k         int64
	transA, transB, transC bool
}

// transposed returns the product that computes the transpose of C.
func (x product) transposed() product {
	return product{x.b, x.a, x.batch, x.n, x.m, x.k, !x.transB, !x.transA, !x.transC}
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

func (x product) arguments(to kernels.Ref, chunk, splits int64) tileArgs {
	lda, ldb := x.k, x.n
	if x.transA {
		lda = x.m
	}
	if x.transB {
		ldb = x.k
	}
	return tileArgs{productArgs{x.a, x.b, to, x.m, x.n, x.k, lda, ldb, x.m * x.k, x.k * x.n, x.batch, chunk, splits, x.transA, x.transB}, x.transC}
}

// appendTiles appends the launches of a form of the tiled kernel: one, or splits of k that a
// cluster adds up, or splits and the launch that adds them up.
func appendTiles(p *kernels.Plan, dev kernels.Device, c result, f matmulForm, pol splitPolicy, x product) {
	tiles := f.count(x.batch, x.m, x.n)
	launch := func(k *kernels.Kernel, to kernels.Ref, e Epilogue, blocks, splits, chunk, shared int64) {
		if x.transC {
			e = e.transposed()
		}
		p.Launch(k, int(blocks), f.threads, x.arguments(to, chunk, splits), e.arguments(c.dt)).Shared = int(shared)
	}
	if splits := pol.joined(dev, tiles, x.k, f.join); splits > 1 {
		launch(f.joined, out, c.epilogue, kernels.CeilDiv(tiles*splits, f.join)*f.join, splits, kernels.CeilDiv(x.k, splits), f.shared(c.dt, false)+f.m*f.n*c.dt.Size())
		return
	}
	appendSplit(p, dev, c, tiles, pol, x.k, func(to kernels.Ref, e Epilogue, splits, chunk int64) {
		launch(f.kernel, to, e, tiles*splits, splits, chunk, f.shared(c.dt, e.chain != 0 || c.n%(16/c.dt.Size()) != 0))
	})
}

// count returns the number of tiles of a batch of products of m x n elements.
func (f matmulForm) count(batch, m, n int64) int64 {
	return kernels.CeilDiv(m, f.m) * kernels.CeilDiv(n, f.n) * batch
}

// shared returns the dynamic shared memory of a block, in bytes: stages of pieces of A and
// B, whose rows along C are followed by 16 unused bytes; in their place at the end, if
// there are several slices or steps to take on sums or rows of C begin anywhere, a tile of sums for each.
func (f matmulForm) shared(dt kernels.Dtype, finished bool) int64 {
	pad := 16 / dt.Size()
	n := f.stages * f.step * (f.m + pad + f.n + pad)
	if f.slices > 1 || finished {
		n = max(n, f.slices*f.m*f.n)
	}
	return n * dt.Size()
}

// mostTerms is the most terms of a split: the tiled kernel counts them in 32 bits.
const mostTerms = 1 << 30

// appendSplit cuts k into as many splits as pol wants on a GPU for a number of blocks, and calls
// launch once: to is the place of the sums, e the epilogue applied to them, chunk the terms of a
// split. Several splits leave partial sums in scratch memory, [splits][count of C], from which a
// second launch makes C, adding them in order.
func appendSplit(p *kernels.Plan, dev kernels.Device, c result, blocks int64, pol splitPolicy, k int64, launch func(to kernels.Ref, e Epilogue, splits, chunk int64)) {
	splits := max(pol.splits(dev, blocks, k), kernels.CeilDiv(k, mostTerms))
	unit := cmp.Or(pol.unit, 64) // rows of a split stay aligned
	chunk := max(arith.RoundUp(kernels.CeilDiv(k, splits), unit), unit)
	if splits = max(kernels.CeilDiv(k, chunk), 1); splits == 1 {
		launch(out, c.epilogue, 1, chunk)
		return
	}
	partial := p.Workspace(splits * c.count() * c.dt.Size())
	launch(partial, Epilogue{}, splits, chunk)
	appendCombine(p, dev, c, partial, splits)
}

// matmulBody is a kernel with the arguments of a product, by the BLAS. Sums that no other launch adds up
// are whole: splits that a cluster joins are one here.
func matmulBody[T kernels.Float](whole bool) func(kernels.Call) {
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
