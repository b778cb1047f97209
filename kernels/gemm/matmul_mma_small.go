package gemm

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// small is a kernel of matmul_mma_small.cu, which rounds the operands of a float32 product and multiplies them in one launch. A block has
// four slices of A and B in shared memory, each line with 8 elements that are not used, and a tile of sums.
func small(name string, by kernels.Precision) candidate {
	kernel := func(name string) *kernels.Kernel {
		return own.Kernel("matmul_mma_small", "matmul_mma_small_"+name, smallBody(by))
	}
	return candidate{name: "small_" + name, able: limits{on: isHopper, also: rounds(by)},
		tile: tile{m: 32, n: 32, step: 32, threads: 128, cluster: 8, shared: 4 * (4*2*32*(32+8) + 32*32)}, kernel: kernel(name), joined: kernel("joined_" + name),
		cost: kernels.Measured[cost]{{Capability: 90, Policy: cost{join: 0.45, block: 0.29, step: 0.07, alone: 0.32}}}, cut: cutSmall, emit: emitSmall}
}

// rounds returns a limit to products that are rounded to a precision.
func rounds(by kernels.Precision) func(candidate, problem) bool {
	return func(_ candidate, x problem) bool { return x.Round == by }
}

// cutSmall returns the cut into parts of the least time by the model.
func cutSmall(c candidate, x problem) (best cut, ok bool) {
	const minPart = 16
	cost := c.cost.On(x.dev)
	for parts := int64(1); parts <= c.cluster && (parts == 1 || parts*minPart <= x.K); parts *= 2 {
		slices, busy := float64(kernels.CeilDiv(kernels.CeilDiv(x.K, parts), c.step)), float64(kernels.CeilDiv(c.count(x)*parts, x.sms())) // blocks of the busiest SM
		us := busy*cost.block + slices*max(cost.alone, busy*cost.step)
		if parts > 1 {
			us += cost.join
		}
		if !ok || us < best.us {
			best, ok = cut{parts: parts, us: us}, true
		}
	}
	return best, ok
}

func emitSmall(c candidate, p *kernels.Plan, x problem, d cut) {
	p.Op, p.Precision = p.Op+" in "+x.Round.String(), x.Round
	kernel, blocks, chunk := c.kernel, c.count(x), x.K
	if d.parts > 1 {
		kernel, blocks = c.joined, arith.RoundUp(blocks*d.parts, c.cluster)
		chunk = arith.RoundUp(kernels.CeilDiv(x.K, d.parts), 8) // rows of a part stay aligned
	}
	p.Launch(kernel, int(blocks), c.threads, x.arguments(out, chunk, d.parts).productArgs, x.epilogue.arguments(x.Dtype)).Shared = int(c.shared)
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
