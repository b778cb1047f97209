package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// windowDevice is a device with a GPU's plans; they run on the Go bodies.
var windowDevice = kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20}

// windowDirectSum is the definition: outputs and, beside them, the sums of
// absolute values.
func windowDirectSum[T kernels.Float](x []T, rows, n, radius int64, mode WindowMode) (out, magnitude []float64) {
	off := map[WindowMode]int64{WindowValid: 0, WindowSame: -radius, WindowFull: -2 * radius}[mode]
	for row := range rows {
		for i := range mode.Outputs(n, radius) {
			sum, abs := 0.0, 0.0
			for at := max(i+off, 0); at <= min(i+off+2*radius, n-1); at++ {
				e := float64(x[row*n+at])
				sum += e
				abs += math.Abs(e)
			}
			out, magnitude = append(out, sum), append(magnitude, abs)
		}
	}
	return out, magnitude
}

func windowRun[T kernels.Float](t *testing.T, dev kernels.Device, x []T, rows, n, radius int64, mode WindowMode) []T {
	t.Helper()
	dt := kernels.Float32
	if _, double := any(T(0)).(float64); double {
		dt = kernels.Float64
	}
	p := WindowSum(dev, dt, rows, n, radius, mode)
	out := make([]T, rows*mode.Outputs(n, radius))
	scratch := make([]float64, p.Scratch/8)
	for i := range out {
		out[i] = T(math.NaN())
	}
	for i := range scratch {
		scratch[i] = math.NaN()
	}
	if err := p.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(out), kernels.Bytes(scratch)); err != nil {
		t.Fatal(err)
	}
	return out
}

// windowCompare compares the results of the plans for the host and for a GPU with the definition: float32 to 1 ulp of the
// double sum, float64 to a few roundings of the terms.
func windowCompare[T kernels.Float](t *testing.T, r *rand.Rand, rows, n, radius int64, mode WindowMode) {
	t.Helper()
	x := make([]T, rows*n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	want, magnitude := windowDirectSum(x, rows, n, radius, mode)
	for _, dev := range []kernels.Device{kernels.HostDevice(), windowDevice} {
		out := windowRun(t, dev, x, rows, n, radius, mode)
		for i := range want {
			tolerance := 4 * 0x1p-52 * magnitude[i]
			if _, single := any(x).([]float32); single {
				w := float32(want[i])
				ulp := math.Nextafter32(float32(math.Abs(float64(w))), math.MaxFloat32) - float32(math.Abs(float64(w)))
				tolerance += float64(ulp)
			}
			if d := math.Abs(float64(out[i]) - want[i]); !(d <= tolerance) {
				t.Fatalf("%T, %s, %dx%d, radius %d, %v: output %d is %v, want %v +- %g",
					out, dev.Name, rows, n, radius, mode, i, out[i], want[i], tolerance)
			}
		}
	}
}

func TestWindowSum(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 1))
	type shape struct {
		rows, n, radius int64
		mode            WindowMode
	}
	var shapes []shape
	for _, n := range []int64{0, 1, 2, 13, 64, 257, 4099} {
		for _, radius := range []int64{0, 1, 3, 7, 8, 15, 16, 31, 100, 600, 5000} {
			for mode := WindowValid; mode <= WindowFull; mode++ {
				if mode.Outputs(n, radius) < 1 && !(mode != WindowFull && n == 0) {
					continue
				}
				if n == 0 && mode != WindowSame {
					continue
				}
				rows := int64(1)
				if n > 0 {
					rows = 1 + r.Int64N(1+3000/(n+radius))
				}
				shapes = append(shapes, shape{rows, n, radius, mode})
			}
		}
	}
	for range 200 {
		n, radius := 1+r.Int64N(300), r.Int64N(200)
		mode := WindowMode(r.IntN(3))
		if mode == WindowValid {
			radius = r.Int64N((n-1)/2 + 1)
		}
		shapes = append(shapes, shape{1 + r.Int64N(12), n, radius, mode})
	}
	shapes = append(shapes,
		shape{0, 5, 1, WindowSame},
		shape{1, 20011, 2048, WindowValid}, // chunks, join and one chunk between
		shape{3, 9011, 4003, WindowSame},   // rows across chunks
		shape{2, 9001, 4096, WindowValid},
		shape{2, 3001, 9001, WindowFull})
	for _, s := range shapes {
		windowCompare[float32](t, r, s.rows, s.n, s.radius, s.mode)
		windowCompare[float64](t, r, s.rows, s.n, s.radius, s.mode)
	}
}

// A window so large that the sums of its chunks need chunks of their own.
func TestWindowSumRecursion(t *testing.T) {
	const n, radius = 8_000_001, 3_800_000
	p := WindowSum(windowDevice, kernels.Float32, 1, n, radius, WindowValid)
	if got := len(p.Launches); got != 5 {
		t.Fatalf("got %d launches, want 5 (chunks, chunks, one window of sums, join, join):\n%v", got, p)
	}
	x := make([]float32, n)
	prefix := make([]int64, n+1) // of integers: exact
	r := rand.New(rand.NewPCG(11, 2))
	for i := range x {
		v := r.Int64N(7) - 3
		x[i] = float32(v)
		prefix[i+1] = prefix[i] + v
	}
	for i, got := range windowRun(t, windowDevice, x, 1, n, radius, WindowValid) {
		if want := prefix[i+2*radius+1] - prefix[i]; int64(got) != want {
			t.Fatalf("output %d is %v, want %d", i, got, want)
		}
	}
}

