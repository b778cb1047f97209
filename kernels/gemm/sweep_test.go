package gemm

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The chosen candidate is as near to the best one as it was when the products of testdata/sweep.json were timed, by TestSweepProducts of cudaops/bench.
// They were drawn after [measured] was fitted.
func TestChoicesAreNearTheBest(t *testing.T) {
	const medianAtMost, most95 = 1.01, 1.2
	dev, products := readSweep(t, "testdata/sweep.json")
	var ratios []float64
	for _, s := range products {
		p := s.product()
		c, x, d := choose(p.problem(dev))
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

// No product of the programs of testdata/programs.json, which are training steps of GPTs and perceptrons and layers of a ResNet, takes 2 % longer than with the
// candidate that limits had chosen for it, Was.
func TestProgramsAreNoSlower(t *testing.T) {
	const most = 1.02
	dev, products := readSweep(t, "testdata/programs.json")
	for _, s := range products {
		c, x, d := choose(s.product().problem(dev))
		chosen := option{c, x, d}.String()
		if us, ok := s.Us[chosen]; !ok || us > most*s.Us[s.Was] {
			t.Errorf("%s: %s takes %.2f us, 0 if it was not timed, want at most %.2f times the %.2f us of %s", s.key(), chosen, us, most, s.Us[s.Was], s.Was)
		}
	}
	if len(products) < 300 {
		t.Errorf("got %d products, want 300 or more", len(products))
	}
}

// Each exception is a candidate of its product, and chosen for it.
func TestExceptions(t *testing.T) {
	for p, name := range exceptions {
		x := Product{Dtype: p.dtype, Batch: p.batch, M: p.m, N: p.n, K: p.k, A: p.a, B: p.b, Round: p.round, C: p.c}.problem(h200)
		c, as, d := choose(x)
		if c == nil || (option{c, as, d}).String() != name {
			t.Errorf("%+v: got %v, want %s", p, option{c, as, d}, name)
		}
	}
}
