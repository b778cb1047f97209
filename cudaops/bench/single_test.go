package bench

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Float32 products are within 2^-21 of the magnitude of their terms, of elements of any size, and have the infinities and NaN of IEEE arithmetic: by all kernels that split operands in
// registers, and of each product by some others.
func TestSingleForms(t *testing.T) {
	r, dev := random(t), device0(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skipf("SKIPPED, NOT TESTED: %s has no such kernel", dev.Name)
	}
	inf, largest := math.Inf(1), float64(math.MaxFloat32)
	both := func(elements ...float64) [2][]float64 { return [2][]float64{elements, elements} }
	numbers := []struct {
		name      string
		exponents [2]int       // of the sizes of A's and B's elements
		rare      [2][]float64 // elements among them, of A and of B
	}{
		{name: "near 1"}, {name: "zeros", rare: both(0)}, {name: "special", rare: both(inf, -inf, math.NaN())}, {name: "infinite", rare: both(inf)}, {name: "infinite and zeros", rare: both(inf, -inf, 0, 0)},
		{name: "tiny and large", exponents: [2]int{-120, 118}}, {name: "large and tiny", exponents: [2]int{119, -121}},
		{name: "subnormal and large", exponents: [2]int{-140, 100}}, {name: "large and subnormal", exponents: [2]int{100, -140}},
		{name: "tiny", rare: both(0x1p-149, 0x1.8p-126, 0x1.fffffep-127)}, {name: "large", rare: both(0x1p126, -largest, 0x1p60)},
		{name: "rare sizes", rare: both(0x1p-130, 0x1p-149, 0x1p126, -largest)}, {name: "largest and infinite", exponents: [2]int{0, -20}, rare: [2][]float64{{largest}, {inf}}},
		{name: "least and moderate", exponents: [2]int{30, 30}, rare: both(0x1p-149)}, {name: "largest products", rare: both(0x1.fffp63, -0x1.fffp63)},
	}
	plans, others := 0, 0
	for i, s := range [][4]int64{{1, 37, 201, 260}, {2, 66, 129, 200}, {3, 102, 64, 77}, {1, 128, 384, 512}, {1, 17, 130, 51}, {2, 48, 131, 1028}, {9, 7, 12, 300}, {1, 301, 1, 203}, {2, 60, 310, 9}, {1, 200, 150, 1}} {
		for transposes := range 4 {
			for j, c := range numbers {
				if testing.Short() && (i+transposes+j)%12 != 0 {
					continue // a checker follows every access
				}
				p := gemm.Product{Dtype: f32, Batch: s[0], M: s[1], N: s[2], K: s[3], A: gemm.Operand{Trans: transposes >= 2}, B: gemm.Operand{Trans: transposes%2 == 1}}
				if (i+j)%2 == 1 {
					p.M, p.N = p.N, p.M
				}
				var operands [2][]float64
				where := r.IntN(3) // in A, B or both
				for o := range operands {
					every := []int{1, 30, 300, 3000}[r.IntN(4)]
					x := between1(r, p.Batch*p.K*[]int64{p.M, p.N}[o])
					for e := range x {
						if x[e] = float64(float32(math.Ldexp(x[e], c.exponents[o]))); c.rare[o] != nil && where != 1-o && r.IntN(every) == 0 {
							x[e] = c.rare[o][r.IntN(len(c.rare[o]))]
						}
					}
					operands[o] = x
				}
				want, magnitude := productOf(p, operands[0], operands[1])
				inputs := operands[:]
				if (i+j)%3 == 2 { // an epilogue
					x := between1(r, p.Batch*p.M*p.N)
					inputs = append(inputs, x)
					view := codegen.View{Elements: int64(len(x)), Strides: []int{int(p.M * p.N), int(p.N), 1}}
					p, _ = p.With(testutil.Get[expr.Func](t)(expr.Parse("c + x", f32, "c", "x")), view)
					for e := range x {
						want[e], magnitude[e] = want[e]+x[e], magnitude[e]+math.Abs(x[e])
					}
				}
				names, _, list, err := gemm.Candidates(p, dev)
				testutil.Do(t, err)
				seen := map[string]bool{}
				for n, plan := range list {
					kernel, cut, _ := strings.Cut(names[n], "[")
					if !strings.HasPrefix(cut, "1 ") {
						kernel += " in parts of K"
					}
					inRegisters := strings.HasPrefix(kernel, "single_") || strings.HasPrefix(kernel, "tall_hopper")
					if seen[kernel] || testing.Short() && (len(seen) > 1 || !inRegisters) || !inRegisters && r.IntN(8) > 0 {
						continue
					}
					if !inRegisters && c.name == "rare sizes" {
						continue // sums of other kernels may overflow: elements differ by more than 2^200
					}
					if seen[kernel] = true; inRegisters {
						plans++
					} else {
						others++
					}
					if fault := unlikeIEEE(t, plan, want, magnitude, p.K, inputs); fault != "" {
						t.Errorf("%v, %v, %s, %s: %s", p, s, c.name, names[n], fault)
					}
				}
			}
		}
	}
	if want := 20; plans < want || others < want && !testing.Short() {
		t.Errorf("got %d plans of kernels that split operands in registers and %d others, want %d or more of each", plans, others, want)
	}
}

// unlikeIEEE runs a plan and says where its result differs from what is wanted, "" if nowhere. NaN are the ones nearest to infinity.
func unlikeIEEE(t *testing.T, p *kernels.Plan, want, magnitude []float64, k int64, operands [][]float64) string {
	var inputs [][]byte
	for _, x := range operands {
		inputs = append(inputs, kernels.Bytes(convert(x, func(e float64) float32 {
			if e != e {
				return math.Float32frombits(0x7f800001)
			}
			return float32(e)
		})))
	}
	out := make([]float32, len(want))
	testutil.Do(t, Run(0, p, inputs, kernels.Bytes(out)))
	for i, w := range want {
		got, allowed := float64(out[i]), 0x1p-21*magnitude[i]+0x1p-149*float64(k)
		switch {
		case magnitude[i] > math.MaxFloat32 && !math.IsInf(magnitude[i], 1): // a sum may overflow or not
		case math.IsNaN(w) && math.IsNaN(got) || w == got:
		case math.IsInf(w, 0) || !(math.Abs(got-w) <= allowed):
			return fmt.Sprintf("element %d: got %v, want %v within %v", i, got, w, allowed)
		}
	}
	return ""
}
