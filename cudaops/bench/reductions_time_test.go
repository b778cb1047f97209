package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/kernels"
)

// The times of sums, window sums and histograms of shapes that are known to be hard, a
// line each, of those that the regular expression STHENO_TIMES matches.
func TestReductionTimes(t *testing.T) {
	watch := newStopwatch(t)
	time := func(p *kernels.Plan, name string, inputs func(bytes int64, i int) []byte) {
		in := make([][]byte, len(p.Inputs))
		for i, bytes := range p.Inputs {
			in[i] = inputs(bytes, i)
		}
		watch.plan(name, p, in, p.Bytes(), 100*time.Millisecond)
	}
	wants := func(name string) bool { return watch.wants(strings.ReplaceAll(name, " ", "_")) }
	f32, f64 := kernels.Float32, kernels.Float64
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
	} {
		if name := fmt.Sprintf("sum %v over %v %v", c.shape, c.axes, c.dt); wants(name) {
			time(kernels.Sum(watch.dev, c.dt, c.shape, c.axes, false), name, signed)
		}
	}
	for _, n := range []int64{579, 17025, 104443, 600266, 18904434, 100000000} {
		if name := fmt.Sprintf("dot %d", n); wants(name) {
			time(kernels.Dot(watch.dev, f32, 1, n), name, signed)
		}
	}
	for _, rows := range [][2]int64{{1747709, 8}, {300000, 100}} {
		if name := fmt.Sprintf("dot %v", rows); wants(name) {
			time(kernels.Dot(watch.dev, f32, rows[0], rows[1]), name, signed)
		}
	}
	for _, source := range []string{"a + b", "max(a, b)", "a + b*b"} {
		r := must.Get[kernels.Reduction](t)(kernels.ParseReduction(source))
		for _, n := range []int64{1024, 215060, 590669, 31436038, 100000000} {
			if name := fmt.Sprintf("reduce %s %d", source, n); wants(name) {
				time(kernels.Reduce(watch.dev, f32, n, r, 0), name, signed)
			}
		}
	}
	for _, c := range []struct {
		dt              kernels.Dtype
		rows, n, radius int64
		mode            kernels.WindowMode
	}{
		{f32, 1, 259758, 4, kernels.WindowSame}, {f32, 1, 10000, 3, kernels.WindowSame}, {f32, 13, 16777216, 3, kernels.WindowValid}, {f64, 3, 27503828, 4, kernels.WindowValid},
		{f32, 1, 1 << 28, 1, kernels.WindowSame}, {f32, 1, 1 << 28, 2, kernels.WindowSame}, {f32, 1, 1 << 28, 3, kernels.WindowSame}, {f32, 1, 1 << 28, 4, kernels.WindowSame}, {f32, 1, 1 << 28, 5, kernels.WindowSame},
		{f32, 1, 1 << 28, 7, kernels.WindowSame}, {f32, 1, 1 << 28, 8, kernels.WindowSame}, {f64, 1, 1 << 27, 7, kernels.WindowSame}, {f64, 1, 1 << 27, 1, kernels.WindowSame},
		{f32, 4194304, 17, 3, kernels.WindowValid}, {f32, 524288, 127, 3, kernels.WindowValid}, {f32, 524288, 127, 7, kernels.WindowSame}, {f32, 524288, 127, 12, kernels.WindowSame}, {f32, 4194304, 17, 0, kernels.WindowSame},
		{f32, 1, 100000000, 133586, kernels.WindowValid}, {f32, 1, 44586013, 120224, kernels.WindowValid}, {f32, 2, 33554432, 81980, kernels.WindowValid},
	} {
		if name := fmt.Sprintf("window %dx%d r=%d %v %v", c.rows, c.n, c.radius, c.mode, c.dt); wants(name) {
			time(kernels.WindowSum(watch.dev, c.dt, c.rows, c.n, c.radius, c.mode), name, signed)
		}
	}
	for _, c := range []struct{ n, bins int }{
		{100000000, 64256}, {100000000, 200000}, {100000000, 1000000}, {5405902, 312229}, {1000000, 100000}, {300000, 1000000}, {100000000, 50000}, {1 << 28, 65536},
	} {
		for _, kind := range []string{"uniform", "skewed", "equal"} {
			if name := fmt.Sprintf("histogram %d into %d %s", c.n, c.bins, kind); wants(name) {
				time(kernels.Histogram(watch.dev, f32, int64(c.n), kernels.Bins{N: c.bins, Lo: 0, Hi: 1}), name, fractions(kind))
			}
		}
	}
	for _, kind := range []string{"uniform", "skewed", "equal"} {
		if name := "histogram 100000000 bytes " + kind; wants(name) {
			time(kernels.Histogram(watch.dev, kernels.Uint8, 100000000, kernels.Bins{N: 4, Lo: 0, Hi: 256}), name, func(bytes int64, i int) []byte {
				x, out := fractions(kind)(4<<20, i), make([]byte, bytes)
				for i := range out {
					out[i] = byte(256 * math.Float32frombits(binary.LittleEndian.Uint32(x[i%(1<<20)*4:])))
				}
				return out
			})
		}
	}
	for _, c := range []struct{ shape, axes []int }{{[]int{4, 4, 1573583}, []int{0}}, {[]int{3227899, 9}, []int{1}}, {[]int{100000000, 1}, []int{1}}} {
		if name := fmt.Sprintf("broadcast %v along %v", c.shape, c.axes); wants(name) {
			time(kernels.Broadcast(watch.dev, f32, c.shape, c.axes, false), name, signed)
		}
	}
}

// fractions returns float32 numbers from 0 to 1: all equal, or evenly spread, or most of them near 0.
func fractions(kind string) func(bytes int64, i int) []byte {
	return func(bytes int64, i int) []byte {
		out := make([]byte, bytes)
		r := rand.New(rand.NewPCG(uint64(bytes), uint64(i)))
		for at := 0; at < len(out); at += 4 {
			if at >= 4<<20 { // as often as it takes
				for ; at < len(out); at += copy(out[at:], out[:at]) {
				}
				break
			}
			x := r.Float64()
			switch kind {
			case "equal":
				x = 0.3
			case "skewed":
				x = math.Pow(x, 8)
			}
			binary.LittleEndian.PutUint32(out[at:], math.Float32bits(min(float32(x), 0.99999994)))
		}
		return out
	}
}
