package gemm

import (
	"fmt"
	"github.com/stheno-ml/stheno/kernels/internal/arith"

	"github.com/stheno-ml/stheno/kernels"
)

// TiledMatMul is a product whose blocks compute a tile of M x N elements of C each,
// as matmul_tiles.cuh has it, for one element type: a version of [MatMul].
type TiledMatMul struct {
	M, N   int64
	Block  [3]int
	Shared int // dynamic shared memory, bytes
	Kernel *kernels.Kernel
}

// blocks counts the tiles of a batch of products of m x n elements.
func (t TiledMatMul) blocks(batch, m, n int64) int64 {
	return batch * kernels.CeilDiv(m, t.M) * kernels.CeilDiv(n, t.N)
}

// Plan plans [MatMul] by this product alone. It is an error if a launch cannot have
// that many blocks.
func (t TiledMatMul) Plan(dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) (*kernels.Plan, error) {
	p := newMatMul(dt, batch, m, n, k)
	if p.Out == 0 {
		return p, nil
	}
	if t.M < 1 || t.N < 1 || t.Kernel == nil {
		return nil, fmt.Errorf("%s: got tiles of %d x %d elements and the kernel %v, want at least 1 x 1 and a kernel", p.Op, t.M, t.N, t.Kernel)
	}
	if err := kernels.CheckGrid(t.blocks(batch, m, n)); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Op, err)
	}
	l := p.Launch(t.Kernel, int(t.blocks(batch, m, n)), 0, kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), m, n, k, arith.Flag(transA), arith.Flag(transB))
	l.Block, l.Shared = t.Block, t.Shared
	return p, nil
}

// TiledMatMulBody is the Go body of a [TiledMatMul]: a batch of products by the BLAS. The
// arguments are a, b, c, m, n, k, transA, transB.
func TiledMatMulBody[T kernels.Float](c kernels.Call) {
	m, n, k := c.Int(3), c.Int(4), c.Int(5)
	tiledBody[T](c, int64(len(kernels.Slice[T](c, 2)))/(m*n), max(k, 1))
}

// tiledBody is the same for a batch, in splits of chunk terms.
func tiledBody[T kernels.Float](c kernels.Call, batch, chunk int64) {
	tiledProduct(c, kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), c.Int(3), c.Int(4), c.Int(6) == 1, c.Int(7) == 1, batch, chunk)
}

// turnedBody is the same with C written transposed: then the second operand times the first.
func turnedBody[T kernels.Float](c kernels.Call, batch, chunk int64) {
	tiledProduct(c, kernels.Slice[T](c, 1), kernels.Slice[T](c, 0), c.Int(4), c.Int(3), c.Int(7) != 1, c.Int(6) != 1, batch, chunk)
}

func tiledProduct[T kernels.Float](c kernels.Call, a, b []T, m, n int64, transA, transB bool, batch, chunk int64) {
	k := c.Int(5)
	lda, ldb := k, n
	if transA {
		lda = m
	}
	if transB {
		ldb = k
	}
	gemms(c.BLAS(), transA, transB, m, n, k, a, lda, m*k, b, ldb, k*n, kernels.Slice[T](c, 2), batch, chunk, max(kernels.CeilDiv(k, chunk), 1))
}
