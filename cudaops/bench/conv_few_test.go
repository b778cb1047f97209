package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// fewChannels are the names of the candidates of conv_few.cu and conv_few_split.cu.
var fewChannels = []string{"few channels", "few channels split"}

// drawFew draws a convolution of few channels, of odd sizes, strides, dilations and paddings, or as networks have them, or with 7 x 7 taps at a stride of 2.
func drawFew(r *rand.Rand) gemm.Conv {
	size := func(most int64) int64 { return int64(math.Pow(float64(most+1), r.Float64())) }
	v := gemm.Conv{Dtype: kernels.Float32, Images: size(60), Groups: 1, Channels: 1 + 2*r.Int64N(2), Filters: 8 + size(150), Result: []gemm.ConvResult{gemm.ConvOutput, gemm.ConvFilters}[r.IntN(2)]}
	if r.IntN(4) == 0 {
		v.Channels, v.Filters, v.Result, v.Round = 3, 8+size(130), gemm.ConvResult(r.IntN(3)), kernels.Precision(r.IntN(4))
		for _, a := range []*gemm.ConvAxis{&v.Rows, &v.Columns} {
			*a = gemm.ConvAxis{Size: 7, Stride: 2, Dilation: 1, Before: r.Int64N(7), After: r.Int64N(7)}
			if v.Result == gemm.ConvImages {
				a.Before = 1 + 2*r.Int64N(3) // images want odd paddings
			}
			a.In = max(7-a.Before-a.After, 1) + size(300) - 1
		}
		v.Images = min(v.Images, 1+(1<<22)/(v.Rows.In*v.Columns.In*v.Filters)) // the reference computes at most a billion products
		return v
	}
	plain := r.IntN(2) == 0
	for _, a := range []*gemm.ConvAxis{&v.Rows, &v.Columns} {
		*a = gemm.ConvAxis{Size: 3, Stride: size(4), Dilation: size(3)}
		if plain {
			a.Stride, a.Dilation = 1, 1
		}
		reach := 2*a.Dilation + 1
		a.Before, a.After = r.Int64N(reach), r.Int64N(reach)
		a.In = max(reach-a.Before-a.After, 1) + size(40) - 1
	}
	if r.IntN(2) == 0 {
		v.Round, v.ChannelsLast[gemm.ConvOutput], v.Filters = kernels.TF32, true, (v.Filters+7)/8*8
	}
	return v
}

// Convolutions of few channels on a GPU are those of float64, within the rounding of sums, and twice the same bits. Some operands have NaN, or infinities.
func TestConvFewOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	draws, checked := 150, false
	if testing.Short() {
		draws = 25
	}
	for range draws {
		v := drawFew(r)
		if v.ChannelsLast != [2]bool{} && !v.TakesChannelsLast(dev) {
			continue
		}
		candidates := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev))
		for _, name := range fewChannels {
			if c, ok := candidates[name]; ok {
				checkConv[float32](t, c.Plan, v, r)
				checked = true
			}
		}
	}
	if !checked {
		t.Skip("SKIPPED: no kernels for few channels are for this device")
	}
}
