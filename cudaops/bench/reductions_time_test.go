package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/window"
)

// The times of sums, window sums, histograms and broadcasts of shapes that are known to be hard, a
// line each, of those that the regular expression STHENO_TIMES matches.
func TestReductionTimes(t *testing.T) {
	w := newStopwatch(t)
	for _, list := range [][]reduction{hardSums(t), hardWindows(), hardHistograms(), hardBroadcasts()} {
		for _, r := range list {
			if !w.wants(r.name) {
				continue
			}
			p, inputs := r.plan(w.dev), [][]byte(nil)
			for i, bytes := range p.Inputs {
				inputs = append(inputs, r.input(bytes, i))
			}
			w.plan(r.name, p, inputs, p.Bytes(), 100*time.Millisecond)
		}
	}
}

// reduction is a plan to be timed; input returns the bytes of one of its inputs.
type reduction struct {
	name  string
	plan  func(dev kernels.Device) *kernels.Plan
	input func(bytes int64, seed int) []byte
}

const (
	f32 = kernels.Float32
	f64 = kernels.Float64
)

// hardSums are sums, dot products and reductions from an expression.
func hardSums(t *testing.T) (list []reduction) {
	add := func(name string, plan func(dev kernels.Device) *kernels.Plan) {
		list = append(list, reduction{name, plan, signed})
	}
	for _, c := range []struct {
		dt    kernels.Dtype
		shape []int
		axes  []int
	}{
		{f32, []int{442609, 245, 2}, []int{1}}, {f32, []int{262144, 4, 128}, []int{2}}, {f32, []int{10000000, 3, 4}, []int{1}}, {f32, []int{1000000, 2, 2, 2}, []int{2}},
		{f32, []int{65536, 16, 8}, []int{1}}, {f32, []int{1 << 20, 33}, []int{1}}, {f32, []int{1 << 20, 100}, []int{1}}, {f32, []int{262144, 1025}, []int{1}},
		{f32, []int{17, 1000000}, []int{0}}, {f32, []int{105, 1364837}, []int{0}}, {f32, []int{102400, 366}, []int{0}}, {f64, []int{50, 3, 4096, 27}, []int{0, 2}},
		{f32, []int{477, 16384}, []int{0}}, {f32, []int{7492, 1654}, []int{0}}, {f32, []int{312, 10502, 3}, []int{1}}, {f32, []int{43, 32135}, []int{1}}, {f32, []int{3659, 18765}, []int{0}},
		{f64, []int{32768}, []int{0}}, {f32, []int{30889, 8}, []int{0, 1}}, {f32, []int{7, 3, 6, 4}, []int{0, 1, 3}}, {f32, []int{2839}, []int{0}}, {f32, []int{4194304}, []int{0}},
		{f32, []int{31436038}, []int{0}}, {f32, []int{100000000}, []int{0}}, {f32, []int{547242}, []int{0}}, {f32, []int{23583, 39}, []int{0}}, {f32, []int{1 << 22, 32}, []int{1}}, {f32, []int{1 << 24, 8}, []int{1}},
		{f32, []int{14, 2, 1024}, []int{0, 2}}, {f32, []int{126, 10404}, []int{1}}, {f32, []int{8, 3, 10, 32}, []int{0, 2}}, {f32, []int{300, 10, 3, 40}, []int{0, 2}}, {f32, []int{530, 974}, []int{0}},
		{f32, []int{1000000, 3, 5, 7}, []int{1, 3}}, {f32, []int{3, 5, 7, 1000000}, []int{0, 2}}, {f32, []int{400000, 12, 3, 8}, []int{1, 3}}, {f64, []int{7, 3000, 8, 300}, []int{0, 2}}, {f32, []int{7, 14000003}, []int{0}},
		{f32, []int{2, 40000000}, []int{0}}, {f32, []int{3, 40000000}, []int{0}}, {f32, []int{4, 30000000}, []int{0}}, {f64, []int{3, 10000000}, []int{0}},
		{f32, []int{8, 15000000}, []int{0}}, {f64, []int{8524, 3914}, []int{1}}, {f32, []int{8524, 7914}, []int{1}},
	} {
		add(fmt.Sprintf("sum %v over %v %v", c.shape, c.axes, c.dt), func(dev kernels.Device) *kernels.Plan { return reduce.Sum(dev, c.dt, c.shape, c.axes, false) })
	}
	for _, n := range []int64{579, 17025, 104443, 600266, 18904434, 100000000} {
		add(fmt.Sprintf("dot %d", n), func(dev kernels.Device) *kernels.Plan { return reduce.Dot(dev, f32, 1, n) })
	}
	for _, rows := range [][2]int64{{1747709, 8}, {300000, 100}} {
		add(fmt.Sprintf("dot %v", rows), func(dev kernels.Device) *kernels.Plan { return reduce.Dot(dev, f32, rows[0], rows[1]) })
	}
	for _, source := range []string{"a + b", "max(a, b)", "a + b*b"} {
		r := testutil.Get[codegen.Reduction](t)(codegen.ParseReduction(source))
		for _, n := range []int64{1024, 215060, 590669, 31436038, 100000000} {
			add(fmt.Sprintf("reduce %s %d", source, n), func(dev kernels.Device) *kernels.Plan { return reduce.Reduce(dev, f32, n, r, 0) })
		}
	}
	return list
}

