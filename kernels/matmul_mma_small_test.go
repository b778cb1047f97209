package kernels

import (
	"math/rand/v2"
	"testing"
)

// Small products in TF32 and BF16 are those of rounded operands, of any size, transposed or not, in any parts.
func TestMatMulSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var plans []*Plan
	sizes := [][4]int64{{1, 5, 3, 4}, {2, 37, 41, 53}, {1, 70, 9, 130}}
	for range 3 {
		sizes = append(sizes, [4]int64{1 + r.Int64N(3), 1 + r.Int64N(70), 1 + r.Int64N(70), 1 + r.Int64N(150)})
	}
	for _, by := range []Precision{TF32, BF16} {
		for i, s := range sizes {
			batch, m, n, k := s[0], s[1], s[2], s[3]
			a, b := uniform(r, batch*m*k), uniform(r, batch*k*n)
			for l, parts := range []int64{1, 2, smallJoin} {
				transA, transB := i%2 == 1, (i/2+l)%2 == 1
				p := newMatMul(Float32, batch, m, n, k)
				p.smallProduct(result{Float32, batch, m, n, Epilogue{}}, by, parts, product{Ref{0, 0}, Ref{1, 0}, batch, m, n, k, transA, transB, false})
				reducedRun(t, p, a, b, by, batch, m, n, k, transA, transB)
				plans = append(plans, p)
			}
		}
	}
	if err := Check(own, plans...); err != nil {
		t.Error(err)
	}
}
