package maintain

import (
	stdbytes "bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Errors are those of each result, and elements that should not be finite, or should, are counted.
func TestProductErrors(t *testing.T) {
	c := Product{A: "signed", B: "signed", M: 3, K: 40, N: 4}
	a, b := c.matrices()
	a[c.K] = float32(math.Inf(1)) // row 1
	right := make([]float32, c.M*c.N)
	for i := range c.M {
		for j := range c.N {
			var sum float64
			for l := range c.K {
				sum += float64(a[i*c.K+l]) * float64(b[l*c.N+j])
			}
			right[i*c.N+j] = float32(sum)
		}
	}
	off, finite, none := append([]float32(nil), right...), append([]float32(nil), right...), append([]float32(nil), right...)
	off[2] *= 1.001
	finite[5] = 1
	none[0] = float32(math.NaN())
	e := c.errors(a, b, right, off, finite, none)
	if e[0].Largest > 1 || e[0].Mean > e[0].Largest || e[0].Wrong != 0 {
		t.Errorf("of rounded sums: got %+v, want at most one unit", e[0])
	}
	if e[1].Largest < 10 || e[1].Mean < e[1].Largest/9 || e[1].Wrong != 0 {
		t.Errorf("with one element a thousandth off: got %+v", e[1])
	}
	if e[2].Wrong != 1 || e[3].Wrong != 1 || e[2].Largest != e[0].Largest {
		t.Errorf("got %+v and %+v, want one wrong element each", e[2], e[3])
	}
	c.Exact = true
	if e := c.errors(a, b, right, off); e[0].Wrong != 0 || e[1].Wrong != 1 {
		t.Errorf("exact: got %+v, want no and one wrong element", e)
	}
}

// Matrices have the elements that their kinds say.
func TestMatrices(t *testing.T) {
	const n = 64
	exponents := map[string][2]int{ // of the largest element, at least and at most
		"signed": {-1, 0}, "positive": {-1, 0}, "spread": {45, 60}, "rows": {55, 62}, "columns": {55, 62}, "far rows": {100, 120}, "sizes": {85, 100}, "tiny": {-131, -129}, "huge": {109, 110}, "small": {-71, -70},
		"greatest": {126, 127}, "least": {-10, -9}, "denormal": {-128, -126}, "mixed": {-1, 0}, "bits": {110, 127}, "identity": {0, 0}, "permutation": {0, 0}, "onehot": {0, 0}, "whole": {5, 5},
	}
	for kind, want := range exponents {
		most := 0.0
		for _, x := range matrix(kind, 1, n, n) {
			most = max(most, math.Abs(float64(x)))
		}
		if e := math.Ilogb(most); e < want[0]-1 || e > want[1] {
			t.Errorf("%s: the largest of %d elements is %g, want 2^%d to 2^%d", kind, n*n, most, want[0], want[1])
		}
	}
	for _, c := range products() {
		for _, kind := range []string{c.(Product).A, c.(Product).B} {
			if x := matrix(kind, 2, 3, 5); kind != "special" && (x[0] != x[0] || x[14] != x[14]) {
				t.Errorf("%s: got %v, want a kind of numbers", kind, x)
			}
		}
	}
	if a, b := matrix("signed", 1, 8, 8), matrix("signed", 2, 8, 8); slices.Equal(a, b) {
		t.Error("matrices of two seeds are the same")
	}
}

// The operands for another library are files of the very elements, named in the description.
func TestWriteOperands(t *testing.T) {
	dir, p := t.TempDir(), Product{Operands: "1/3 of all", A: "spread", B: "signed", M: 3, K: 40, N: 4}
	testutil.Do(t, p.WriteOperands(dir))
	a, b := p.matrices()
	d := p.Describe().(map[string]any)
	for name, want := range map[string][]float32{"a": a, "b": b} {
		if got := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, d[name].(string)))); !stdbytes.Equal(got, kernels.Bytes(want)) {
			t.Errorf("%v has other elements than %s", d[name], name)
		}
	}
}
