package hostblas

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
)

// Library is a BLAS library in this process: it multiplies matrices, and matrices by vectors; its BLAS, gonum's,
// does the rest.
type Library struct {
	kernels.BLAS
	name, file     string   // vendor and version; file
	single, double routines // of float32, of float64
	threads        uintptr  // sets the number of threads for the calls of an OS thread, if not 0
	calls          chan struct{}
}

// routines are a library's functions for an element type.
type routines struct {
	gemm, gemv    uintptr
	rows, columns bool // whether gemv is right for a matrix and for a transposed one
}

var _ kernels.Multiplier = (*Library)(nil)

// String returns the library's name, version and file.
func (l *Library) String() string { return fmt.Sprintf("%s (%s)", l.name, l.file) }

// rest describes the products that are left to gonum.
func (l *Library) rest() string {
	if l.single.rows && l.single.columns && l.double.rows && l.double.columns {
		return ", small ones by gonum"
	}
	return ", small ones and products with vectors that failed its check by gonum"
}

// Multiply32 implements [kernels.Multiplier].
func (l *Library) Multiply32(x kernels.Matrices[float32]) bool {
	return worthwhile(x) && multiply(l, l.single, x)
}

// Multiply64 implements [kernels.Multiplier].
func (l *Library) Multiply64(x kernels.Matrices[float64]) bool {
	return worthwhile(x) && multiply(l, l.double, x)
}

// worthwhile reports whether libraries are faster than gonum. For small products, calling C and the
// copies that libraries make cost more than they gain.
func worthwhile[T kernels.Float](x kernels.Matrices[T]) bool {
	if x.N == 1 {
		return x.M*x.K >= 1<<10
	}
	return x.M*x.N*x.K >= 1<<12
}

// multiply computes the tiles of C on all cores. It returns false if the library has no function
// for the product.
func multiply[T kernels.Float](l *Library, r routines, x kernels.Matrices[T]) bool {
	if max(x.M, x.N, x.K, x.LDA, x.LDB) > math.MaxInt32 { // libraries with 32-bit integers take no more
		return false
	}
	if x.N == 1 {
		if x.TransA && !r.columns || !x.TransA && !r.rows {
			return false
		}
		rows := strip(x.M, x.K)
		l.each(kernels.CeilDiv(x.M, rows), func(i int64) {
			gemv(l, r.gemv, x, i*rows, min(rows, x.M-i*rows))
		})
		return true
	}
	rows, cols := tile(x.M, x.N, x.K)
	across := kernels.CeilDiv(x.N, cols)
	l.each(kernels.CeilDiv(x.M, rows)*across, func(i int64) {
		row, col := i/across*rows, i%across*cols
		gemm(l, r.gemm, x, row, col, min(rows, x.M-row), min(cols, x.N-col))
	})
	return true
}

// tile returns the sizes of a tile of C, which depend on the sizes of the product alone. Libraries
// first copy the rows of A and the columns of B of a tile; copying B costs more if A has few rows.
func tile(m, n, k int64) (rows, cols int64) {
	const (
		work = 1 << 24 // multiply-adds for which another core is worthwhile
		most = 64      // tiles
	)
	rows, cols = m, n
	for tiles := int64(1); tiles < most && tiles*work < m*n*k; tiles *= 2 {
		switch {
		case rows >= 256 && (rows >= cols/2 || cols <= 512):
			rows = half(rows)
		case cols > 512:
			cols = half(cols)
		default:
			return rows, cols
		}
	}
	return rows, cols
}

// strip returns how many elements of a matrix times a vector are computed at a time.
func strip(m, k int64) int64 {
	const (
		work = 1 << 18
		most = 64
	)
	rows := m
	for strips := int64(1); strips < most && strips*work < m*k && rows >= 128; strips *= 2 {
		rows = half(rows)
	}
	return rows
}

// half returns half of n, rounded up to a multiple of the elements that libraries compute at once.
func half(n int64) int64 { return kernels.CeilDiv(n, 32) * 16 }

// each calls f with 0 to n-1 from as many goroutines as there are cores.
func (l *Library) each(n int64, f func(i int64)) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
			f(i)
		}
	}
	var wg sync.WaitGroup
	if n > 1 {
		for range min(n, int64(runtime.GOMAXPROCS(0))) - 1 {
			wg.Go(work)
		}
	}
	work()
	wg.Wait()
}
