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

// productDevices returns device 0, and, where products have kernels that only compute capability 9.0 can run, the same device with
// plans of 8.0, which it can run too.
func productDevices(t *testing.T) []kernels.Device {
	t.Helper()
	dev := device0(t)
	dev.FMAs = 0 // limits choose kernels, of which tests know what they choose on few SMs, as they do where times cannot be predicted
	devices := []kernels.Device{dev}
	if dev.Major == 9 {
		dev.Name, dev.Major, dev.Minor = dev.Name+" as 8.0", 8, 0
		devices = append(devices, dev)
	}
	return devices
}

// hardNumbers draw the operands of a product by what is hard about them.
var hardNumbers = []struct {
	name string
	draw func(r *rand.Rand, operand int) float32
	line func(r *rand.Rand, operand int) int // the exponent of a row of op(A) or a column of op(B), if not nil
}{
	{name: "uniform", draw: func(r *rand.Rand, _ int) float32 { return 2*r.Float32() - 1 }},
	{name: "positive", draw: func(r *rand.Rand, _ int) float32 { return r.Float32() }},
	{name: "spread", draw: func(r *rand.Rand, _ int) float32 { return float32(math.Ldexp(r.NormFloat64(), r.IntN(121)-60)) }},
	{name: "tiny times huge", draw: func(r *rand.Rand, operand int) float32 {
		return float32(math.Ldexp(r.NormFloat64(), []int{-130, 110}[operand]))
	}},
	{name: "denormal", draw: func(r *rand.Rand, operand int) float32 {
		return float32(math.Ldexp(r.NormFloat64(), []int{-140, 10}[operand]))
	}},
	{name: "denormal beside normal", draw: func(r *rand.Rand, operand int) float32 {
		return float32(math.Ldexp(r.NormFloat64(), []int{-145 + 140*r.IntN(2), 3}[operand]))
	}},
	{name: "all magnitudes", draw: func(r *rand.Rand, operand int) float32 { return float32(math.Ldexp(r.NormFloat64(), r.IntN(180)-130)) }},
	{name: "overflow", draw: func(r *rand.Rand, operand int) float32 {
		return float32(math.Ldexp(1+r.Float64(), []int{126, 10 - 40*r.IntN(2)}[operand]))
	}},
	{name: "near overflow", draw: func(r *rand.Rand, operand int) float32 {
		return float32(math.Ldexp(2*r.Float64()-1, []int{127, -12}[operand]))
	}},
	{name: "infinite", draw: func(r *rand.Rand, operand int) float32 {
		if r.IntN(3000) == 0 {
			return float32(math.Inf(r.IntN(2)*2 - 1))
		}
		return float32(r.NormFloat64())
	}},
	{name: "NaN", draw: func(r *rand.Rand, operand int) float32 {
		if r.IntN(3000) == 0 {
			return math.Float32frombits(0x7f800001 + r.Uint32N(0x7ffffe) | r.Uint32()<<31)
		}
		return float32(r.NormFloat64())
	}},
	{"rows and columns of 2^-60 to 2^60", uniformNumber, lines(-60, 60, -60, 60)},
	{"rows and columns of 2^-62 to 2^62, some infinite", normalNumber, lines(-62, 62, -62, 62)},
	{"rows of 2^-120 to 2^120", uniformNumber, lines(-120, 120, 0, 0)},
	{"columns of 2^-120 to 2^120", uniformNumber, lines(0, 0, -120, 120)},
	{"rows of 2^-70 to 2^20, columns of 2^-20 to 2^90", normalNumber, lines(-70, 20, -20, 90)},
	{"rows and columns of 2^-100 to 2^100", uniformNumber, lines(-100, 100, -100, 100)},
	{"denormal rows beside others, huge columns", uniformNumber, lines(-140, 0, 100, 110)},
	{"rows and columns of 2^-60 to 2^60 with Inf and NaN", func(r *rand.Rand, operand int) float32 {
		switch r.IntN(6000) {
		case 0:
			return float32(math.NaN())
		case 1:
			return float32(math.Inf(r.IntN(2)*2 - 1))
		}
		return uniformNumber(r, operand)
	}, lines(-60, 60, -60, 60)},
	{name: "few terms of 2^-60 to 2^60", draw: func(r *rand.Rand, operand int) float32 {
		if r.IntN(8) > 0 {
			return 0
		}
		return float32(math.Ldexp(r.NormFloat64(), r.IntN(121)-60))
	}},
}

