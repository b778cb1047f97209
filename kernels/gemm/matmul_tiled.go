package gemm

import (
	"fmt"

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
	l := p.Launch(t.Kernel, int(t.blocks(batch, m, n)), 0, tiledArgs{kernels.In(0), kernels.In(1), out, m, n, k, transA, transB})
	l.Block, l.Shared = t.Block, t.Shared
	return p, nil
}

// tiledArgs are the first arguments of a kernel of dense matrices.
type tiledArgs struct {
	A, B, C        kernels.Ref
	M, N, K        int64
	TransA, TransB bool
}

// transposed returns the product that computes the transpose of C.
func (x tiledArgs) transposed() tiledArgs {
	return tiledArgs{x.B, x.A, x.C, x.N, x.M, x.K, !x.TransB, !x.TransA}
}

// TiledMatMulBody is the Go body of a [TiledMatMul]: a batch of products by the BLAS. The
// arguments are a, b, c, m, n, k, transA, transB.
func TiledMatMulBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[tiledArgs](c)
	tiledBody[T](c, x, int64(len(kernels.Slice[T](c, x.C)))/(x.M*x.N), max(x.K, 1))
}

// tiledBody multiplies the matrices of a batch by the BLAS, in splits of chunk terms.
func tiledBody[T kernels.Float](c kernels.Call, x tiledArgs, batch, chunk int64) {
	lda, ldb := x.K, x.N
	if x.TransA {
		lda = x.M
	}
	if x.TransB {
		ldb = x.K
	}
	gemms(c.BLAS(), x.TransA, x.TransB, x.M, x.N, x.K, kernels.Slice[T](c, x.A), lda, x.M*x.K, kernels.Slice[T](c, x.B), ldb, x.K*x.N,
		kernels.Slice[T](c, x.C), batch, chunk, max(kernels.CeilDiv(x.K, chunk), 1))
}
