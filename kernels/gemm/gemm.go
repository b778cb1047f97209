package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"gonum.org/v1/gonum/blas"
)

// gemms is [gemm] for each split of k, of chunk terms, of each matrix of a batch.
func gemms[T kernels.Float](by kernels.BLAS, transA, transB bool, m, n, k int64, a []T, lda, strideA int64, b []T, ldb, strideB int64, c []T, batch, chunk, splits int64) {
	if transB {
		b = align.Vector(b)
	}
	kernels.Parallel(splits*batch, max(kernels.Grain/max(m*n*min(k, chunk), 1), 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			matrix, k0 := i%batch, i/batch*chunk
			a, b := fromTerm(a[matrix*strideA:], k0, lda, transA), fromTerm(b[matrix*strideB:], k0, ldb, !transB)
			gemm(by, transA, transB, m, n, min(chunk, k-k0), a, lda, b, ldb, c[i*m*n:(i+1)*m*n])
		}
	})
}

// fromTerm returns a matrix from term k0 on: its rows from there, if rows are terms, else its columns.
func fromTerm[T kernels.Float](x []T, k0, ld int64, rows bool) []T {
	if rows {
		return x[k0*ld:]
	}
	return x[k0:]
}

// gemm is C = op(A) op(B) by the BLAS. The forms of the BLAS in which B is not transposed skip the zeros of A, so that 0 x Inf would be 0, and the
// one with both transposed is slow. The form A B^T does neither: those cases are brought to it by copies, whose cost is small against the product's.
// It makes dot products with rows of B, which the caller has aligned.
func gemm[T kernels.Float](by kernels.BLAS, transA, transB bool, m, n, k int64, a []T, lda int64, b []T, ldb int64, c []T) {
	if k == 0 {
		clear(c)
		return
	}
	if own, ok := by.(kernels.Multiplier); ok && multiply(own, kernels.Matrices[T]{TransA: transA, TransB: transB, M: m, N: n, K: k, A: a, B: b, C: c, LDA: lda, LDB: ldb}) {
		return
	}
	rows, cols := k, n
	if transB {
		rows, cols = n, k
	}
	if !transB && !finite(b, rows, cols, ldb) {
		b, ldb, transB = transpose(b, k, n, ldb), k, true
	}
	if transA && transB {
		a, lda, transA = transpose(a, k, m, lda), k, false
	}
	flag := map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}
	switch a := any(a).(type) {
	case []float32:
		by.Sgemm(flag[transA], flag[transB], int(m), int(n), int(k), 1, a, int(lda), any(b).([]float32), int(ldb), 0, any(c).([]float32), int(n))
	case []float64:
		by.Dgemm(flag[transA], flag[transB], int(m), int(n), int(k), 1, a, int(lda), any(b).([]float64), int(ldb), 0, any(c).([]float64), int(n))
	}
}

// multiply is the method of a kernels.Multiplier for T.
func multiply[T kernels.Float](by kernels.Multiplier, x kernels.Matrices[T]) bool {
	if x, ok := any(x).(kernels.Matrices[float32]); ok {
		return by.Multiply32(x)
	}
	return by.Multiply64(any(x).(kernels.Matrices[float64]))
}

// finite reports whether a rows x cols matrix has neither NaN nor Inf.
func finite[T kernels.Float](x []T, rows, cols, ld int64) bool {
	for i := range rows {
		var a, b, c, d T // x - x is 0 for finite x, else NaN; four sums hide the latency
		row := x[i*ld : i*ld+cols]
		for ; len(row) >= 4; row = row[4:] {
			a += row[0] - row[0]
			b += row[1] - row[1]
			c += row[2] - row[2]
			d += row[3] - row[3]
		}
		for _, v := range row {
			a += v - v
		}
		if math.IsNaN(float64((a + b) + (c + d))) {
			return false
		}
	}
	return true
}

// transpose copies a rows x cols matrix to cols x rows.
func transpose[T kernels.Float](x []T, rows, cols, ld int64) []T {
	out := align.Make[T](rows * cols)
	const b = 32 // a block of both fits the first-level cache
	for i0 := int64(0); i0 < rows; i0 += b {
		for j0 := int64(0); j0 < cols; j0 += b {
			for i := i0; i < min(i0+b, rows); i++ {
				for j := j0; j < min(j0+b, cols); j++ {
					out[j*rows+i] = x[i*ld+j]
				}
			}
		}
	}
	return out
}