func uniformNumber(r *rand.Rand, _ int) float32 { return 2*r.Float32() - 1 }
func normalNumber(r *rand.Rand, _ int) float32  { return float32(r.NormFloat64()) }

// lines draws exponents of rows of op(A) and of columns of op(B), each from the first to the second.
func lines(a0, a1, b0, b1 int) func(r *rand.Rand, operand int) int {
	return func(r *rand.Rand, operand int) int {
		from, to := a0, a1
		if operand == 1 {
			from, to = b0, b1
		}
		return from + r.IntN(to-from+1)
	}
}

// Products of float32 are more accurate on the tensor cores than sums of float32 that round once a term, whatever the numbers, and
// infinities and NaN are as IEEE says.
func TestProductAccuracy(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		dev.SMs = 2 // so that all are large enough for the tensor cores
		for _, numbers := range hardNumbers {
			batch, m, n, k := 1+r.Int64N(2), 130+r.Int64N(60), 130+r.Int64N(60), 400+r.Int64N(1000)
			if testing.Short() {
				batch, m, n, k = 1, 130, 129, 200
				dev.SMs = 1
			}
			transA, transB := r.IntN(2) == 1, r.IntN(2) == 1
			p := product(t, dev, 0, kernels.Float32, batch, m, n, k, transA, transB)
			t.Run(fmt.Sprintf("%s %s %s %v %v", dev.Name, numbers.name, p.Op, transA, transB), func(t *testing.T) {
				if dev.Major == 8 && dev.Minor == 0 && !strings.Contains(p.String(), "matmul_mma_f32_") {
					t.Errorf("%v: want the tensor cores", p)
				}
				a, b, out := make([]float32, batch*m*k), make([]float32, batch*k*n), make([]float32, batch*m*n)
				for i, x := range [][]float32{a, b} {
					for j := range x {
						x[j] = numbers.draw(r, i)
					}
					if numbers.line != nil {
						count, columns := []int64{m, n}[i], i == 0 && transA || i == 1 && !transB
						multiplyLines(x, batch, count, k, columns, func() int { return numbers.line(r, i) })
					}
				}
				testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)))
				most, mean := productErrors(t, out, a, b, m, n, k, transA, transB)
				t.Logf("largest error %.2f, mean %.3f of 2^-24 of the terms' sizes", most, mean)
				want := float64(k) / 4 // of sums that round once a term
				if strings.Contains(p.String(), "matmul_hopper_") || strings.Contains(p.String(), "matmul_mma_") {
					want = 8
				}
				if !(most <= want) {
					t.Errorf("the largest error is %.1f of 2^-24 of the terms' sizes, want at most %v", most, want)
				}
			})
		}
	}
}

// multiplyLines multiplies lines of k elements, so many in each matrix, by powers of 2 of those exponents.
func multiplyLines(x []float32, batch, lines, k int64, columns bool, exponent func() int) {
	for line := range batch * lines {
		first, step, e := line*k, int64(1), exponent()
		if columns {
			first, step = line/lines*lines*k+line%lines, lines
		}
		for l := range k {
			x[first+l*step] = float32(math.Ldexp(float64(x[first+l*step]), e))
		}
	}
}

