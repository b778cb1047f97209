package kernels

import "fmt"

// TiledMatMul is a product whose blocks compute a tile of M x N elements of C each,
// as matmul_tiles.cuh has it, for one element type.
type TiledMatMul struct {
	M, N   int64
	Block  [3]int
	Shared int // dynamic shared memory, bytes
	Kernel *Kernel

	finished int // dynamic shared memory with an epilogue; 0: it has neither an epilogue nor splits of k
}

// matmulTensor is the product on the tensor cores, matmul_tensor.cu.
var matmulTensor = [...]TiledMatMul{
	Float32: {128, 64, [3]int{128, 1, 1}, tensorShared(Float32, 128, 64, 16, 3), own.Kernel("matmul_tensor", "matmul_tensor_f32", TiledMatMulBody[float32]), 0},
	Float64: {128, 64, [3]int{128, 1, 1}, tensorShared(Float64, 128, 64, 8, 3), own.Kernel("matmul_tensor", "matmul_tensor_f64", tensorBody), 128 * (64 + 2) * 8},
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
// is fastest, and there is a tile, or a split of one, for three in four multiprocessors.
func onTensorCores(dev Device, dt Dtype, batch, m, n, k int64) bool {
	t, pol := matmulTensor[dt], tensorPolicies.on(dev)
	blocks := t.blocks(batch, m, n)
	return pol.chosen && m > t.M/2 && n >= t.N && CheckGrid(blocks) == nil && blocks*pol.splits.splits(dev, blocks, k)*4 >= int64(dev.SMs)*3
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
	p.tiledMatMul(HostDevice(), t, result{dt, batch, m, n, Epilogue{}}, k, transA, transB)
	return p, nil
}

// tiledMatMul appends the launches of t.
func (p *Plan) tiledMatMul(dev Device, t TiledMatMul, c result, k int64, transA, transB bool) {
	blocks := t.blocks(c.batch, c.m, c.n)
	launch := func(to Ref, splits int64, more ...any) *Launch {
		args := []any{Ref{0, 0}, Ref{1, 0}, to, c.m, c.n, k, flag(transA), flag(transB)}
		l := p.Launch(t.Kernel, int(blocks*splits), 0, append(args, more...)...)
		l.Block, l.Shared = t.Block, t.Shared
		return l
	}
	if t.finished == 0 {
		launch(Ref{Out, 0}, 1)
		return
	}
	p.split(dev, c, blocks, tensorPolicies.on(dev).splits, k, func(to Ref, e Epilogue, splits, chunk int64) {
		l := launch(to, splits, append([]any{c.batch, chunk}, e.arguments(c.dt)...)...)
		if e.chain != 0 {
			l.Shared = max(t.Shared, t.finished)
		}
	})
}

// flag is a bool as a kernel takes it.
func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// TiledMatMulBody is the Go body of a [TiledMatMul] without splits: a batch of products by the
// BLAS. The arguments are a, b, c, m, n, k, transA, transB.
func TiledMatMulBody[T Float](c Call) {
	m, n, k := c.Int(3), c.Int(4), c.Int(5)
	tiledBody[T](c, int64(len(Slice[T](c, 2)))/(m*n), max(k, 1))
}

// tensorBody takes the batch and the terms of a split beside those.
func tensorBody(c Call) { tiledBody[float64](c, c.Int(8), c.Int(9)) }

func tiledBody[T Float](c Call, batch, chunk int64) {
	m, n, k, transA, transB := c.Int(3), c.Int(4), c.Int(5), c.Int(6) == 1, c.Int(7) == 1
	lda, ldb := k, n
	if transA {
		lda = m
	}
	if transB {
		ldb = k
	}
	gemms(c.blas, transA, transB, m, n, k, Slice[T](c, 0), lda, m*k, Slice[T](c, 1), ldb, k*n, Slice[T](c, 2), batch, chunk, max(CeilDiv(k, chunk), 1))
}
