package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// drawConv draws a convolution of at most that many multiply-adds; sizes are log-uniform.
func drawConv(r *rand.Rand, most int64) gemm.Conv {
	size := func(most int64) int64 { return int64(math.Pow(float64(most+1), r.Float64())) }
	for {
		groups := size(40)
		v := gemm.Conv{Images: size(64), Groups: groups, Channels: groups * size(300), Filters: groups * size(300), Result: gemm.ConvResult(r.IntN(3))}
		for _, a := range []*gemm.ConvAxis{&v.Rows, &v.Columns} {
			*a = gemm.ConvAxis{Size: size(9), Stride: size(5), Dilation: size(3)}
			reach := (a.Size-1)*a.Dilation + 1
			a.Before, a.After = r.Int64N(reach), r.Int64N(reach)
			a.In = max(reach-a.Before-a.After, 1) + size(80) - 1
		}
		images, outs := v.Images*v.Channels*v.Rows.In*v.Columns.In, v.Images*v.Filters*v.Rows.Out()*v.Columns.Out()
		filters := v.Channels / v.Groups * v.Rows.Size * v.Columns.Size
		if max(images, outs, v.Filters*filters) < 1<<22 && float64(outs)*float64(filters) < float64(most) {
			return v
		}
	}
}

// Convolutions on a GPU are those of the Go bodies, within the rounding of their sums, and twice the same bits.
func TestConvOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	draws := 400
	if testing.Short() {
		draws = 60
	}
	for range draws {
		v := drawConv(r, 1<<28)
		v.Dtype = []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]
		if v.Dtype == kernels.Float32 {
			checkConv[float32](t, dev, v, r)
		} else {
			checkConv[float64](t, dev, v, r)
		}
	}
}

func checkConv[T kernels.Float](t *testing.T, dev kernels.Device, v gemm.Conv, r *rand.Rand) {
	t.Helper()
	p, host := testutil.Get[*kernels.Plan](t)(v.Plan(dev)), testutil.Get[*kernels.Plan](t)(v.Plan(kernels.HostDevice()))
	in := make([][]byte, 2)
	for i, bytes := range p.Inputs {
		x := make([]T, bytes/v.Dtype.Size())
		for k := range x {
			x[k] = T(r.NormFloat64())
		}
		in[i] = kernels.Bytes(x)
	}
	n := p.Out / v.Dtype.Size()
	want, got, again := make([]T, n), make([]T, n), make([]T, n)
	testutil.Do(t, host.Run(in, kernels.Bytes(want), nil))
	for _, out := range [][]T{got, again} {
		testutil.Do(t, Run(0, p, in, kernels.Bytes(out)))
	}
	terms := float64(p.Flops) / 2 / float64(n)
	tolerance := 16 * math.Sqrt(terms+1) * map[kernels.Dtype]float64{kernels.Float32: 0x1p-23, kernels.Float64: 0x1p-52}[v.Dtype]
	for i := range want {
		if got[i] != again[i] || !(math.Abs(float64(got[i]-want[i])) <= tolerance*(1+math.Sqrt(terms))) {
			t.Fatalf("element %d is %v, then %v, want %v within %g: %v", i, got[i], again[i], want[i], tolerance*(1+math.Sqrt(terms)), p)
		}
	}
}

// The times of convolutions of ResNet-50's layers, batch 64, a line each, of those that the regular expression STHENO_TIMES matches.
func TestConvTimes(t *testing.T) {
	watch := newStopwatch(t)
	for _, c := range []struct{ channels, side, filters, size, stride, groups int64 }{
		{3, 224, 64, 7, 2, 1}, {64, 56, 64, 3, 1, 1}, {64, 56, 256, 1, 1, 1}, {128, 56, 128, 3, 2, 1}, {256, 14, 256, 3, 1, 1}, {512, 7, 512, 3, 1, 1}, {1024, 14, 256, 1, 1, 1}, {256, 28, 256, 3, 1, 256},
	} {
		a := gemm.ConvAxis{In: c.side, Size: c.size, Stride: c.stride, Dilation: 1, Before: c.size / 2, After: c.size / 2}
		for result := gemm.ConvOutput; result <= gemm.ConvFilters; result++ {
			name := fmt.Sprintf("%v %d x %d x %d, %d filters of %d by %d, groups %d", result, c.channels, c.side, c.side, c.filters, c.size, c.stride, c.groups)
			if !watch.wants(name) {
				continue
			}
			v := gemm.Conv{Dtype: kernels.Float32, Images: 64, Channels: c.channels, Filters: c.filters, Groups: c.groups, Rows: a, Columns: a, Result: result}
			p := testutil.Get[*kernels.Plan](t)(v.Plan(watch.dev))
			timing := testutil.Get[*Timing](t)(TimeWithin(0, p, [][]byte{signed(p.Inputs[0], 0), signed(p.Inputs[1], 1)}, 15, 100*time.Millisecond))
			us, _, _ := watch.rate(timing.Runs, p.Bytes())
			t.Logf("%-64s %9.1f us %6.1f TFLOP/s", name, us, float64(p.Flops)/us/1e6)
		}
	}
}