// productErrors returns the largest and the mean error of a product's elements, in 2^-24 of the sum of their terms' sizes. Elements that
// cannot be finite must be what IEEE says.
func productErrors(t *testing.T, out, a, b []float32, m, n, k int64, transA, transB bool) (most, mean float64) {
	t.Helper()
	count := 0.0
	wanted, magnitude := productsOf(widened(a), widened(b), int64(len(out))/(m*n), m, n, k, transA, transB)
	for i, got := range out {
		z, row, col := int64(i)/(m*n), int64(i)/n%m, int64(i)%n
		want, abs := wanted[i], magnitude[i]
		switch {
		case want-want == 0 && (abs-math.Abs(want))/2 > math.MaxFloat32:
			// sums of some terms overflow either way
		case abs-abs != 0 || math.Abs(want) > math.MaxFloat32*(1+0x1p-24):
			if rounded := float32(want); got != rounded && (got == got || rounded == rounded) {
				t.Fatalf("c[%d][%d][%d] = %v, want %v", z, row, col, got, rounded)
			}
		case abs > math.MaxFloat32/2:
			// a sum of terms in another order may overflow
		default:
			e := math.Max(math.Abs(float64(got)-want)-0x1p-150, 0) / math.Max(abs*0x1p-24, 0x1p-150)
			if !(e < 1e9) {
				t.Fatalf("c[%d][%d][%d] = %v, want %v", z, row, col, got, want)
			}
			most, mean, count = math.Max(most, e), mean+e, count+1
		}
	}
	return most, mean / math.Max(count, 1)
}

// The times of products by the kernels of each architecture that this one can run.
func TestProductTimes(t *testing.T) {
	w := newStopwatch(t)
	times := func(name string, p *kernels.Plan) {
		if !w.wants(name) {
			return
		}
		timing := testutil.Get[*Timing](t)(TimeWithin(0, p, uniformInputs(p), 15, 40*time.Millisecond))
		us := float64(median(timing.Runs).Nanoseconds()) / 1e3
		t.Logf("%-60s %9.2f us %7.1f TFLOP/s", name, us, float64(p.Flops)/us/1e6)
	}
	for _, s := range []struct {
		m, n, k int64
		forms   string
	}{{512, 512, 512, "nn"}, {768, 768, 768, "nn"}, {1024, 1024, 1024, "nn"}, {2048, 2048, 2048, "nn"}, {4096, 4096, 4096, "nn nt tn tt"}, {8192, 8192, 8192, "nn"}, {4096, 512, 784, "nn"}, {512, 512, 4096, "tn"}} {
		for _, form := range strings.Fields(s.forms) {
			transA, transB := form[0] == 't', form[1] == 't'
			for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16} {
				for _, dev := range productDevices(t) {
					way := fmt.Sprintf("%dx%dx%d %s %v %d.%d", s.m, s.n, s.k, form, by, dev.Major, dev.Minor)
					p := product(t, dev, by, kernels.Float32, 1, s.m, s.n, s.k, transA, transB)
					if by == kernels.FullPrecision {
						times(way+" "+last(p).Kernel.Entry, p)
						continue
					}
					if p.Precision != by {
						continue
					}
					times(way, p)
					product := rounded(gemm.Product{Dtype: kernels.Float32, Batch: 1, M: s.m, N: s.n, K: s.k, A: gemm.Operand{Trans: transA}, B: gemm.Operand{Trans: transB}, Round: by})
					p = testutil.Get[*kernels.Plan](t)(product.Plan(dev))
					times(way+" rounded before "+last(p).Kernel.Entry, p)
				}
			}
			for _, dev := range productDevices(t) {
				p := product(t, dev, 0, kernels.Float64, 1, s.m, s.n, s.k, transA, transB)
				times(fmt.Sprintf("%dx%dx%d %s float64 %d.%d %s", s.m, s.n, s.k, form, dev.Major, dev.Minor, last(p).Kernel.Entry), p)
			}
			turing := w.dev
			turing.Major, turing.Minor = 7, 5
			times(fmt.Sprintf("%dx%dx%d %s by FMA", s.m, s.n, s.k, form), product(t, turing, 0, kernels.Float32, 1, s.m, s.n, s.k, transA, transB))
			times(fmt.Sprintf("%dx%dx%d %s float64 by FMA", s.m, s.n, s.k, form), product(t, turing, 0, kernels.Float64, 1, s.m, s.n, s.k, transA, transB))
		}
	}
}

// last returns the last launch of a plan that is of a product.
func last(p *kernels.Plan) kernels.Launch {
	for i := len(p.Launches) - 1; ; i-- {
		if l := p.Launches[i]; i == 0 || !strings.Contains(l.Kernel.Entry, "combine") {
			return l
		}
	}
}
