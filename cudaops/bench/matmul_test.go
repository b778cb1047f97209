package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// matmulForms are products small enough for sanitizers, with a kernel that computes them in
// float32, or float64, on a device of compute capability 9.0 with so few SMs.
var matmulForms = []struct {
	sms            int
	batch, m, n, k int64
	kernel         string // before its type, or its transposes; several with | between: a candidate's
}{
	{1, 1, 256, 250, 803, "matmul_double_large<"},
	{2, 1, 130, 250, 1602, "matmul_double_small<"},
	{1, 2, 129, 140, 100, "matmul_double_small<"},
	{4, 1, 64, 66, 900, "matmul_double_small<"}, // copies
	{132, 1, 64, 65, 5000, "matmul_double_small<"},
	{8, 1, 129, 133, 43, "matmul_double_small<"},
	{132, 1, 130, 67, 100, "matmul_double_tiny<"},
	{132, 1, 40, 50, 403, "matmul_double_tiny<"},
	{132, 2, 33, 47, 31, "matmul_double_tiny<"},
	{16, 1, 65, 66, 1000, "matmul_double_tiny<"},
	{1, 1, 65, 131, 70, "matmul_large_"},
	{2, 1, 66, 68, 250, "matmul_medium_"},
	{8, 1, 65, 66, 1000, "matmul_joined_medium_"},
	{2, 1, 61, 130, 250, "matmul_large_|matmul_medium_"}, // medium in float64
	{8, 1, 62, 200, 1000, "matmul_joined_medium_"},
	{1, 1, 33, 40, 5, "matmul_short_"},
	{132, 3, 29, 34, 100, "matmul_joined_small_"},
	{1, 2, 29, 34, 100, "matmul_small_"},
	{132, 1, 35, 10, 300, "matmul_joined_thin_"},
	{132, 1, 7, 36, 2000, "matmul_thin_"},
	{1, 1, 130, 201, 128, "matmul_hopper_f32_"},
	{8, 1, 130, 200, 1000, "matmul_hopper_f32_"},
	{2, 1, 260, 641, 65, "matmul_hopper_f32_pair_"},
	{1, 1, 70, 301, 1, "matmul_outer4_"},
	{1, 2, 40, 302, 5, "matmul_outer8_|matmul_tall"},
	{1, 3, 19, 260, 13, "matmul_outer16_|matmul_tall"},
	{1, 1, 97, 257, 9, "matmul_outer16_|matmul_short_"},
	{1, 1, 130, 1031, 3, "matmul_outer4_|matmul_short_"},
	{1, 1, 1000, 31, 1, "matmul_tall"}, // rows of any alignment; small matrices; more than 64 columns
	{1, 3, 333, 5, 3, "matmul_tall"},
	{1, 5, 141, 3, 2, "matmul_tall"},
	{2, 2, 211, 126, 8, "matmul_tall"},
	{1, 3, 57, 127, 16, "matmul_tall"},
	{1, 1, 640, 102, 4, "matmul_tall"},
	{1, 1, 1000, 7, 5, "matmul_tall"},
	{1, 3, 300, 16, 32, "matmul_tall"},
	{1, 2, 3, 901, 8, "matmul_tall"},
	{1, 1, 2, 5000, 1, "matmul_tall"},
	{40, 30, 10, 10, 4, "matmul_tall"},
	{1, 11, 9, 7, 16, "matmul_tall"},
	{1, 30, 4, 4, 4, "matmul_tall"},
	{1, 5, 33, 21, 7, "matmul_tall"},
	{1, 9, 38, 50, 8, "matmul_tall"},
	{1, 7, 65, 19, 13, "matmul_tall"},
	{1, 17, 2, 3, 333, "matmul_inner2_"}, // a tile, several, the most rows; a warp a tile or several
	{1, 19, 8, 8, 70, "matmul_inner8_|matmul_inner4_"},
	{2, 16, 7, 16, 530, "matmul_inner8_|matmul_inner4_"},
	{1, 16, 16, 3, 2001, "matmul_inner2_|matmul_inner4_"},
	{1, 2, 3, 1030, 75, "matmul_strip4_|matmul_narrow4_"},
	{1, 1, 7, 515, 130, "matmul_strip8_|matmul_narrow8_"},
	{2, 1, 5, 2051, 200, "matmul_strip8_|matmul_narrow8_"},
	{1, 2, 1030, 8, 75, "matmul_strip8_|matmul_narrow8_"},
	{1, 1, 2600, 14, 110, "matmul_strip16_|matmul_narrow16_"},
	{1, 1, 2601, 14, 111, "matmul_strip16_|matmul_narrow16_"},
	{1, 3, 11, 1001, 150, "matmul_strip16_|matmul_narrow12_"},
	{4, 1, 1003, 12, 2102, "matmul_strip16_|matmul_narrow12_"},
	{1, 1, 1030, 3, 301, "matmul_strip4_|matmul_narrow4_"},
	{16, 1, 300, 6, 7001, "matmul_strip8_|matmul_narrow8_"}, // copies
	{1, 1, 1031, 7, 302, "matmul_strip8_|matmul_narrow8_"},
	{1, 2, 141, 130, 100, "matmul_double_small<"}, // rows of one operand aligned
	{1, 1, 130, 141, 100, "matmul_double_small<"},
	{1, 1, 97, 257, 22, "matmul_band_"}, // an even number of terms, an odd one, the most; rows and columns that fill no tile
	{1, 3, 70, 131, 33, "matmul_band_"},
	{2, 1, 130, 1031, 48, "matmul_band_"},
	{1, 1, 515, 100, 17, "matmul_band_"},
	{1, 1, 29, 301, 403, "matmul_double_rows"}, // few rows, no rows or all rows of the large operand aligned
	{1, 3, 32, 142, 130, "matmul_double_rows"},
	{4, 1, 31, 260, 1003, "matmul_double_rows"},
	{1, 1, 303, 24, 250, "matmul_double_rows"},
	{1, 2, 142, 17, 201, "matmul_double_rows"},
	{4, 1, 258, 32, 1602, "matmul_double_rows"},
	{1, 1, 29, 1050, 70, "matmul_double_rows"}, // blocks of several tiles
	{1, 1, 1154, 22, 36, "matmul_double_rows"},
	{1, 2, 1141, 25, 100, "matmul_tall_hopper32_"}, // several tiles of a warpgroup, rows of 16, 4 and 8 bytes, a slice that is not whole
	{132, 3, 50, 131, 77, "matmul_tall_hopper64_"},
	{2, 1, 300, 72, 66, "matmul_tall_hopper96_"},
	{4, 1, 120, 260, 40, "matmul_tall_hopper128_"},
}

