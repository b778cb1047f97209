package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// What a bias and a ReLU add to the times of products, as layers of perceptrons have them: of 128 and 4096 rows, and of large squares.
func TestEpilogueTimes(t *testing.T) {
	w := newStopwatch(t)
	plan := testutil.Get[*kernels.Plan](t)
	for _, s := range [][3]int64{
		{128, 784, 512}, {128, 512, 512}, {128, 512, 10}, {4096, 784, 512}, {4096, 512, 512}, {4096, 512, 10}, {4096, 784, 4096}, {4096, 4096, 4096}, {4096, 4096, 10}, {8192, 8192, 8192},
	} {
		for _, x := range []gemm.Product{{Dtype: kernels.Float32}, {Dtype: kernels.Float32, Round: kernels.TF32}, {Dtype: kernels.Float32, Round: kernels.BF16}, {Dtype: kernels.Float64}} {
			x.Batch, x.M, x.K, x.N = 1, s[0], s[1], s[2]
			name := fmt.Sprintf("epilogue %v %dx%dx%d %v", x.Dtype, s[0], s[1], s[2], x.Round)
			if !w.wants(name) || x.Dtype == kernels.Float64 && s[0] == 8192 {
				continue
			}
			f := testutil.Get[expr.Func](t)(expr.Parse("select(c + x0 < 0, -0, c + x0 + 0)", x.Dtype, "c", "x0"))
			with, ok := x.With(f, codegen.View{Elements: x.N, Strides: []int{0, 0, 1}})
			if !ok {
				t.Fatalf("%v is not an epilogue", f)
			}
			plans := []*kernels.Plan{plan(x.Plan(w.dev)), plan(with.Plan(w.dev))}
			if plans[0].Precision != x.Round {
				continue
			}
			inputs := uniformInputs(plans[1])
			var runs [2][]time.Duration
			for range 2 { // alternately, because the previous work affects clocks and caches
				for i, p := range plans {
					timing := testutil.Get[*Timing](t)(TimeWithin(0, p, inputs[:len(p.Inputs)], 5, 5*time.Millisecond))
					runs[i] = append(runs[i], timing.Runs...)
				}
			}
			plain, whole := median(runs[0]).Seconds()*1e6, median(runs[1]).Seconds()*1e6
			t.Logf("%-48s %9.2f us, without %9.2f: %+.1f %%", name, whole, plain, 100*(whole/plain-1))
		}
	}
}
