package gemm

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// lowK returns a kernel of matmul_outer.cu for one element type. It has no epilogue: with one the unsliced tiles compute the same bits.
func lowK[T kernels.Float](name string, t tile, k span, orient func(problem) problem, cutter func(*candidate, *problem) (cut, bool)) *candidate {
	dt, name := typed[T](name)
	return &candidate{name: name, dtype: dt, copies: elements, shares: t.m > 4, orient: orient, able: limits{on: isGPU, plain: true, elements: span{to: maxChunk}, k: k}, tile: t,
		kernel: own.Kernel("matmul_outer", "matmul_"+name, productBody[T](true)), cut: cutter, args: lowKArguments}
}

// linear is the kernel of matmul_outer.cu for short rows, on 9.0.
//
// H200, us, m x k x n          linear  the best other
// 82768 x 1 x 31, 9 of         39.8    71.3, small
// 407540 x 4 x 70              52.8    112, short
// 152608 x 8 x 30, 30 of       354     485, small
// 470824 x 12 x 21             38.1    55.9, small
// 192767 x 6 x 5, 3 of, f64    17.4    31.1, tall
// 974222 x 16 x 61             249     168, short
// 420708 x 4 x 147             146     103, outer4
// 910 x 6 x 130                3.1     2.5, small
// 97700 x 14 x 63, f64         42.5    29.2, short
func linear[T kernels.Float]() *candidate {
	c := lowK[T]("linear", tile{threads: 256}, span{1, 64 / int64(unsafe.Sizeof(T(0)))}, longRows, cutLinear)
	c.shares, c.able.on, c.able.n = true, isHopper, span{2, 127}
	return c.when(limits{c: perSM{from: 2048}})
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

// cutLinear gives a thread four vectors of C. The rows of A of a block and B are in shared memory.
func cutLinear(c *candidate, x *problem) (cut, bool) {
	const vectors, maxShared, copied = 4, 48 << 10, 4 // of a thread; of a block; multiply-adds that take as long as an element of A or C
	w, threads := 16/x.size(), int64(c.threads)
	period := x.N * alignmentPeriod(x.size(), x.N) / w
	if period > threads {
		return cut{}, false
	}
	each := threads / period * period * w * vectors
	shared := ((each/x.N+2)*arith.RoundUp(x.K, w) + x.K*x.N) * x.size()
	return cut{blocks: x.Batch * kernels.CeilDiv(x.M*x.N+w-1, each), shared: shared, work: each*x.K + copied*(each+each/x.N*x.K)}, shared <= maxShared
}

// cutTall gives a block rows of a narrow C, in shared memory, if the device has so much.
func cutTall(c *candidate, x *problem) (cut, bool) {
	rows, pitch := c.m/x.size(), int64(0)
	if !x.A.Trans {
		pitch = x.K | 1
	}
	if !x.transC {
		pitch = max(pitch, x.N|1)
	}
	shared := (c.n*x.K + rows*pitch) * x.size()
	const copied = 16 // multiply-adds that take as long as an element of A
	return cut{blocks: x.Batch * kernels.CeilDiv(x.M, rows), shared: shared, work: min(rows, x.M) * x.K * (copied + x.N)}, shared <= int64(x.dev.SharedOptin)
}

// cutTiny gives a thread an element of C.
func cutTiny(c *candidate, x *problem) (cut, bool) {
	return cut{blocks: max(kernels.CeilDiv(x.elements(), int64(c.threads)), 1)}, true
}

// cutBundle gives a block several matrices, whose operands fit in shared memory.
func cutBundle(c *candidate, x *problem) (cut, bool) {
	const maxShared, items, copied = 24 << 10, 4, 4 // bytes of a block; groups of c.m rows of a thread, about; multiply-adds that take as long as an element copied
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
	return cut{each: each, blocks: kernels.CeilDiv(x.Batch, each), shared: each * shared, work: each * (x.M*x.N*x.K + copied*(x.M*x.K+x.K*x.N+x.M*x.N))}, true
}

// isTall and isLong report whether low-K products have a narrow C, and one of long rows.
func isTall(_ *candidate, x *problem) bool {
	side, long := min(x.M, x.N), max(x.M, x.N)
	return side <= 16 && long >= 128 && x.K <= 64 && (x.K <= 8 || x.Batch*kernels.CeilDiv(long, 256) >= x.sms())
}

func isLong(_ *candidate, x *problem) bool {
	return x.N >= 128 && x.K <= 16 && (x.K <= 4 || x.elements() >= 4096*x.sms() && !x.B.Trans)
}
