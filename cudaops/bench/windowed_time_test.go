package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/window"
)

// The times of plans on windows, the larger side of which is a gigabyte, and the
// bandwidth that they reach, a line each, of those that the regular expression
// STHENO_TIMES matches.
func TestWindowTimes(t *testing.T) {
	watch := newStopwatch(t)
	times := func(name string, plan func(dev kernels.Device) (*kernels.Plan, error), maxima ...func(dev kernels.Device) (*kernels.Plan, error)) {
		if !watch.wants(name) {
			return
		}
		p := testutil.Get[*kernels.Plan](t)(plan(watch.dev))
		inputs := make([][]byte, len(p.Inputs))
		for i, bytes := range p.Inputs {
			inputs[i] = signed(bytes, i)
		}
		for _, m := range maxima { // of the first input
			testutil.Do(t, testutil.Get[*kernels.Plan](t)(m(kernels.HostDevice())).Run(inputs[:1], inputs[1], nil))
		}
		watch.plan(name, p, inputs, p.Bytes(), 100*time.Millisecond)
	}
	const elements = 1 << 28
	for _, c := range []struct{ channels, side, size, stride, pad int }{
		{32, 14, 3, 1, 1}, {64, 7, 3, 1, 1}, {1, 28, 3, 1, 1}, {64, 56, 3, 1, 1}, {128, 28, 3, 2, 1}, {3, 224, 7, 2, 3}, {256, 56, 1, 1, 0}, {16, 60, 5, 1, 0},
	} {
		a := window.WindowAxis{In: c.side, Size: c.size, Stride: c.stride, Dilation: 1, Before: c.pad, After: c.pad}
		w := window.Windows{Rows: a, Columns: a}
		images := int64(elements / (a.Out() * a.Out() * c.channels * c.size * c.size))
		name := fmt.Sprintf("of %d channels, %d x %d, %d by %d, pad %d", c.channels, c.side, c.side, c.size, c.stride, c.pad)
		times("im2col "+name, func(dev kernels.Device) (*kernels.Plan, error) {
			return window.Im2Col(dev, kernels.Float32, images, int64(c.channels), w)
		})
		times("col2im "+name, func(dev kernels.Device) (*kernels.Plan, error) {
			return window.Col2Im(dev, kernels.Float32, images, int64(c.channels), w)
		})
	}
	for _, c := range []struct{ side, size, stride, pad int }{{28, 2, 2, 0}, {112, 2, 2, 0}, {7, 2, 2, 0}, {112, 3, 2, 1}, {56, 3, 1, 1}, {14, 3, 1, 1}, {7, 3, 1, 1}, {13, 5, 1, 2}} {
		a := window.WindowAxis{In: c.side, Size: c.size, Stride: c.stride, Dilation: 1, Before: c.pad, After: c.pad}
		w := window.Windows{Rows: a, Columns: a}
		planes := int64(elements / (c.side * c.side))
		name := fmt.Sprintf("of %d x %d, %d by %d, pad %d", c.side, c.side, c.size, c.stride, c.pad)
		pool := func(dev kernels.Device) (*kernels.Plan, error) {
			return window.MaxPool(dev, kernels.Float32, planes, w)
		}
		times("max-pool "+name, pool)
		times("max-pool derivative "+name, func(dev kernels.Device) (*kernels.Plan, error) {
			return window.MaxPoolDiff(dev, kernels.Float32, planes, w)
		}, pool)
		times("average-pool "+name, func(dev kernels.Device) (*kernels.Plan, error) {
			return window.AveragePool(dev, kernels.Float32, planes, w, 4)
		})
		times("average-pool derivative "+name, func(dev kernels.Device) (*kernels.Plan, error) {
			return window.AveragePoolDiff(dev, kernels.Float32, planes, w, 4)
		})
	}
	half := [2]kernels.Dtype{expr.BF16, expr.BF16}
	for _, c := range []struct{ channels, side int }{{32, 28}, {64, 14}, {128, 7}} {
		a := window.WindowAxis{In: c.side, Size: 2, Stride: 2, Dilation: 1}
		for _, p := range []window.MaxPooling{{}, {ReLU: true}, {ReLU: true, ChannelsLast: [2]bool{true, true}}, {ReLU: true, ChannelsLast: [2]bool{true, true}, Stored: half}, {ReLU: true, ChannelsLast: [2]bool{true}, Stored: half}} {
			p.Dtype, p.Images, p.Channels, p.Windows = kernels.Float32, int64(elements/(c.side*c.side*c.channels)), int64(c.channels), window.Windows{Rows: a, Columns: a}
			for _, p.Gradient = range []bool{false, true} {
				times(fmt.Sprintf("pooling: %v of %d channels, %d x %d", p, c.channels, c.side, c.side), p.Plan)
			}
		}
	}
	for _, scale := range []int{2, 3} { // upsampling to a gigabyte
		const side = 56
		planes := elements / (side * side * scale * scale)
		b := expr.NewBuilder(kernels.Float32)
		f := testutil.Get[expr.Func](t)(b.Func(b.Operand(0)))
		times(fmt.Sprintf("upsample of %d x %d by %d", side, side, scale), func(dev kernels.Device) (*kernels.Plan, error) {
			view := codegen.View{Elements: int64(planes * side * side), Strides: []int{side, 0, 1, 0}}
			return codegen.Map(dev, f, []int{planes * side, scale, side, scale}, view)
		})
	}
}

// signed returns bytes of random float32 between -1 and 1.
func signed(bytes int64, seed int) []byte {
	return repeated(bytes, seed, func(r *rand.Rand) float32 { return 2*r.Float32() - 1 })
}

// gaussian returns bytes of random float32, standard normal.
func gaussian(bytes int64, seed int) []byte {
	return repeated(bytes, seed, func(r *rand.Rand) float32 { return float32(r.NormFloat64()) })
}

// repeated returns bytes of about a million drawn float32, as many times as it takes.
func repeated(bytes int64, seed int, draw func(r *rand.Rand) float32) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	x := make([]float32, bytes/4)
	few := x[:min(len(x), 1<<20+7)]
	for i := range few {
		few[i] = draw(r)
	}
	for at := len(few); at < len(x); at += len(few) {
		copy(x[at:], few)
	}
	return kernels.Bytes(x)
}
