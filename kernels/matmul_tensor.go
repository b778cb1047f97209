package kernels

import "fmt"

// TiledMatMul is a product whose blocks compute a tile of M x N elements of C each,
// as matmul_tiles.cuh has it, for one element type.
type TiledMatMul struct {
	M, N   int64
	Block  [3]int
	Shared int // dynamic shared memory, bytes
	Kernel *Kernel
}

// matmulTensor is the product on the tensor cores, matmul_tensor.cu.
var matmulTensor = [...]TiledMatMul{
	Float32: {128, 64, [3]int{128, 1, 1}, tensorShared(Float32, 128, 64, 16, 3), own.Kernel("matmul_tensor", "matmul_tensor_f32", TiledMatMulBody[float32])},
	Float64: {128, 64, [3]int{128, 1, 1}, tensorShared(Float64, 128, 64, 8, 3), own.Kernel("matmul_tensor", "matmul_tensor_f64", TiledMatMulBody[float64])},
}

// TensorMatMul returns the product on the tensor cores for an element type.
func TensorMatMul(dt Dtype) TiledMatMul { return matmulTensor[dt] }

// tensorShared returns the dynamic shared memory, in bytes, of stages of pieces of s
// elements along k, in the order of memory: rows along k are followed by 4 unused
// elements, which is the larger of the two orders.
func tensorShared(dt Dtype, m, n, s, stages int64) int {
	return int(stages * (m + n) * (s + 4) * dt.Size())
}

// onTensorCores reports whether MatMul runs a product on the tensor cores: where that
// is fastest, and there is a tile for three in four multiprocessors.
func onTensorCores(dev Device, dt Dtype, batch, m, n int64) bool {
	t := matmulTensor[dt]
	blocks := t.blocks(batch, m, n)
	return tensorProducts.on(dev) && m > t.M/2 && n >= t.N && blocks*4 >= int64(dev.SMs)*3 && CheckGrid(blocks) == nil
}

// blocks counts the tiles of a batch of products of m x n elements.
func (t TiledMatMul) blocks(batch, m, n int64) int64 {
	return batch * CeilDiv(m, t.M) * CeilDiv(n, t.N)
}

// Plan plans [MatMul] by this product alone. It is an error if a launch cannot have
// so many blocks.
func (t TiledMatMul) Plan(dt Dtype, batch, m, n, k int64, transA, transB bool) (*Plan, error) {
	p := newMatMul(dt, batch, m, n, k)
	if p.Out == 0 {
		return p, nil
	}
	if err := CheckGrid(t.blocks(batch, m, n)); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Op, err)
	}
	p.tiledMatMul(t, batch, m, n, k, transA, transB)
	return p, nil
}

// tiledMatMul appends the launch of t.
func (p *Plan) tiledMatMul(t TiledMatMul, batch, m, n, k int64, transA, transB bool) {
	l := p.Launch(t.Kernel, int(t.blocks(batch, m, n)), 0, Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, m, n, k, flag(transA), flag(transB))
	l.Block, l.Shared = t.Block, t.Shared
}

// flag is a bool as a kernel takes it.
func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// TiledMatMulBody is the Go body of every [TiledMatMul]: a batch of products by the
// BLAS that Gorgonia uses. The arguments are a, b, c, m, n, k, transA, transB.
func TiledMatMulBody[T Float](c Call) {
	a, b, out := Slice[T](c, 0), Slice[T](c, 1), Slice[T](c, 2)
	m, n, k, transA, transB := c.Int(3), c.Int(4), c.Int(5), c.Int(6) == 1, c.Int(7) == 1
	batch := int64(len(out)) / (m * n)
	lda, ldb := k, n
	if transA {
		lda = m
	}
	if transB {
		b, ldb = aligned(b), k
	}
	Parallel(batch, max(Grain/max(m*n*k, 1), 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			gemm(c.blas, transA, transB, m, n, k, a[i*m*k:], lda, b[i*k*n:], ldb, out[i*m*n:(i+1)*m*n])
		}
	})
}
