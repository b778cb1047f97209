package bench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// onHopper returns device 0; the test is skipped if it is of another compute capability than 9.0, whose versions of MatMul are errors.
func onHopper(t *testing.T) kernels.Device {
	t.Helper()
	dev := device0(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skipf("SKIPPED, NOT TESTED: %s has not the compute capability 9.0", dev.Name)
	}
	return dev
}

// squares are operands of a product of n x n matrices, as a version takes them, and a product by plain sums in float64, with the sums of
// the terms' sizes.
type squares struct {
	n         int
	bytes     [][]byte
	words     [][]byte // in float32, not yet rounded
	x         [2][]float32
	want, abs []float64
}

// newSquares draws elements of operand 0 and 1, which are float32 or, for bf16, BF16.
func newSquares(n int, bf16 bool, draw func(operand int) float32) *squares {
	s := squares{n: n}
	var x [2][]float32
	for operand := range x {
		x[operand] = make([]float32, n*n)
		halves, words := make([]uint16, n*n), make([]float32, n*n)
		for i := range halves {
			v := draw(operand)
			words[i] = v
			if bf16 {
				v = kernels.BF16.Round(v)
				halves[i] = uint16(math.Float32bits(v) >> 16)
			}
			x[operand][i] = v
		}
		s.words = append(s.words, kernels.Bytes(words))
		if bf16 {
			s.bytes = append(s.bytes, kernels.Bytes(halves))
		}
	}
	if !bf16 {
		s.bytes = s.words
	}
	s.x = x
	return s.first(n, 1)
}

// first returns the squares with the sums of their first terms alone, times a number.
func (s squares) first(terms int, times float64) *squares {
	n := s.n
	s.want, s.abs = make([]float64, n*n), make([]float64, n*n)
	for row := range n {
		want, abs := s.want[row*n:][:n], s.abs[row*n:][:n]
		for l, a := range s.x[0][row*n:][:terms] {
			for col, b := range s.x[1][l*n:][:n] {
				term := float64(a) * float64(b) * times
				want[col] += term
				abs[col] += math.Abs(term)
			}
		}
	}
	return &s
}

// check runs a plan and compares: an element may be off by share of the sum of its terms' sizes.
func (s *squares) check(t *testing.T, p *kernels.Plan, in [][]byte, run runner, share float64) {
	t.Helper()
	out := make([]float32, s.n*s.n)
	testutil.Do(t, run(p, in, kernels.Bytes(out)))
	for i, c := range out {
		got, want := float64(c), s.want[i]
		if !(math.Abs(got-want) <= share*s.abs[i]) && got != want && (got == got || want == want) {
			t.Errorf("%v: c[%d][%d] = %v, want %v", p, i/s.n, i%s.n, got, want)
			return
		}
	}
}

// runner runs a plan on a device.
type runner func(p *kernels.Plan, in [][]byte, out []byte) error

// warpgroupPlans returns the plans of the versions of MatMul on warpgroups that take BF16, or of those that take float32.
func warpgroupPlans(t *testing.T, dev kernels.Device, n int, bf16 bool) (plans []*kernels.Plan) {
	last, operands := len(versions.Docs("MatMul")), kernels.FullPrecision
	if bf16 {
		operands = kernels.BF16
	}
	for v := versions.TiledMatMuls + 1; v <= last; v++ {
		if bf16 == (v < last) {
			plans = append(plans, testutil.Get[*kernels.Plan](t)(versions.WarpgroupMatMul(dev, v, int64(n), operands)))
		}
	}
	return plans
}

// The versions of MatMul on warpgroups are exact for small integers and otherwise within the error bound of float32 sums. Inf and
// NaN propagate as in IEEE arithmetic, except in version 14, which is for finite numbers.
func TestWarpgroupMatMul(t *testing.T) {
	t.Run("host", func(t *testing.T) {
		testWarpgroups(t, kernels.HostDevice(), 256, func(p *kernels.Plan, in [][]byte, out []byte) error {
			return runGuarded(new(exec.HostBackend), p, in, out)
		})
	})
	t.Run("GPU", func(t *testing.T) {
		dev := onHopper(t)
		run := func(p *kernels.Plan, in [][]byte, out []byte) error { return Run(0, p, in, out) }
		if testing.Short() { // a checker follows every access
			dev.SMs = 1 // blocks take several tiles
			testWarpgroups(t, dev, 256, run)
			return
		}
		testWarpgroups(t, dev, 256, run)
		dev.SMs = 4
		testWarpgroups(t, dev, 768, run)
	})
}

