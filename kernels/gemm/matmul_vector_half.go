package gemm

import (
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

// halfVectors is the kernel of matmul_vector_half.cu for operands in BF16 or F16: a matrix whose rows are of K, and a vector. It reads operands that are in the form already:
// converting a matrix takes longer than its product with a vector.
//
// H200, timed in a VM, us     16 bits   float32
// 50304 x 768                 27.2      46.2
func halfVectors(f Form) *candidate {
	const (
		minElements = 1 << 22 // of the matrix
		warpRows    = 4
		threads     = 128
	)
	able := func(_ *candidate, x *problem) bool {
		return x.Round == kernels.Precision(f) && !x.A.Trans && x.B.Trans && x.K%8 == 0 && x.M*x.K >= minElements && countable(x) && x.Also == Plain && !x.halves()
	}
	name := strings.ToLower(f.String())
	return &candidate{
		name: "rows_" + name, form: f, orient: column, tile: tile{threads: threads}, rounds: true,
		able:   limits{on: func(dev kernels.Device) bool { return hasMMA(dev) || isHopper(dev) }, n: span{1, 1}, batch: span{1, 1}, plain: true, also: able},
		kernel: own.Kernel("matmul_vector_half", "matmul_rows_"+name, halfRowsBody(f)),
		cut: func(_ *candidate, x *problem) (cut, bool) {
			return cut{blocks: kernels.CeilDiv(x.M, threads/32*warpRows)}, true
		},
		args:  func(_ *candidate, x *problem, _ cut, to kernels.Ref) any { return halfRowsArgs{x.a, x.b, to, x.M, x.K} },
		worth: []limits{{also: func(_ *candidate, x *problem) bool { return x.A.Form == f && x.B.Form == f }}},
	}
}

// halfRowsArgs are the arguments of the kernels: N rows of K elements.
type halfRowsArgs struct {
	X, V, Y kernels.Ref
	N, K    int64 `arg:"int32"`
}

// halfRowsBody is y[r] = sum over l of x[r][l] * v[l].
func halfRowsBody(f Form) func(kernels.Call) {
	return func(c kernels.Call) {
		a := kernels.Args[halfRowsArgs](c)
		x := operands(f, 1, a.N, 1, a.K, false, true)
		matvec(c.BLAS(), a.N, a.K, x[0].numbers(c, a.X), a.K, x[1].numbers(c, a.V), kernels.Slice[float32](c, a.Y))
	}
}
