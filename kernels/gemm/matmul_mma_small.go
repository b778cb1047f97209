package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// small is a kernel of matmul_mma_small.cu, which rounds the operands of a float32 product and multiplies them in one launch. A block has
// four slices of A and B in shared memory, each line with 8 elements that are not used, and a tile of sums.
func small(name string, by kernels.Precision) *candidate {
	kernel := func(name string) *kernels.Kernel {
		return own.Kernel("matmul_mma_small", "matmul_mma_small_"+name, smallBody(by))
	}
	return &candidate{name: "small_" + name, shares: true, able: limits{on: isHopper, also: rounds(by)},
		tile: tile{m: 32, n: 32, step: 32, threads: 128, cluster: 8, shared: 4 * (4*2*32*(32+8) + 32*32)}, kernel: kernel(name), joined: kernel("joined_" + name),
		all: cutsSmall, rounds: true,
		args: func(_ *candidate, x *problem, d cut, to kernels.Ref) any {
			return x.arguments(to, d.chunk, d.parts).productArgs
		}}
}

// rounds returns a limit to products that are rounded to a precision.
func rounds(by kernels.Precision) func(*candidate, *problem) bool {
	return func(_ *candidate, x *problem) bool { return x.Round == by }
}

// cutsSmall lists the cuts into parts.
func cutsSmall(c *candidate, x *problem, list []cut) []cut {
	const minPart = 16
	for parts := int64(1); parts <= c.cluster && (parts == 1 || parts*minPart <= x.K); parts *= 2 {
		list = append(list, c.inParts(x, parts))
	}
	return list
}

// inParts returns the cut into so many parts.
func (c *candidate) inParts(x *problem, parts int64) cut {
	if parts == 1 {
		return cut{parts: 1, chunk: x.K, blocks: c.count(x)}
	}
	return cut{parts: parts, chunk: arith.RoundUp(kernels.CeilDiv(x.K, parts), 8), blocks: arith.RoundUp(c.count(x)*parts, c.cluster)} // rows of a part stay aligned
}

// smallBody rounds the operands and multiplies them by the BLAS.
func smallBody(by kernels.Precision) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[productArgs](c)
		a, b := dense(kernels.Slice[float32](c, x.A), max(x.Batch*x.MatrixA, x.M*x.K), 1, 1, by.Round), dense(kernels.Slice[float32](c, x.B), max(x.Batch*x.MatrixB, x.K*x.N), 1, 1, by.Round)
		gemms(c.BLAS(), x.TransA, x.TransB, x.M, x.N, x.K, a, x.LDA, x.MatrixA, b, x.LDB, x.MatrixB, kernels.Slice[float32](c, x.C), x.Batch, x.K, 1)
	}
}