func testWarpgroups(t *testing.T, dev kernels.Device, n int, run runner) {
	r := random(t)
	usual := func(int) float32 { return float32(math.Ldexp(r.NormFloat64(), r.IntN(9)-4)) }
	for _, bf16 := range []bool{true, false} {
		most := [2]int{100, 100} // of 7 bits each
		if !bf16 {
			most = [2]int{8000, 1}
		}
		whole := func(operand int) float32 { return float32(r.IntN(2*most[operand]+1) - most[operand]) }
		hard := func(int) float32 {
			if bf16 && r.IntN(20*n) == 0 {
				return []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}[r.IntN(3)]
			}
			return usual(0)
		}
		for name, c := range map[string]struct {
			draw  func(int) float32
			share float64
		}{"whole": {whole, 0}, "usual": {usual, float64(n) * 0x1p-24}, "hard": {hard, float64(n) * 0x1p-24}} {
			if testing.Short() && name != "hard" {
				continue
			}
			s := newSquares(n, bf16, c.draw)
			for _, p := range warpgroupPlans(t, dev, n, bf16) {
				t.Run(p.Op+" "+name, func(t *testing.T) { s.check(t, p, s.bytes, run, c.share) })
			}
			if !bf16 || n > 256 {
				continue
			}
			for v := versions.TiledMatMuls + 1; v < len(versions.Docs("MatMul")); v++ {
				p := testutil.Get[*kernels.Plan](t)(versions.WarpgroupMatMul(dev, v, int64(n), kernels.FullPrecision))
				t.Run(p.Op+" rounds, "+name, func(t *testing.T) { s.check(t, p, s.words, run, c.share) })
			}
			p := testutil.Get[*kernels.Plan](t)(versions.WarpgroupCeiling(dev, int64(n)))
			t.Run(p.Op+" "+name, func(t *testing.T) { s.first(64, float64(n)/64).check(t, p, s.bytes, run, c.share) })
		}
	}
}

// A version says what it takes where it cannot run.
func TestWarpgroupErrors(t *testing.T) {
	ada := kernels.Device{Name: "Ada", Major: 8, Minor: 9, SMs: 128}
	for want, f := range map[string]func() (*kernels.Plan, error){
		"got Ada of compute capability 8.9, want 9.0": func() (*kernels.Plan, error) { return versions.WarpgroupMatMul(ada, 9, 256, kernels.BF16) },
		"got matrices of side 384, want a multiple": func() (*kernels.Plan, error) {
			return versions.WarpgroupMatMul(kernels.HostDevice(), 9, 384, kernels.BF16)
		},
		"got version 7, want 8 to 14": func() (*kernels.Plan, error) {
			return versions.WarpgroupMatMul(kernels.HostDevice(), 7, 256, kernels.BF16)
		},
		"got version 15, want 8 to 14": func() (*kernels.Plan, error) {
			return versions.WarpgroupMatMul(kernels.HostDevice(), 15, 256, kernels.BF16)
		},
	} {
		if p, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v and error %v, want %q", p, err, want)
		}
	}
}

// The times of the versions on warpgroups, beside the op's own kernels.
func TestWarpgroupTimes(t *testing.T) {
	w := newStopwatch(t)
	onHopper(t)
	r := random(t)
	for _, n := range []int{4096, 8192} {
		for _, bf16 := range []bool{true, false} {
			var operands [][]byte
			for range 2 {
				words, halves := make([]float32, n*n), make([]uint16, n*n)
				for i := range words {
					words[i] = float32(r.NormFloat64())
					halves[i] = uint16(math.Float32bits(kernels.BF16.Round(words[i])) >> 16)
				}
				if bf16 {
					operands = append(operands, kernels.Bytes(halves))
				} else {
					operands = append(operands, kernels.Bytes(words))
				}
			}
			plans := warpgroupPlans(t, w.dev, n, bf16)
			if bf16 {
				plans = append(plans, testutil.Get[*kernels.Plan](t)(versions.WarpgroupCeiling(w.dev, int64(n))))
			}
			own := product(t, w.dev, 0, kernels.Float32, 1, int64(n), int64(n), int64(n), false, false)
			if bf16 {
				product := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: int64(n), N: int64(n), K: int64(n), Round: kernels.BF16}
				own = testutil.Get[*kernels.Plan](t)(rounded(product).Plan(w.dev))
			}
			for range 8192 / n {
				for _, p := range append(plans, own) {
					time.Sleep(300 * time.Millisecond) // a GPU at its power limit is slower for a while
					timing := testutil.Get[*Timing](t)(TimeWithin(0, p, operands, 15, 100*time.Millisecond))
					us := float64(median(timing.Runs).Nanoseconds()) / 1e3
					t.Logf("%5d %-40s %9.1f us %6.1f TFLOP/s", n, p.Op, us, 2*math.Pow(float64(n), 3)/us/1e6)
				}
			}
		}
	}
}
