package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
)

// lowK returns a kernel for few terms, of a source for one element type. It has no epilogue: with one the unsliced tiles compute the same bits.
func lowK[T kernels.Float](source, name string, t tile, k span, orient func(problem) problem, cutter func(*candidate, *problem) (cut, bool)) *candidate {
	dt, name := typed[T](name)
	return &candidate{name: name, dtype: dt, shares: t.m > 0, orient: orient, able: limits{on: isGPU, plain: true, elements: span{to: maxChunk}, k: k}, tile: t,
		kernel: own.Kernel(source, "matmul_"+name, productBody[T](true)), cut: cutter, args: lowKArguments}
}

// cutOuter cuts a C of long rows into rows of a warp, fewer where the device would be idle.
func cutOuter(c *candidate, x *problem) (cut, bool) {
	const warps = 8
	step, w := alignmentPeriod(x.size(), x.N), 16/x.size()
	rows, cols := c.m, x.N
	if x.B.Trans && x.K == 4 {
		rows = 32 // lanes read B with strides
	}
	if step > 1 {
		cols += w - 1
	}
	jobs := func(rows int64) int64 {
		return x.Batch * kernels.CeilDiv(x.M, step*rows) * step * kernels.CeilDiv(cols, 32*w)
	} // of a warp
	for ; rows > 4 && jobs(rows) < 16*x.sms(); rows /= 2 {
	}
	return cut{each: rows, blocks: kernels.CeilDiv(jobs(rows), warps)}, true
}

// isTall and isLong report whether low-K products have a narrow C, and one of long rows.
func isTall(_ *candidate, x *problem) bool {
	side, long := min(x.M, x.N), max(x.M, x.N)
	return side <= 16 && long >= 128 && x.K <= 64 && (x.K <= 8 || x.Batch*kernels.CeilDiv(long, 256) >= x.sms())
}

func isLong(_ *candidate, x *problem) bool {
	return x.N > 64 && x.K <= 16 && (x.K <= 4 || x.elements() >= 4096*x.sms() && !x.B.Trans)
}