// Every form of the product is exact where numbers are whole, their sums small, and one
// operand's numbers need more than one plane of BF16.
func TestMatMulForms(t *testing.T) {
	r := random(t)
	for i, dev := range productDevices(t) {
		formsOn(t, r, dev, i > 0)
	}
}

// Every candidate of drawn products is exact where numbers are whole and their sums small; one that was chosen for a plan as well.
func TestMatMulCandidates(t *testing.T) {
	r, dev := random(t), device0(t)
	kernelsRun, count := map[string]bool{}, 0
	cases := 40
	if testing.Short() {
		cases = 4
	}
	for range cases {
		size := func(most float64) int64 { return logUniform(r, 1, most) }
		p := gemm.Product{Dtype: []kernels.Dtype{f32, f64}[r.IntN(2)], Batch: 1, M: size(300), N: size(300), K: size(1000), A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}
		switch r.IntN(4) {
		case 0:
			p.Batch = size(20)
		case 1:
			p.M = 1 + r.Int64N(16)
		case 2:
			p.N = 1 + r.Int64N(2)
		}
		if p.Dtype == f32 {
			p.Round = []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16}[r.IntN(4)]
		}
		names, _, plans, err := gemm.Candidates(p, dev)
		testutil.Do(t, err)
		for i, plan := range plans {
			kernel, _, _ := strings.Cut(names[i], "[")
			if i > 0 && kernelsRun[kernel] && r.IntN(3) > 0 {
				continue
			}
			kernelsRun[kernel] = true
			count++
			t.Run(fmt.Sprintf("%v %d x %dx%dx%d %v %s", p, p.Batch, p.M, p.K, p.N, p.Dtype, names[i]), func(t *testing.T) {
				switch {
				case p.Round != kernels.FullPrecision:
					most := [2]int{1, 1<<significant[p.Round] - 1}
					whole := func(operand int) float32 { return float32(r.IntN(2*most[operand]+1) - most[operand]) }
					reduced(t, plan, p.Batch, p.M, p.N, p.K, p.A.Trans, p.B.Trans, whole, func(x float32) float64 { return float64(x) }, 0)
				case p.Dtype == f32:
					runProduct[float32](t, r, plan, p.Batch, p.M, p.N, p.K, p.A.Trans, p.B.Trans)
				default:
					runProduct[float64](t, r, plan, p.Batch, p.M, p.N, p.K, p.A.Trans, p.B.Trans)
				}
			})
		}
	}
	t.Logf("%d candidates of %d kernels", count, len(kernelsRun))
}

