package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// hardDoubles draw the operands of a product in float64.
var hardDoubles = []struct {
	name string
	draw func(r *rand.Rand) float64
}{
	{"uniform", func(r *rand.Rand) float64 { return 2*r.Float64() - 1 }},
	{"spread", func(r *rand.Rand) float64 { return math.Ldexp(r.NormFloat64(), r.IntN(121)-60) }},
	{"denormal", func(r *rand.Rand) float64 { return math.Ldexp(r.NormFloat64(), []int{-1060, 10}[r.IntN(2)]) }},
	{"infinite", func(r *rand.Rand) float64 { return sometimes(r, math.Inf(r.IntN(2)*2-1)) }},
	{"NaN", func(r *rand.Rand) float64 { return sometimes(r, math.NaN()) }},
}

// sometimes is x once in a while, else a number.
func sometimes(r *rand.Rand, x float64) float64 {
	if r.IntN(2000) == 0 {
		return x
	}
	return r.NormFloat64()
}

// Products in float64 on the tensor cores err by a rounding a term at most, infinities and NaN are as IEEE says, for any sizes and
// transposes.
func TestDoubleAccuracy(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		for i, numbers := range hardDoubles {
			for transposes := range 4 {
				if testing.Short() && transposes != i%4 {
					continue // a checker follows every access
				}
				dev.SMs = 1 + r.IntN(8)
				batch, m, n, k := 1+r.Int64N(3), 33+r.Int64N(140), 33+r.Int64N(140), 17+r.Int64N(600)
				transA, transB := transposes >= 2, transposes%2 == 1
				p := product(t, dev, 0, kernels.Float64, batch, m, n, k, transA, transB)
				t.Run(fmt.Sprintf("%s %s %s %v %v", dev.Name, numbers.name, p.Op, transA, transB), func(t *testing.T) {
					if dev.Major == 8 && dev.Minor == 0 && !strings.Contains(p.String(), "matmul_mma_f64") {
						t.Errorf("%v: want the tensor cores", p)
					}
					a, b, out := make([]float64, batch*m*k), make([]float64, batch*k*n), make([]float64, batch*m*n)
					for _, x := range [][]float64{a, b} {
						for j := range x {
							x[j] = numbers.draw(r)
						}
					}
					testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)))
					checkDoubles(t, out, a, b, m, n, k, transA, transB)
				})
			}
		}
	}
}

// checkDoubles compares a product with sums that carry what they round off.
func checkDoubles(t *testing.T, out, a, b []float64, m, n, k int64, transA, transB bool) {
	t.Helper()
	rowA, colA, rowB, colB := operandStrides(m, n, k, transA, transB)
	for i, got := range out {
		z, row, col := int64(i)/(m*n), int64(i)/n%m, int64(i)%n
		var sum, rest, plain, abs float64
		for l := range k {
			x, y := a[z*m*k+row*rowA+l*colA], b[z*k*n+l*rowB+col*colB]
			term := x * y
			s := sum + term
			part := s - sum
			rest += (sum - (s - part)) + (term - part) + math.FMA(x, y, -term)
			sum, plain, abs = s, plain+term, abs+math.Abs(term)
		}
		want := sum + rest
		if plain-plain != 0 { // Inf or NaN: no sum of finite terms is
			want = plain
		}
		if want-want != 0 && (got == want || got != got && want != want) {
			continue
		}
		if e := math.Abs(got - want); !(e <= float64(k)*(abs*0x1p-53+0x1p-1074)) {
			t.Fatalf("c[%d][%d][%d] = %v, want %v within %d roundings of terms whose sizes add up to %v", z, row, col, got, want, k, abs)
		}
	}
}