// hardWindows are window sums.
func hardWindows() (list []reduction) {
	const same, valid = window.WindowSame, window.WindowValid
	for _, c := range []struct {
		dt              kernels.Dtype
		rows, n, radius int64
		mode            window.WindowMode
	}{
		{f32, 1, 259758, 4, same}, {f32, 1, 10000, 3, same}, {f32, 13, 16777216, 3, valid}, {f64, 3, 27503828, 4, valid},
		{f32, 1, 1 << 28, 1, same}, {f32, 1, 1 << 28, 2, same}, {f32, 1, 1 << 28, 3, same}, {f32, 1, 1 << 28, 4, same}, {f32, 1, 1 << 28, 5, same},
		{f32, 1, 1 << 28, 7, same}, {f32, 1, 1 << 28, 8, same}, {f64, 1, 1 << 27, 7, same}, {f64, 1, 1 << 27, 1, same},
		{f32, 4194304, 17, 3, valid}, {f32, 524288, 127, 3, valid}, {f32, 524288, 127, 7, same}, {f32, 524288, 127, 12, same}, {f32, 4194304, 17, 0, same},
		{f32, 1 << 20, 256, 2, same}, {f32, 1 << 20, 256, 7, valid}, {f32, 1 << 21, 64, 3, same}, {f32, 10000000, 5, 2, same}, {f64, 524288, 127, 3, same}, {f64, 262144, 127, 12, same},
		{f32, 20011, 5003, 3, valid}, {f32, 5003, 20011, 7, same}, {f32, 4001, 8193, 2, valid}, {f32, 524288, 127, 60, same}, {f32, 524288, 127, 12, valid}, {f32, 1 << 20, 256, 16, same},
		{f32, 250000, 301, 100, same}, {f32, 150000, 511, 200, same}, {f32, 150000, 511, 20, same}, {f32, 4194304, 17, 9, same}, {f32, 100003, 701, 40, same}, {f32, 70001, 1001, 12, same},
		{f32, 1, 100000000, 133586, valid}, {f32, 1, 44586013, 120224, valid}, {f32, 2, 33554432, 81980, valid},
	} {
		list = append(list, reduction{fmt.Sprintf("window %dx%d r=%d %v %v", c.rows, c.n, c.radius, c.mode, c.dt), func(dev kernels.Device) *kernels.Plan {
			return window.WindowSum(dev, c.dt, c.rows, c.n, c.radius, c.mode)
		}, signed})
	}
	return list
}

// hardHistograms are histograms of many bins, and of bytes into few.
func hardHistograms() (list []reduction) {
	kinds := []string{"uniform", "skewed", "equal"}
	for _, c := range []struct{ n, bins int }{
		{100000000, 64256}, {100000000, 200000}, {100000000, 1000000}, {5405902, 312229}, {1000000, 100000}, {300000, 1000000}, {100000000, 50000}, {1 << 28, 65536},
		{17449260, 101938}, {19488243, 35364}, {5000000, 20000},
	} {
		for _, kind := range kinds {
			list = append(list, reduction{fmt.Sprintf("histogram %d into %d %s", c.n, c.bins, kind), func(dev kernels.Device) *kernels.Plan {
				return basic.Histogram(dev, f32, int64(c.n), basic.Bins{N: c.bins, Lo: 0, Hi: 1})
			}, fractions(kind)})
		}
	}
	for _, kind := range kinds {
		list = append(list, reduction{"histogram 100000000 bytes " + kind, func(dev kernels.Device) *kernels.Plan {
			return basic.Histogram(dev, kernels.Uint8, 100000000, basic.Bins{N: 4, Lo: 0, Hi: 256})
		}, func(bytes int64, seed int) []byte {
			out := make([]byte, bytes)
			for i, x := range kernels.Elements[float32](fractions(kind)(4*bytes, seed)) {
				out[i] = byte(256 * x)
			}
			return out
		}})
	}
	return list
}

// hardBroadcasts are of few copies of much, and of few elements a row.
func hardBroadcasts() (list []reduction) {
	for _, c := range []struct{ shape, axes []int }{{[]int{4, 4, 1573583}, []int{0}}, {[]int{3227899, 9}, []int{1}}, {[]int{100000000, 1}, []int{1}}} {
		list = append(list, reduction{fmt.Sprintf("broadcast %v along %v", c.shape, c.axes), func(dev kernels.Device) *kernels.Plan {
			return basic.Broadcast(dev, f32, c.shape, c.axes, false)
		}, signed})
	}
	return list
}

// fractions returns a generator of float32 numbers from 0 to below 1: all equal, or evenly spread, or most of them near 0.
func fractions(kind string) func(bytes int64, seed int) []byte {
	return func(bytes int64, seed int) []byte {
		return repeated(bytes, seed, func(r *rand.Rand) float32 {
			x := r.Float64()
			switch kind {
			case "equal":
				x = 0.3
			case "skewed":
				x = math.Pow(x, 8)
			}
			return min(float32(x), 0.99999994)
		})
	}
}
