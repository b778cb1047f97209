package gemm

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// The chosen candidate is as near to the best one as it was when the products of testdata/sweep.json were timed, by TestSweepProducts of cudaops/bench.
func TestChoicesAreNearTheBest(t *testing.T) {
	const medianAtMost, most95 = 1.05, 1.4
	var record struct {
		Device   kernels.Device
		Products []struct {
			Dtype, Round   string
			Batch, M, N, K int64
			TransA, TransB bool
			Us             map[string]float64 // by candidate; slower than three times the best are left out
		}
	}
	testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile("testdata/sweep.json")), &record))
	var ratios []float64
	for _, s := range record.Products {
		p := Product{Dtype: kernels.Float32, Batch: s.Batch, M: s.M, N: s.N, K: s.K, A: Operand{Trans: s.TransA}, B: Operand{Trans: s.TransB}}
		if s.Dtype == kernels.Float64.String() {
			p.Dtype = kernels.Float64
		}
		for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16} {
			if s.Round == by.String() {
				p.Round = by
			}
		}
		c, x, d := choose(p.problem(record.Device))
		chosen := option{c, x, d}.String()
		ratio := testutil.OverBest(s.Us, chosen)
		if ratio > 1.25 {
			t.Logf("%v, %d x (%d x %d x %d) of %v: %s takes %.2f times the least", p, s.Batch, s.M, s.K, s.N, p.Dtype, chosen, ratio)
		}
		ratios = append(ratios, ratio)
	}
	slices.Sort(ratios)
	n := len(ratios)
	if n < 100 {
		t.Fatalf("got %d products, want 100 or more", n)
	}
	median, most := ratios[n/2], ratios[n*95/100]
	t.Logf("%d products, median %.3f, 95 %% %.3f, worst %.2f", n, median, most, ratios[n-1])
	if median > medianAtMost || most > most95 {
		t.Errorf("got a median of %.3f and %.3f for 95 %%, want %.2f and %.2f at most", median, most, medianAtMost, most95)
	}
}
