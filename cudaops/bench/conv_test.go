package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// drawConv draws a convolution of at most that many multiply-adds and groups; sizes are log-uniform.
func drawConv(r *rand.Rand, most float64, groups int64) gemm.Conv {
	size := func(most int64) int64 { return int64(math.Pow(float64(most+1), r.Float64())) }
	for {
		groups := size(groups)
		v := gemm.Conv{Images: size(64), Groups: groups, Channels: groups * size(300), Filters: groups * size(300), Result: gemm.ConvResult(r.IntN(3))}
		for _, a := range []*gemm.ConvAxis{&v.Rows, &v.Columns} {
			*a = gemm.ConvAxis{Size: size(9), Stride: size(5), Dilation: size(3)}
			reach := (a.Size-1)*a.Dilation + 1
			a.Before, a.After = r.Int64N(reach), r.Int64N(reach)
			a.In = max(reach-a.Before-a.After, 1) + size(80) - 1
		}
		images, outs := v.Images*v.Channels*v.Rows.In*v.Columns.In, v.Images*v.Filters*v.Rows.Out()*v.Columns.Out()
		filters := v.Channels / v.Groups * v.Rows.Size * v.Columns.Size
		if max(images, outs, v.Filters*filters) < 1<<22 && float64(outs)*float64(filters) < most {
			return v
		}
	}
}

// Convolutions on a GPU are those of float64, within the rounding of operands and sums, and twice the same bits.
func TestConvOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	draws := 400
	if testing.Short() {
		draws = 60
	}
	for range draws {
		v := drawConv(r, 1<<28, 40)
		v.Dtype = []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]
		if v.Dtype == kernels.Float32 {
			checkConv[float32](t, dev, v, r)
		} else {
			checkConv[float64](t, dev, v, r)
		}
	}
}

// Convolutions of one group, large enough for tensor cores, agree with float64 in each precision.
func TestConvTensorOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skip("SKIPPED: no kernels for tensor cores are for this device")
	}
	draws, most := 80, 0x1p30
	if testing.Short() {
		draws, most = 12, 0x1p28
	}
	took := map[string]int{}
	for n := 0; n < draws; {
		v := drawConv(r, most, 1)
		if v.Result == gemm.ConvImages && r.IntN(2) == 0 {
			v.Rows.Stride, v.Columns.Stride = 1, 1
		}
		v.Dtype, v.Round = kernels.Float32, []kernels.Precision{kernels.FullPrecision, kernels.BF16, kernels.TF32}[r.IntN(3)]
		if p := testutil.Get[*kernels.Plan](t)(v.Plan(dev)); strings.HasPrefix(p.Launches[0].Kernel.Entry, "conv_hopper") {
			took[checkConv[float32](t, dev, v, r)]++
			n++
		}
	}
	t.Log(took)
}

// checkConv returns the name of the plan's second kernel, which follows that which prepares operands, or of its only one.
func checkConv[T kernels.Float](t *testing.T, dev kernels.Device, v gemm.Conv, r *rand.Rand) string {
	t.Helper()
	reference := v
	reference.Dtype = kernels.Float64
	p, host := testutil.Get[*kernels.Plan](t)(v.Plan(dev)), testutil.Get[*kernels.Plan](t)(reference.Plan(kernels.HostDevice()))
	in, exact := make([][]byte, 2), make([][]byte, 2)
	for i, bytes := range p.Inputs {
		x := make([]T, bytes/v.Dtype.Size())
		wide := make([]float64, len(x))
		for k := range x {
			x[k] = T(r.NormFloat64())
			wide[k] = float64(x[k])
		}
		in[i], exact[i] = kernels.Bytes(x), kernels.Bytes(wide)
	}
	n := p.Out / v.Dtype.Size()
	want, got, again := make([]float64, n), make([]T, n), make([]T, n)
	testutil.Do(t, host.Run(exact, kernels.Bytes(want), nil))
	for _, out := range [][]T{got, again} {
		for i := range out {
			out[i] = T(math.NaN())
		}
		testutil.Do(t, Run(0, p, in, kernels.Bytes(out)))
	}
	terms := float64(p.Flops) / 2 / float64(n)
	tolerance := 16 * math.Sqrt(terms+1) * map[kernels.Dtype]float64{kernels.Float32: 0x1p-23, kernels.Float64: 0x1p-52}[v.Dtype] * (1 + math.Sqrt(terms))
	if p.Precision != kernels.FullPrecision {
		tolerance = 16 * (1 + math.Sqrt(terms)) * map[kernels.Precision]float64{kernels.BF16: 0x1p-9, kernels.TF32: 0x1p-11}[p.Precision]
	}
	for i := range want {
		if got[i] != again[i] || !(math.Abs(float64(got[i])-want[i]) <= tolerance) {
			t.Errorf("element %d is %v, then %v, want %v within %g: %v of %+v", i, got[i], again[i], want[i], tolerance, p, v)
			break
		}
	}
	return p.Launches[min(1, len(p.Launches)-1)].Kernel.Entry
}

// The times of convolutions of ResNet-50's layers, batch 64, a line each, of those that the regular expression STHENO_TIMES matches.
func TestConvTimes(t *testing.T) {
	watch := newStopwatch(t)
	for _, c := range []struct{ channels, side, filters, size, stride, groups int64 }{
		{3, 224, 64, 7, 2, 1}, {64, 56, 64, 3, 1, 1}, {128, 28, 128, 3, 1, 1}, {256, 14, 256, 3, 1, 1}, {512, 7, 512, 3, 1, 1}, {64, 56, 64, 1, 1, 1}, {256, 56, 512, 1, 2, 1}, {256, 28, 256, 3, 1, 256},
	} {
		a := gemm.ConvAxis{In: c.side, Size: c.size, Stride: c.stride, Dilation: 1, Before: c.size / 2, After: c.size / 2}
		for i := range 12 {
			result, round, dev := gemm.ConvResult(i/4), []kernels.Precision{kernels.FullPrecision, kernels.FullPrecision, kernels.TF32, kernels.BF16}[i%4], watch.dev
			name := fmt.Sprintf("%v %d x %d x %d, %d filters of %d by %d, groups %d, %v", result, c.channels, c.side, c.side, c.filters, c.size, c.stride, c.groups, round)
			if i%4 == 0 { // by FMA, as on a device without such tensor cores
				dev.Major, name = 7, name+", FMA"
			}
			if !watch.wants(name) {
				continue
			}
			v := gemm.Conv{Dtype: kernels.Float32, Images: 64, Channels: c.channels, Filters: c.filters, Groups: c.groups, Rows: a, Columns: a, Result: result, Round: round}
			p := testutil.Get[*kernels.Plan](t)(v.Plan(dev))
			timing := testutil.Get[*Timing](t)(TimeWithin(0, p, [][]byte{signed(p.Inputs[0], 0), signed(p.Inputs[1], 1)}, 15, 100*time.Millisecond))
			us, _, _ := watch.rate(timing.Runs, p.Bytes())
			t.Logf("%-70s %9.1f us %6.1f TFLOP/s, %s", name, us, float64(p.Flops)/us/1e6, p.Launches[min(1, len(p.Launches)-1)].Kernel.Entry)
		}
	}
}
