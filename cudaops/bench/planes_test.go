package bench

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// A product whose operands, one or both, were split before has the bits of the plain product: for numbers near 1, and for numbers
// that the product must split again with scaling.
func TestPlanes(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		planesOn(t, r, dev)
	}
}

func planesOn(t *testing.T, r *rand.Rand, dev kernels.Device) {
	run := func(of kernels.Planner, inputs ...[]byte) []byte {
		p := testutil.Get[*kernels.Plan](t)(of.Plan(dev))
		out := make([]float64, kernels.CeilDiv(p.Out, 8)) // aligned
		testutil.Do(t, Run(0, p, inputs, kernels.Bytes(out)[:p.Out]))
		return kernels.Bytes(out)[:p.Out]
	}
	for i, c := range []struct {
		sms            int
		batch, m, n, k int64
		exponents      [2]int
		rare           float32 // a number of the first operand
	}{
		{1, 1, 200, 201, 228, [2]int{0, 0}, 1},
		{2, 2, 260, 229, 203, [2]int{0, 0}, 1},
		{1, 1, 250, 251, 300, [2]int{-140, 110}, 1},
		{1, 1, 250, 251, 300, [2]int{100, 0}, math.SmallestNonzeroFloat32},
		{2, 1, 300, 440, 270, [2]int{0, 0}, float32(math.Inf(1))},
	} {
		dev.SMs = c.sms
		product := gemm.Product{Dtype: kernels.Float32, Batch: c.batch, M: c.m, N: c.n, K: c.k, A: gemm.Operand{Trans: i%2 == 1}, B: gemm.Operand{Trans: i%4 >= 2}}
		t.Run(fmt.Sprintf("%d x %dx%dx%d, near 2^%d, with %v on %d.%d", c.batch, c.m, c.n, c.k, c.exponents, c.rare, dev.Major, dev.Minor), func(t *testing.T) {
			form, _ := product.Wants(dev)
			if form != gemm.BF16Split && dev.Major != 9 && (dev.Major != 8 || dev.Minor != 0) {
				t.Skip("SKIPPED, NOT TESTED: the device takes no operands apart")
			}
			if form != gemm.BF16Split {
				t.Fatalf("%v is not taken apart", product)
			}
			var in, planes [2][]byte
			for j, x := range product.Prepares(form) {
				numbers := make([]float32, x.Batch*x.Rows*x.Cols)
				for l := range numbers {
					numbers[l] = float32(math.Ldexp(r.Float64()-0.5, c.exponents[j]))
				}
				if j == 0 {
					numbers[r.IntN(len(numbers))] = c.rare
				}
				in[j] = kernels.Bytes(numbers)
				planes[j] = run(x, in[j])
			}
			want := run(product, in[:]...)
			for _, given := range [][2]bool{{true, false}, {false, true}, {true, true}} {
				inputs, with := in[:2:2], product
				for j, is := range given {
					if is {
						inputs = append(inputs, planes[j])
						*[]*gemm.Form{&with.A.Form, &with.B.Form}[j] = form
					}
				}
				if got := run(with, inputs...); !bytes.Equal(got, want) {
					t.Errorf("given %v: not the bits of the product alone", given)
				}
			}
		})
	}
}
