package gemm

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Small products in TF32 and BF16 are those of rounded operands, of any size, transposed or not, in any parts.
func TestMatMulSmall(t *testing.T) {
	r := testutil.Random(t)
	var plans []*kernels.Plan
	sizes := [][4]int64{{1, 5, 3, 4}, {2, 37, 41, 53}, {1, 70, 9, 130}}
	for range 3 {
		sizes = append(sizes, [4]int64{1 + r.Int64N(3), 1 + r.Int64N(70), 1 + r.Int64N(70), 1 + r.Int64N(150)})
	}
	for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16} {
		for i, s := range sizes {
			batch, m, n, k := s[0], s[1], s[2], s[3]
			a, b := uniform(r, batch*m*k), uniform(r, batch*k*n)
			c := small(strings.ToLower(by.String()), by)
			for l, parts := range []int64{1, 2, c.cluster} {
				transA, transB := i%2 == 1, (i/2+l)%2 == 1
				x := Product{Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}, Round: by}.problem(matmulDevices[1])
				p := newPlan(x.Product)
				c.emit(p, &x, c.inParts(&x, parts))
				reducedRun(t, p, a, b, by, batch, m, n, k, transA, transB)
				plans = append(plans, p)
			}
		}
	}
	checkLaunches(t, plans...)
}
