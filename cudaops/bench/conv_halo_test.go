package bench

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// drawHalo draws a convolution of 3 x 3 taps with stride 1, of float32, or in TF32 with channels last. Half of them have widths of outputs that are multiples of 8.
func drawHalo(r *rand.Rand) gemm.Conv {
	axis := func() gemm.ConvAxis {
		return gemm.ConvAxis{In: 3 + r.Int64N(50), Size: 3, Stride: 1, Dilation: 1, Before: r.Int64N(3), After: r.Int64N(3)}
	}
	v := gemm.Conv{Dtype: kernels.Float32, Images: 1 + r.Int64N(90), Channels: 8 * (1 + r.Int64N(20)), Filters: 8 * (1 + r.Int64N(20)), Groups: 1, Rows: axis(), Columns: axis(), Result: gemm.ConvResult(r.IntN(3))}
	if x := &v.Columns; r.IntN(2) == 0 {
		x.In = 8*(1+r.Int64N(8)) + 2 - x.Before - x.After
	}
	if r.IntN(2) == 0 {
		v.Channels, v.Filters = min(v.Channels, 64), min(v.Filters, 64)
	}
	// The reference computes at most a billion products, fewer under a sanitizer.
	most := int64(1 << 30)
	if testing.Short() {
		most = 1 << 24
	}
	v.Images = min(v.Images, max(1, most/(9*v.Channels*v.Filters*v.Rows.In*v.Columns.In)))
	if r.IntN(2) == 0 {
		v.Round, v.ChannelsLast = kernels.TF32, [2]bool{true, true}
	}
	return v
}

// Convolutions by tiles with a halo are those of float64, within the rounding of operands and sums, and twice the same bits. Some operands have NaN, or infinities.
func TestConvHaloOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skip("SKIPPED: no kernels of tiles with a halo are for this device")
	}
	draws := 60
	if testing.Short() {
		draws = 16
	}
	took := map[string]int{}
	for n := 0; n < draws || len(took) < 4; { // until each of the four kernels was taken
		v := drawHalo(r)
		if v.ChannelsLast != [2]bool{} && !v.TakesChannelsLast(dev) {
			continue
		}
		if _, ok := v.Prepares(dev); ok && r.IntN(2) == 0 {
			v.Prepared = true
		}
		for name, c := range testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev)) {
			if strings.HasPrefix(name, "conv_halo") {
				checkConv[float32](t, c.Plan, v, r)
				took[name]++
				n++
			}
		}
	}
	t.Log(took)
}
