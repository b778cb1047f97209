// Package hostproduct multiplies matrices of float32 on processors with AVX, with the bits of gonum's Sgemm in a fraction of the time.
package hostproduct

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A tile of C stays in registers while depth terms are added to it. The columns of B of a tile stay in the first-level cache, the rows of A of a block in the second.
const (
	tileRows, tileCols   = 4, 16
	blockRows, blockCols = 64, 128
	depth                = 256
)

// Multiply computes C = op(A) B, or returns false where it is not faster than gonum. C is m x n without a gap. Both add each element's terms to 0 in order, and round
// products and sums. But gonum skips the terms of zeros of A, which are not 0 where B is NaN or Inf.
func Multiply(transA bool, m, n, k int64, a []float32, lda int64, b []float32, ldb int64, c []float32) bool {
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
		rows, cols := make([]float32, blockRows*depth), make([]float32, tileCols*depth)
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
							tile(terms, packed, &cols[0], &out[0], 4*n)
						} else {
							var edge [tileRows * tileCols]float32
							for r := range high {
								copy(edge[r*tileCols:], out[r*n:r*n+wide])
							}
							tile(terms, packed, &cols[0], &edge[0], 4*tileCols)
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

// pack copies rows of n elements to rows of width elements, the others of which are 0.
func pack(to, from []float32, rows, n, ld, width int64) {
	for i := range rows {
		row := to[i*width : (i+1)*width]
		clear(row[copy(row, from[i*ld:i*ld+n]):])
	}
}

// interleave copies the elements of n rows to rows of tileRows elements, the others of which are 0.
func interleave(to, from []float32, elements, n, ld int64) {
	if n < tileRows {
		clear(to[:elements*tileRows])
	}
	for i := range n {
		for l, v := range from[i*ld : i*ld+elements] {
			to[int64(l)*tileRows+i] = v
		}
	}
}