// Elements outside a window must not reach its sum.
func TestWindowSumDoesNotLeak(t *testing.T) {
	for _, dev := range []kernels.Device{kernels.HostDevice(), windowDevice} {
		for _, poison := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300} {
			for _, radius := range []int64{0, 1, 2, 5, 8, 20, 64, 300, 1024, 2100} {
				const rows, n = 2, 9001
				x := make([]float64, rows*n)
				for i := range x {
					x[i] = 1
				}
				spots := []int64{0, 4999, n - 1, n + 4095, n + 4096}
				for _, s := range spots {
					x[s] = poison
				}
				out := windowRun(t, dev, x, rows, n, radius, WindowSame)
				for i, got := range out {
					row, centre := int64(i)/n, int64(i)%n
					lo, hi := row*n+max(centre-radius, 0), row*n+min(centre+radius, n-1)
					hit := false
					for _, s := range spots {
						hit = hit || lo <= s && s <= hi
					}
					if clean := got == float64(hi-lo+1); clean == hit {
						t.Fatalf("%s, radius %d, %v at %v: output %d is %v, window [%d, %d]",
							dev.Name, radius, poison, spots, i, got, lo, hi)
					}
				}
			}
		}
	}
}

// Full is the transpose of Valid, and Same of itself: <A x, y> = <x, A' y>.
func TestWindowSumAdjoint(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 3))
	for _, radius := range []int64{0, 2, 9, 40} {
		for mode, back := range map[WindowMode]WindowMode{WindowValid: WindowFull, WindowSame: WindowSame, WindowFull: WindowValid} {
			const n = 101
			m := mode.Outputs(n, radius)
			if got := back.Outputs(m, radius); got != n {
				t.Fatalf("%v after %v gives %d elements, want %d", back, mode, got, n)
			}
			x, y := make([]float64, n), make([]float64, m)
			for i := range x {
				x[i] = float64(r.IntN(9) - 4)
			}
			for i := range y {
				y[i] = float64(r.IntN(9) - 4)
			}
			ax, ay := windowRun(t, windowDevice, x, 1, n, radius, mode), windowRun(t, windowDevice, y, 1, m, radius, back)
			left, right := 0.0, 0.0
			for i := range y {
				left += ax[i] * y[i]
			}
			for i := range x {
				right += ay[i] * x[i]
			}
			if left != right {
				t.Errorf("radius %d, %v: <A x, y> is %v, <x, A' y> is %v", radius, mode, left, right)
			}
		}
	}
}

// Plans: launches that no device refuses, the kernel that the width calls for,
// and no more work for wide windows.
func TestWindowSumPlans(t *testing.T) {
	const n = 1 << 28
	variants := map[int64]string{0: "direct", 7: "direct", 8: "stream", 512: "stream", 513: "segments", 2048: "segments", 10_000: "segments", 20_000: "cluster", 50_000: "cluster", 100_000: "chunks", 1_000_000: "chunks", n: "chunks"}
	for radius, want := range variants {
		p := WindowSum(windowDevice, kernels.Float32, 1, n, radius, WindowSame)
		if got := p.Launches[0].Kernel.Entry; !strings.Contains(got, want) {
			t.Errorf("radius %d starts with %s, want %s", radius, got, want)
		}
		if p.Scratch > p.Out/8 {
			t.Errorf("radius %d needs %d bytes of scratch for %d of output", radius, p.Scratch, p.Out)
		}
	}
	for dt := kernels.Float32; dt <= kernels.Float64; dt++ {
		for w := int64(0); w < 6000; w++ {
			for _, l := range WindowSum(windowDevice, dt, 3, 10007, w, WindowFull).Launches {
				if l.Shared > windowDevice.SharedOptin-1<<10 || l.Grid[0] < 1 || l.Block[0]%32 != 0 {
					t.Fatalf("%v, radius %d: %v", dt, w, l)
				}
			}
		}
	}
	if p := WindowSum(windowDevice, kernels.Float32, 0, 8, 1, WindowSame); len(p.Launches) != 0 {
		t.Errorf("no rows: got %v", p)
	}
}

// Segments with outputs, counted one by one, as the kernel places them.
func TestWindowSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 3))
	for range 3000 {
		w, out := 1+r.Int64N(60), 1+r.Int64N(400)
		q := 1 + r.Int64N(w)
		least, longer, want := w/q, w%q, int64(0)
		for j := int64(0); j/q*w+j%q*least+min(j%q, longer) < out; j++ {
			want++
		}
		if got, _, _ := (windowRows{NOut: out, W: w}).segments(q); got != want {
			t.Fatalf("%d outputs, windows of %d elements in %d segments: got %d segments, want %d", out, w, q, got, want)
		}
	}
}

func BenchmarkWindowSum(b *testing.B) {
	const n = 1 << 22
	x, out := make([]float32, n), make([]float32, n)
	for _, radius := range []int64{1, 2, 7, 32, 512, 100_000} {
		b.Run(fmt.Sprintf("radius=%d", radius), func(b *testing.B) {
			p := WindowSum(kernels.HostDevice(), kernels.Float32, 1, n, radius, WindowSame)
			b.SetBytes(p.Bytes())
			for b.Loop() {
				if err := p.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(out), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
