package bench

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Products of a drawn matrix and a vector of small integers are exact, by every cut of the vector kernels, and have the same bits when run again.
func TestVectorsOnGPU(t *testing.T) {
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
		p := testutil.Get[*kernels.Plan](t)(gemm.Product{Dtype: f32, Batch: batch, M: m, N: 1, K: k, A: gemm.Operand{Trans: i%2 == 0}}.Plan(dev))
		a, v := make([]float32, batch*m*k), make([]float32, batch*k)
		for j := range a {
			a[j] = float32(r.IntN(17) - 8)
		}
		for j := range v {
			v[j] = float32(r.IntN(17) - 8)
		}
		out, again := make([]float32, batch*m), make([]float32, batch*m)
		testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(v)}, kernels.Bytes(out)))
		testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(v)}, kernels.Bytes(again)))
		for b := range batch {
			for row := range m {
				want := float32(0)
				for l := range k {
					at := b*m*k + row*k + l
					if i%2 == 0 {
						at = b*m*k + l*m + row
					}
					want += a[at] * v[b*k+l]
				}
				if got := out[b*m+row]; got != want || math.Float32bits(again[b*m+row]) != math.Float32bits(got) {
					t.Fatalf("%v: row %d: got %v, %v, want %v", p, row, got, again[b*m+row], want)
				}
			}
		}
	}
}
