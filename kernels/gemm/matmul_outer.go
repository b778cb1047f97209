package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
)

// lowK returns a kernel for few terms, of a source for one element type. It has no epilogue: with one the unsliced tiles compute the same bits.
func lowK[T kernels.Float](source, name string, t tile, k span, orient func(problem) problem, cutter func(*candidate, *problem) (cut, bool)) *candidate {
	dt, name := typed[T](name)
	return &candidate{name: name, dtype: dt, copies: elements, shares: true, orient: orient, able: limits{on: isGPU, plain: true, elements: span{to: maxChunk}, k: k}, tile: t,
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
	return cut{each: rows, blocks: kernels.CeilDiv(jobs(rows), warps), work: warps * rows * 32 * w * x.K}, true
}

const turnColumns = 256 // of a block of turnKernel

var turnKernel = own.Pair("matmul_outer", "matmul_turn", turnBody[float32], turnBody[float64])

type turnArgs struct {
	From, To kernels.Ref
	N, K     int64
}

// turnBody transposes matrices of N rows of K elements, a block 256 of their rows.
func turnBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[turnArgs](c)
	size, matrices := x.N*x.K, int64(c.Grid[0])/kernels.CeilDiv(x.N, turnColumns)
	from, to := kernels.Slice[T](c, x.From), kernels.Slice[T](c, x.To)
	for m := range matrices {
		copy(to[m*size:], transpose(from[m*size:], x.N, x.K, x.K))
	}
}

// turned returns the problem whose B a launch has transposed.
func (x *problem) turned(p *kernels.Plan) *problem {
	y, elements := *x, x.B.extent(x.Batch, x.K, x.N)
	y.b, y.B.Trans = p.Workspace(elements*x.size()), false
	p.Launch(turnKernel[x.Dtype], int(elements/(x.K*x.N)*kernels.CeilDiv(x.N, turnColumns)), turnColumns, turnArgs{x.b, y.b, x.N, x.K})
	return &y
}

// isTall and isLong report whether low-K products have a narrow C, and one of long rows.
func isTall(_ *candidate, x *problem) bool {
	side, long := min(x.M, x.N), max(x.M, x.N)
	return side <= 16 && long >= 128 && x.K <= 64 && (x.K <= 8 || x.Batch*kernels.CeilDiv(long, 256) >= x.sms())
}

func isLong(_ *candidate, x *problem) bool {
	return x.N > 64 && x.K <= 16 && (x.K <= 4 || x.elements() >= 4096*x.sms())
}
