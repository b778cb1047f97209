package gemm

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// choicesRecord are the files of the record of choices. Some products were timed again after their kernels changed: vectors on an H100, with more loads in flight; on an H200 float64 with tiles
// that stream, sliced tiles, vectors times matrices of few columns or short rows, and float32 with 17 to 128 rows or columns, batches among them.
// Times of tall, of tall_hopper, of few long rows times a vector, and of short ones that are not aligned, are of later runs on an H200. Those of sweep-lowk.json.gz are products of up to 64 terms, and batches, those of
// sweep-tall.json.gz of up to 64 columns or rows, and outer products, those of sweep-inner.json.gz batches of few rows and columns, and those of sweep-weak.json.gz of the kinds whose choices were worst.
// Times of launches whose blocks [problem.spread] spreads are of later runs too, times that of the fastest other candidate before over its time in that run.
// Products of float32 that tall_hopper can compute have the times of later runs, with its tiles of columns.
// Those of sweep-batches.json.gz are batches of float32 with up to 32 blocks of splits for each SM.
var choicesRecord = []string{"testdata/sweep.json.gz", "testdata/sweep-vectors.json.gz", "testdata/sweep-columns.json.gz", "testdata/sweep-doubles.json.gz", "testdata/sweep-single.json.gz", "testdata/sweep-rows.json.gz", "testdata/sweep-lowk.json.gz", "testdata/sweep-tall.json.gz", "testdata/sweep-inner.json.gz", "testdata/sweep-weak.json.gz", "testdata/sweep-batches.json.gz"}

// The chosen candidate is as near to the best one as it was when the products of testdata/sweep.json.gz were timed, by TestSweepProducts of cudaops/bench.
// They were drawn after [measured] was fitted.
func TestChoicesAreNearTheBest(t *testing.T) {
	const medianAtMost, most95 = 1.01, 1.16
	products := readSweep(t, choicesRecord...)
	var ratios []float64
	for _, s := range products {
		p := s.product()
		c, x, d := choose(s.problem())
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

// A recorded product prints as the product with the function of its epilogue.
func TestSweptProductsPrint(t *testing.T) {
	products := readSweep(t, choicesRecord...)
	printed := map[string]bool{}
	for _, s := range products {
		text, names, views := "c", []string{"c"}, []codegen.View(nil)
		for _, has := range []bool{s.Bias, s.Add != ""} {
			if has {
				name := string(rune('p' + len(views)))
				text, names, views = text+" + "+name, append(names, name), append(views, codegen.View{Elements: 1, Strides: []int{0, 0, 0}})
			}
		}
		p := s.product()
		without := p
		without.epilogue = epilogue{}
		want, ok := without.With(testutil.Get[expr.Func](t)(expr.Parse(text, p.Dtype, names...)), views...)
		if !ok || p.String() != want.String() {
			t.Fatalf("%s: got %v, want %v", s.key(), p, want)
		}
		printed[text] = true
	}
	if len(printed) != 3 {
		t.Errorf("got epilogues %v, want none, and ones with an operand and with two", printed)
	}
}

// No product of the programs of testdata/programs.json.gz, which are training steps of GPTs and perceptrons and layers of a ResNet, takes 2 % longer than with the
// candidate that limits had chosen for it, Was.
func TestProgramsAreNoSlower(t *testing.T) {
	const most = 1.02
	products := readSweep(t, "testdata/programs.json.gz", "testdata/programs-vectors.json.gz", "testdata/programs-rows.json.gz")
	for _, s := range products {
		c, x, d := choose(s.problem())
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
