// Package hostproduct multiplies matrices on processors with AVX, with the bits of gonum's Sgemm and Dgemm in a fraction of the time.
package hostproduct

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A tile of C stays in registers while depth terms are added to it. The columns of B of a tile stay in the first-level cache, the rows of A of a block in the second.
const (
	tileRows, tileBytes  = 4, 64 // of a row
	blockRows, blockCols = 64, 128
	depth                = 256
)

// Multiply computes C = op(A) B, or returns false where it is not faster than gonum. C is m x n without a gap. Both add each element's terms to 0 in order, and round
// products and sums. But gonum skips the terms of zeros of A, which are not 0 where B is NaN or Inf.
func Multiply[T float32 | float64](transA bool, m, n, k int64, a []T, lda int64, b []T, ldb int64, c []T) bool {
	size := int64(unsafe.Sizeof(*new(T)))
	tileCols := tileBytes / size
	if !available || m < tileRows || n < tileCols || k == 0 {
		return false
	}
	clear(c[:m*n])
	across := (n + blockCols - 1) / blockCols
	blocks := (m + blockRows - 1) / blockRows * across
	workers := int64(1)
	if blocks > 1 && m*n*k > 1<<18 { // else one is done before another has started
		workers = min(blocks, int64(runtime.GOMAXPROCS(0)))
	}
	var next atomic.Int64
	work := func() {
		rows, cols := make([]T, blockRows*depth), make([]T, tileCols*depth)
		for block := next.Add(1) - 1; block < blocks; block = next.Add(1) - 1 {
			i0, j0 := block/across*blockRows, block%across*blockCols
			i1, j1 := min(i0+blockRows, m), min(j0+blockCols, n)
			for k0 := int64(0); k0 < k; k0 += depth {
				terms := min(depth, k-k0)
				for i := i0; i < i1; i += tileRows {
					packed := rows[(i-i0)*depth:]
					if transA {
						pack(packed, a[k0*lda+i:], terms, min(tileRows, i1-i), lda, tileRows)
					} else {
						interleave(packed, a[i*lda+k0:], terms, min(tileRows, i1-i), lda)
					}
				}
				for j := j0; j < j1; j += tileCols {
					wide := min(tileCols, j1-j)
					pack(cols, b[k0*ldb+j:], terms, wide, ldb, tileCols)
					for i := i0; i < i1; i += tileRows {
						packed, high := &rows[(i-i0)*depth], min(tileRows, i1-i)
						if out := c[i*n+j:]; high == tileRows && wide == tileCols {
							tile(terms, packed, &cols[0], &out[0], size*n)
						} else {
							var edge [tileRows * tileBytes / 4]T
							for r := range high {
								copy(edge[r*tileCols:], out[r*n:r*n+wide])
							}
							tile(terms, packed, &cols[0], &edge[0], tileBytes)
							for r := range high {
								copy(out[r*n:r*n+wide], edge[r*tileCols:])
							}
						}
					}
				}
			}
		}
	}
	var wait sync.WaitGroup
	for range workers - 1 {
		wait.Go(work)
	}
	work()
	wait.Wait()
	return true
}

// tile adds the product of packed rows of A and columns of B, of k > 0 terms, to a tile of C, whose rows are stride bytes apart.
func tile[T float32 | float64](k int64, a, b, c *T, stride int64) {
	switch a := any(a).(type) {
	case *float32:
		tile32(k, a, any(b).(*float32), any(c).(*float32), stride)
	case *float64:
		tile64(k, a, any(b).(*float64), any(c).(*float64), stride)
	}
}

// pack copies rows of n elements to rows of width elements, the others of which are 0.
func pack[T any](to, from []T, rows, n, ld, width int64) {
	for i := range rows {
		row := to[i*width : (i+1)*width]
		clear(row[copy(row, from[i*ld:i*ld+n]):])
	}
}

// interleave copies the elements of n rows to rows of tileRows elements, the others of which are 0.
func interleave[T any](to, from []T, elements, n, ld int64) {
	if n < tileRows {
		clear(to[:elements*tileRows])
	}
	for i := range n {
		for l, v := range from[i*ld : i*ld+elements] {
			to[int64(l)*tileRows+i] = v
		}
	}
}
