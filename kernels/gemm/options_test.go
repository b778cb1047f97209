package gemm

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Every candidate has a plan that an H200 can launch, and the first is the plan of the product.
func TestCandidates(t *testing.T) {
	r := testutil.Random(t)
	dev := tensorDevices[0]
	options := 0
	for range 60 {
		size := func(most int) int64 { return 1 << r.IntN(most) * (1 + int64(r.IntN(3))) }
		p := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)], Batch: size(4), M: size(11), N: size(11), K: size(12)}
		p.A.Trans, p.B.Trans = r.IntN(2) == 0, r.IntN(2) == 0
		if p.Dtype == kernels.Float32 {
			p.Round = []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16}[r.IntN(3)]
		}
		want, err := p.Plan(dev)
		testutil.Do(t, err)
		names, _, plans, err := Candidates(p, dev)
		testutil.Do(t, err)
		options += len(names)
		for i, plan := range plans {
			if err := plan.Check(dev); err != nil {
				t.Errorf("%v %d x %d x %d x %d, %s: %v", p, p.Batch, p.M, p.K, p.N, names[i], err)
			}
		}
		if got := plans[0].Launches; len(got) != len(want.Launches) || got[0].Kernel.Entry != want.Launches[0].Kernel.Entry || got[0].Grid != want.Launches[0].Grid {
			t.Errorf("%v %d x %d x %d x %d: the first candidate is %s, want the plan's", p, p.Batch, p.M, p.K, p.N, names[0])
		}
	}
	t.Logf("%d candidates", options)
}
