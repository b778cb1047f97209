package kernels

// tiledMatMul is a product whose blocks compute a tile of m x n elements of C each,
// as matmul_tiles.cuh has it, for one element type.
type tiledMatMul struct {
	m, n   int64
	block  [3]int
	shared int // dynamic, bytes
	kernel *Kernel
}

// matmulTensor is the product on the tensor cores, matmul_tensor.cu.
var matmulTensor = [...]tiledMatMul{
	Float32: {128, 64, [3]int{128, 1, 1}, tensorShared(Float32, 128, 64, 16, 3), &Kernel{"matmul_tensor", "matmul_tensor_f32", tiledMatMulBody[float32]}},
	Float64: {128, 64, [3]int{128, 1, 1}, tensorShared(Float64, 128, 64, 8, 3), &Kernel{"matmul_tensor", "matmul_tensor_f64", tiledMatMulBody[float64]}},
}

// tensorShared returns the dynamic shared memory, in bytes, of stages of pieces of s
// elements along k, in the order of memory: rows along k are followed by 4 unused
// elements, which is the larger of the two orders.
func tensorShared(dt Dtype, m, n, s, stages int64) int {
	return int(stages * (m + n) * (s + 4) * dt.Size())
}

// onTensorCores reports whether MatMul runs a product on the tensor cores: on a
// device of compute capability 9, where there is a tile for three in four
// multiprocessors. On an H200, against the tiles of matmul.cu, float32, in us: 512: 41,
// 25 (whose sums are cut in parts); 1024: 64, 132; 2048: 330, 415; 4096: 2452, 3217;
// 4097: 2754, 4716; 8192: 18067, 25456. float64, 4096: 2834, 7781. Its float32 errors
// are smaller: see Version(7).MatMul of package ops. Elsewhere it has not been timed.
func onTensorCores(dev Device, dt Dtype, batch, m, n int64) bool {
	t := matmulTensor[dt]
	blocks := t.blocks(batch, m, n)
	return dev.Major == 9 && m > t.m/2 && n >= t.n && blocks*4 >= int64(dev.SMs)*3 && checkGrid(blocks) == nil
}

// blocks counts the tiles of a batch of products of m x n elements.
func (t tiledMatMul) blocks(batch, m, n int64) int64 {
	return batch * ceilDiv(m, t.m) * ceilDiv(n, t.n)
}

// tiledMatMul appends the launch of t.
func (p *Plan) tiledMatMul(t tiledMatMul, batch, m, n, k int64, transA, transB bool) {
	var flagA, flagB int32
	if transA {
		flagA = 1
	}
	if transB {
		flagB = 1
	}
	p.launch(t.kernel, int(t.blocks(batch, m, n)), 0, Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, m, n, k, flagA, flagB)
	l := &p.Launches[len(p.Launches)-1]
	l.Block, l.Shared = t.block, t.shared
}

// tiledMatMulBody computes a batch of products by the BLAS that Gorgonia uses.
func tiledMatMulBody[T Float](c Call) {
	a, b, out := Slice[T](c, 0), Slice[T](c, 1), Slice[T](c, 2)
	m, n, k, transA, transB := c.Int(3), c.Int(4), c.Int(5), c.Int(6) == 1, c.Int(7) == 1
	batch := int64(len(out)) / (m * n)
	lda, ldb := k, n
	if transA {
		lda = m
	}
	if transB {
		ldb = k
	}
	Parallel(batch, max(grain/max(m*n*k, 1), 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			gemm(transA, transB, m, n, k, a[i*m*k:], lda, b[i*k*n:], ldb, out[i*m*n:(i+1)*m*n])
		}
	})
}
