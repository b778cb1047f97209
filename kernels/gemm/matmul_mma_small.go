package gemm

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
)

// Small products of float32 matrices in TF32 and BF16, by matmul_mma_small.cu: one launch rounds and multiplies.

// A block of the kernel computes a tile of smallTile x smallTile elements of C, of a part of k. A cluster adds up the parts of smallJoin blocks.
const (
	smallTile    = 32
	smallThreads = 128
	smallJoin    = 8
	smallTerms   = 32                                                       // of a piece of an operand in shared memory
	smallShared  = 4 * (4*2*smallTile*(smallTerms+8) + smallTile*smallTile) // bytes: four pieces of A and B, each line with 8 elements that are not used, and a tile of sums
)

// smallKernels and smallJoined, in clusters, are the kernels by precision.
var (
	smallKernels = [...]*kernels.Kernel{kernels.TF32: smallKernel("tf32", kernels.TF32), kernels.BF16: smallKernel("bf16", kernels.BF16)}
	smallJoined  = [...]*kernels.Kernel{kernels.TF32: smallKernel("joined_tf32", kernels.TF32), kernels.BF16: smallKernel("joined_bf16", kernels.BF16)}
)

func smallKernel(name string, by kernels.Precision) *kernels.Kernel {
	return own.Kernel("matmul_mma_small", "matmul_mma_small_"+name, smallBody(by))
}

// smallFits reports whether a device rounds the operands of a float32 product that is too small for reducedFits.
func smallFits(dev kernels.Device, by kernels.Precision, batch, m, n, k int64) bool {
	pol := smallPolicies.On(dev)
	terms := float64(batch) * float64(m) * float64(n) * float64(k)
	return by != kernels.FullPrecision && dev.Major != 0 && tensorCoresOf(dev) == hopperCores && min(m, n) >= pol.side && k >= pol.terms && k <= pol.most &&
		terms > 0 && terms < reducedPolicies.On(dev).products*float64(dev.SMs)
}

// appendMatMulSmall appends the launch of a small product.
func appendMatMulSmall(p *kernels.Plan, dev kernels.Device, c result, by kernels.Precision, x product) {
	appendSmallProduct(p, c, by, smallPolicies.On(dev).parts(dev, x), x)
}

// smallTiles returns the number of tiles of C.
func smallTiles(x product) int64 {
	return kernels.CeilDiv(x.m, smallTile) * kernels.CeilDiv(x.n, smallTile) * x.batch
}

// appendSmallProduct appends the launch of a product in that many parts of k, a power of 2 up to smallJoin.
func appendSmallProduct(p *kernels.Plan, c result, by kernels.Precision, parts int64, x product) {
	p.Op, p.Precision = p.Op+" in "+by.String(), by
	kernel, blocks, chunk := smallKernels[by], smallTiles(x), x.k
	if parts > 1 {
		kernel, blocks = smallJoined[by], kernels.CeilDiv(blocks*parts, smallJoin)*smallJoin
		chunk = kernels.CeilDiv(kernels.CeilDiv(x.k, parts), 8) * 8 // rows of a part stay aligned
	}
	p.Launch(kernel, int(blocks), smallThreads, x.arguments(out, chunk, parts).productArgs, c.epilogue.arguments(c.dt)).Shared = smallShared
}

// smallBody rounds the operands and multiplies them by the BLAS.
func smallBody(by kernels.Precision) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[productArgs](c)
		a, b := roundedCopy(by, kernels.Slice[float32](c, x.A)[:x.Batch*x.MatrixA]), roundedCopy(by, kernels.Slice[float32](c, x.B)[:x.Batch*x.MatrixB])
		gemms(c.BLAS(), x.TransA, x.TransB, x.M, x.N, x.K, a, x.LDA, x.MatrixA, b, x.LDB, x.MatrixB, kernels.Slice[float32](c, x.C), x.Batch, x.K, 1)
	}
}

// roundedCopy returns numbers rounded to a precision.
func roundedCopy(by kernels.Precision, x []float32) []float32 {
	to := align.Make[float32](int64(len(x)))
	kernels.Parallel(int64(len(x)), kernels.Grain, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			to[i] = by.Round(x[i])
		}
	})
	return to
}
