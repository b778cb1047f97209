package hostblas

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// arguments are those of BLAS functions, which take the address of each as Fortran does. They read
// integers of 32 or of 64 bits: on little-endian machines both read the same number.
type arguments[T kernels.Float] struct {
	transA, transB byte
	m, n, k        int64
	lda, ldb, ldc  int64
	alpha, beta    T
}

// gemm computes rows x cols elements of C, from an element on. Matrices of BLAS are column-major,
// so that a row-major matrix is seen as its transpose: gemm computes op(B)^T op(A)^T.
func gemm[T kernels.Float](l *Library, fn uintptr, x kernels.Matrices[T], row, col, rows, cols int64) {
	fromA, fromB := row*x.LDA, col
	if x.TransA {
		fromA = row
	}
	if x.TransB {
		fromB = col * x.LDB
	}
	p := &arguments[T]{transA: letter(x.TransA), transB: letter(x.TransB), m: rows, n: cols, k: x.K, lda: x.LDA, ldb: x.LDB, ldc: x.N, alpha: 1}
	defer l.begin()()
	call(fn, uintptr(unsafe.Pointer(&p.transB)), uintptr(unsafe.Pointer(&p.transA)),
		uintptr(unsafe.Pointer(&p.n)), uintptr(unsafe.Pointer(&p.m)), uintptr(unsafe.Pointer(&p.k)), uintptr(unsafe.Pointer(&p.alpha)),
		uintptr(unsafe.Pointer(&x.B[fromB])), uintptr(unsafe.Pointer(&p.ldb)),
		uintptr(unsafe.Pointer(&x.A[fromA])), uintptr(unsafe.Pointer(&p.lda)), uintptr(unsafe.Pointer(&p.beta)),
		uintptr(unsafe.Pointer(&x.C[row*x.N+col])), uintptr(unsafe.Pointer(&p.ldc)),
		1, 1) // the lengths of both letters, which Fortran compilers append
}

// gemv computes rows elements of the product of a matrix and a vector, from one on.
func gemv[T kernels.Float](l *Library, fn uintptr, x kernels.Matrices[T], row, rows int64) {
	p := &arguments[T]{transA: letter(!x.TransA), m: x.K, n: rows, lda: x.LDA, ldb: x.LDB, ldc: 1, alpha: 1}
	from := row * x.LDA
	if x.TransA {
		p.m, p.n, from = rows, x.K, row
	}
	if x.TransB {
		p.ldb = 1
	}
	defer l.begin()()
	call(fn, uintptr(unsafe.Pointer(&p.transA)), uintptr(unsafe.Pointer(&p.m)), uintptr(unsafe.Pointer(&p.n)), uintptr(unsafe.Pointer(&p.alpha)),
		uintptr(unsafe.Pointer(&x.A[from])), uintptr(unsafe.Pointer(&p.lda)), uintptr(unsafe.Pointer(&x.B[0])), uintptr(unsafe.Pointer(&p.ldb)),
		uintptr(unsafe.Pointer(&p.beta)), uintptr(unsafe.Pointer(&x.C[row])), uintptr(unsafe.Pointer(&p.ldc)), 1)
}

// begin waits until the library may be called, and makes this goroutine's calls use one thread. The
// caller calls the function that it returns when it is done.
func (l *Library) begin() (end func()) {
	l.calls <- struct{}{}
	if l.threads == 0 {
		return func() { <-l.calls }
	}
	runtime.LockOSThread()
	call(l.threads, 1)
	return func() { runtime.UnlockOSThread(); <-l.calls }
}

// letter is the argument of BLAS functions for a matrix, transposed or not.
func letter(trans bool) byte {
	if trans {
		return 'T'
	}
	return 'N'
}
