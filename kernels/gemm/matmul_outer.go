package gemm

import "github.com/stheno-ml/stheno/kernels"

// lowK returns a kernel of matmul_outer.cu for one element type. It has no epilogue: with one the unsliced tiles compute the same bits.
func lowK[T kernels.Float](name string, t tile, k span, orient func(problem) problem, cutter func(candidate, problem) (cut, bool)) candidate {
	dt, name := typed[T](name)
	return candidate{name: name, dtype: dt, shares: t.m > 4, orient: orient, able: limits{on: isGPU, plain: true, elements: span{to: maxChunk}, k: k}, tile: t,
		kernel: own.Kernel("matmul_outer", "matmul_"+name, productBody[T](true)), cut: cutter, args: lowKArguments}
}

// cutOuter cuts a C of long rows into rows of a warp, fewer where the device would be idle.
func cutOuter(c candidate, x problem) (cut, bool) {
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

// cutTall gives a block rows of a narrow C, in shared memory.
func cutTall(c candidate, x problem) (cut, bool) {
	rows, pitch := c.m/x.size(), int64(0)
	if !x.A.Trans {
		pitch = x.K | 1
	}
	if !x.transC {
		pitch = max(pitch, x.N|1)
	}
	return cut{blocks: x.Batch * kernels.CeilDiv(x.M, rows), shared: (c.n*x.K + rows*pitch) * x.size()}, true
}

// cutTiny gives a thread an element of C.
func cutTiny(c candidate, x problem) (cut, bool) {
	return cut{blocks: max(kernels.CeilDiv(x.elements(), int64(c.threads)), 1)}, true
}

// cutBundle gives a block several matrices, whose operands fit in shared memory.
func cutBundle(c candidate, x problem) (cut, bool) {
	const maxShared, items = 24 << 10, 4 // bytes of a block; groups of c.m rows of a thread, about
	groups := kernels.CeilDiv(x.M, c.m)
	lineA, sizeB := (groups|1)*c.m, x.K*x.N // of A along M; of B
	if x.B.Trans {
		sizeB = (x.K | 1) * x.N
	}
	shared := (x.K*lineA + sizeB) * x.size() // of a matrix
	each := min(maxShared/shared, max(items*int64(c.threads)/(groups*x.N), 1), max(x.Batch/(4*x.sms()), 1))
	if each == 0 || x.Batch < max(x.sms(), 2) {
		return cut{}, false
	}
	return cut{each: each, blocks: kernels.CeilDiv(x.Batch, each), shared: each * shared}, true
}

// isTall and isLong report whether low-K products have a narrow C, and one of long rows.
func isTall(_ candidate, x problem) bool {
	side, long := min(x.M, x.N), max(x.M, x.N)
	return side <= 16 && long >= 128 && x.K <= 64 && (x.K <= 8 || x.Batch*kernels.CeilDiv(long, 256) >= x.sms())
}

func isLong(_ candidate, x problem) bool {
	return x.N >= 128 && x.K <= 16 && (x.K <= 4 || x.elements() >= 4096*x.sms() && !x.B.Trans)
}
