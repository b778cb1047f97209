package bench

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Convolutions of few filters in each group, and gradients w.r.t. few channels, by threads that compute several pixels are those of float64, within the rounding of sums, and twice the same
// bits. Some operands have NaN, or infinities.
func TestConvPixelsOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	draws, most := 150, 0x1p28
	if testing.Short() {
		draws, most = 20, 0x1p23
	}
	took := map[string]int{}
	for n := 0; n < draws || len(took) < 3; { // until each of the three kernels was taken
		v := drawConv(r, most, 12)
		rows := v.Groups * (1 + r.Int64N(8))
		if v.Dtype, v.Result = kernels.Float32, gemm.ConvResult(r.IntN(2)); v.Result == gemm.ConvOutput {
			v.Filters = rows
		} else {
			v.Channels = rows
		}
		c, ok := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev))["pixels"]
		if !ok {
			continue
		}
		checkConv[float32](t, c.Plan, v, r)
		took[c.Plan.Launches[0].Kernel.Entry]++
		n++
	}
	t.Log(took)
}
