package bench

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Products of a drawn matrix and a vector of small integers are exact by the chosen candidate and by others that are drawn, and so again in a second run.
func TestVectorsOnGPU(t *testing.T) {
	t.Run("float32", func(t *testing.T) { vectorsOnGPU[float32](t, f32) })
	t.Run("float64", func(t *testing.T) { vectorsOnGPU[float64](t, f64) })
}

func vectorsOnGPU[T kernels.Float](t *testing.T, dtype kernels.Dtype) {
	const others = 4 // candidates of a product
	dev, r := device0(t), random(t)
	for i := range 60 {
		if testing.Short() && i > 12 {
			break
		}
		k, m, batch := logUniform(r, 1, 20000), logUniform(r, 1, 5000), int64(1)
		if i%4 == 0 {
			batch = 1 + r.Int64N(3)
		}
		for k*m*batch > 8<<20 {
			k = k/2 + 1
		}
		if i%3 == 0 {
			m = (m + 3) &^ 3
		}
		switch i % 6 {
		case 1: // few long rows
			k, m = logUniform(r, 2000, 60000), logUniform(r, 1, 100)
		case 3: // short rows
			k, m, batch = 2+r.Int64N(255), 3200+r.Int64N(20000), 1
		}
		if i%12 == 3 { // rows begin at multiples of 16 bytes
			k = (k + 3) &^ 3
		}
		p := gemm.Product{Dtype: dtype, Batch: batch, M: m, N: 1, K: k, A: gemm.Operand{Trans: i%2 == 0}}
		names, _, plans, err := gemm.Candidates(p, dev)
		testutil.Do(t, err)
		a, v := make([]T, batch*m*k), make([]T, batch*k)
		for j := range a {
			a[j] = T(r.IntN(17) - 8)
		}
		for j := range v {
			v[j] = T(r.IntN(17) - 8)
		}
		out, want := make([]T, batch*m), make([]T, batch*m)
		for b := range batch {
			for row := range m {
				for l := range k {
					at := b*m*k + row*k + l
					if p.A.Trans {
						at = b*m*k + l*m + row
					}
					want[b*m+row] += a[at] * v[b*k+l]
				}
			}
		}
		for n := range 1 + others {
			which := r.IntN(len(plans))
			if n == 0 {
				which = 0
			}
			for range 2 {
				clear(out)
				testutil.Do(t, Run(0, plans[which], [][]byte{kernels.Bytes(a), kernels.Bytes(v)}, kernels.Bytes(out)))
				for row, got := range out {
					if got != want[row] {
						t.Fatalf("%v, %d x (%d x %d), %s: row %d: got %v, want %v", p, batch, m, k, names[which], row, got, want[row])
					}
				}
			}
		}
	}
}