// tensorForm reports whether a form is on the tensor cores, and returns the kernel that takes it by plans of 8.0.
func tensorForm(kernel string) (string, bool) {
	if isDouble(kernel) {
		return "matmul_mma_f64<", true
	}
	name, ok := strings.CutPrefix(kernel, "matmul_hopper_")
	return "matmul_mma_" + strings.Replace(name, "_pair", "", 1), ok
}

// isDouble reports whether a form is of float64.
func isDouble(kernel string) bool {
	return strings.HasPrefix(kernel, "matmul_double_") || strings.HasPrefix(kernel, "matmul_mma_f64")
}

// formsOn runs the forms on a device; as8 is set if it has the plans of 8.0, of which those on the tensor cores are run.
func formsOn(t *testing.T, r *rand.Rand, dev kernels.Device, as8 bool) {
	for i, f := range matmulForms {
		if as8 {
			kernel, ok := tensorForm(f.kernel)
			if !ok || isDouble(kernel) && min(f.m, f.n) <= 32 { // few rows: tiles there
				continue
			}
			f.kernel = kernel
		}
		dev.SMs = f.sms
		for transposes := range 4 {
			if testing.Short() && transposes != i%4 {
				continue // a checker follows every access
			}
			transA, transB := transposes >= 2, transposes%2 == 1
			for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
				p := gemm.Product{Dtype: dt, Batch: f.batch, M: f.m, N: f.n, K: f.k, A: gemm.Operand{Trans: transA}, B: gemm.Operand{Trans: transB}}
				_, _, plans, err := gemm.Candidates(p, dev)
				testutil.Do(t, err)
				most := 1
				if isDouble(f.kernel) == (dt == kernels.Float64) {
					most = 2 // cuts
					if plans = slices.DeleteFunc(plans, func(p *kernels.Plan) bool {
						return !slices.ContainsFunc(strings.Split(f.kernel, "|"), func(kernel string) bool { return strings.Contains(p.String(), " "+kernel) })
					}); len(plans) == 0 && (as8 || dev.Major == 9) {
						t.Errorf("%v %d x %dx%dx%d %v: got no candidate with %s", p, f.batch, f.m, f.k, f.n, dt, f.kernel)
					}
					r.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
				}
				for _, plan := range plans[:min(len(plans), most)] {
					t.Run(fmt.Sprintf("%s transposed %v %v on %d.%d", plan.Op, transA, transB, dev.Major, dev.Minor), func(t *testing.T) {
						if dt == kernels.Float32 {
							runProduct[float32](t, r, plan, f.batch, f.m, f.n, f.k, transA, transB)
						} else {
							runProduct[float64](t, r, plan, f.batch, f.m, f.n, f.k, transA, transB)
						}
					})
				}
			}
		}
	}
}

// operandStrides returns the elements from a row of op(A) and of op(B) to the next, and from a column.
func operandStrides(m, n, k int64, transA, transB bool) (rowA, colA, rowB, colB int64) {
	rowA, colA, rowB, colB = k, 1, n, 1
	if transA {
		rowA, colA = 1, m
	}
	if transB {
		rowB, colB = 1, k
	}
	return rowA, colA, rowB, colB
}

// runProduct runs a plan of a product of whole numbers and compares with plain loops.
func runProduct[T kernels.Float](t *testing.T, r *rand.Rand, p *kernels.Plan, batch, m, n, k int64, transA, transB bool) {
	a, b, out := make([]T, batch*m*k), make([]T, batch*k*n), make([]T, batch*m*n)
	size := r.IntN(2) // selects which of A and B has large numbers
	for i, x := range [][]T{a, b} {
		most := []int{1, 4095}[(size+i)%2]
		for j := range x {
			x[j] = T(r.IntN(2*most+1) - most)
		}
	}
	testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)))
	wanted, _ := productsOf(widened(a), widened(b), batch, m, n, k, transA, transB)
	for i, got := range out {
		if want := T(wanted[i]); got != want {
			t.Fatalf("%v: c[%d][%d][%d] = %v, want %v", p, int64(i)/(m*n), int64(i)/n%m, int64(i)%n, got, want)
		}
	}
}
