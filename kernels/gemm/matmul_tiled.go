package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// TiledMatMul is a [Product] of dense matrices whose blocks compute a tile of M x N elements of C each, as matmul_tiles.cuh has it, for one
// element type.
type TiledMatMul struct {
	M, N   int64
	Block  [3]int
	Shared int // dynamic shared memory, bytes
	Kernel *kernels.Kernel
}

// Plan plans a product by this kernel alone. It is an error if a launch cannot have that many blocks.
func (t TiledMatMul) Plan(dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) (*kernels.Plan, error) {
	p := newPlan(Product{Dtype: dt, Batch: batch, M: m, N: n, K: k})
	if p.Out == 0 {
		return p, nil
	}
	if t.M < 1 || t.N < 1 || t.Kernel == nil {
		return nil, fmt.Errorf("%s: got tiles of %d x %d elements and the kernel %v, want at least 1 x 1 and a kernel", p.Op, t.M, t.N, t.Kernel)
	}
	blocks := batch * kernels.CeilDiv(m, t.M) * kernels.CeilDiv(n, t.N)
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Op, err)
	}
	l := p.Launch(t.Kernel, int(blocks), 0, denseArgs{kernels.In(0), kernels.In(1), out, m, n, k, transA, transB})
	l.Block, l.Shared = t.Block, t.Shared
	return p, nil
}

// denseArgs are the first arguments of a kernel of dense matrices.
type denseArgs struct {
	A, B, C        kernels.Ref
	M, N, K        int64
	TransA, TransB bool
}

func (x problem) dense(to kernels.Ref) denseArgs {
	return denseArgs{x.a, x.b, to, x.M, x.N, x.K, x.A.Trans, x.B.Trans}
}

// TiledMatMulBody is the Go body of a [TiledMatMul]: a batch of products by the BLAS. The arguments are a, b, c, m, n, k, transA, transB.
func TiledMatMulBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[denseArgs](c)
	denseBody[T](c, x, false, false, int64(len(kernels.Slice[T](c, x.C)))/(x.M*x.N), max(x.K, 1))
}

// denseBody multiplies the matrices of a batch, in splits of chunk terms. With sharedA, all have one A; with transC, C is stored transposed.
func denseBody[T kernels.Float](c kernels.Call, x denseArgs, sharedA, transC bool, batch, chunk int64) {
	lda, matrixA := Operand{Trans: x.TransA, Shared: sharedA}.strides(x.M, x.K)
	ldb, matrixB := Operand{Trans: x.TransB}.strides(x.K, x.N)
	splits := max(kernels.CeilDiv(x.K, chunk), 1)
	multiplyAll[T](c, tileArgs{productArgs{x.A, x.B, x.C, x.M, x.N, x.K, lda, ldb, matrixA, matrixB, batch, chunk, splits, x.TransA, x.TransB}, transC})
}
