package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// olderGPUs returns device 0, and itself as GPUs of earlier compute capabilities with their shared memory, whose plans it can run.
func olderGPUs(t *testing.T) []kernels.Device {
	t.Helper()
	dev := device0(t)
	devices := []kernels.Device{dev}
	for _, older := range []struct{ major, minor, shared int }{{7, 0, 96}, {7, 5, 64}, {8, 0, 163}, {8, 6, 99}, {8, 9, 99}} {
		if older.major < dev.Major || older.major == dev.Major && older.minor < dev.Minor {
			d := dev
			d.Name, d.Major, d.Minor, d.SharedOptin = fmt.Sprintf("%s as %d.%d", dev.Name, older.major, older.minor), older.major, older.minor, min(older.shared<<10, dev.SharedOptin)
			devices = append(devices, d)
		}
	}
	return devices
}

// Every candidate of drawn products and sums, of this GPU and of earlier ones, computes what the definition does.
func TestCandidates(t *testing.T) {
	products := 40
	if testing.Short() {
		products = 8
	}
	for _, dev := range olderGPUs(t) {
		t.Run(dev.Name, func(t *testing.T) {
			r, kinds, plans := rand.New(rand.NewPCG(testutil.Seed(t), 35)), map[string]bool{}, 0
			for range products {
				p, size := gemm.Product{Dtype: f32, Batch: 1, A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}, func(high float64) int64 { return logUniform(r, 1, high) }
				if p.M, p.N, p.K = size(300), size(300), size(400); r.IntN(3) == 0 {
					p.M, p.N, p.K = 1, size(1500), size(3000)
				}
				if r.IntN(2) == 0 {
					p.M, p.N = p.N, p.M
				}
				if r.IntN(4) == 0 {
					p.Batch, p.K = size(5), p.K/3+1
				}
				switch r.IntN(7) {
				case 0, 1:
					p.Dtype = f64
				case 2:
					p.Round = kernels.TF32
				case 3:
					p.Round = kernels.BF16
				case 4:
					p.Round = kernels.F16
				}
				a, b := between1(r, p.Batch*p.M*p.K), between1(r, p.Batch*p.K*p.N)
				want, magnitude := productOf(p, a, b)
				names, _, list, err := gemm.Candidates(p, dev)
				testutil.Do(t, err)
				for i, plan := range list {
					kinds[plan.Launches[len(plan.Launches)-1].Kernel.Entry] = true
					plans++
					if fault := compareTo(t, plan, p.Dtype, want, magnitude, allowedOf(p), a, b); fault != "" {
						t.Errorf("%v, %d x (%d x %d x %d) of %v, %s: %s", p, p.Batch, p.M, p.K, p.N, p.Dtype, names[i], fault)
					}
				}

				dt, outer, terms, inner := []kernels.Dtype{f32, f64}[r.IntN(2)], size(60), size(900), size(60)
				if r.IntN(2) == 0 {
					inner, terms = 1, size(30_000)
				}
				x := between1(r, outer*terms*inner)
				want, magnitude = make([]float64, outer*inner), make([]float64, outer*inner)
				for i, e := range x {
					at := int64(i)/(terms*inner)*inner + int64(i)%inner
					want[at], magnitude[at] = want[at]+e, magnitude[at]+math.Abs(e)
				}
				relative := 0x1p-22 // of the magnitude of a sum's terms
				if dt == f64 {
					relative = 0x1p-48
				}
				names, _, list = reduce.Candidates(dev, dt, outer, terms, inner)
				for i, plan := range list {
					plans++
					if fault := compareTo(t, plan, dt, want, magnitude, relative, x); fault != "" {
						t.Errorf("sum of %d x %d x %d of %v, %s: %s", outer, terms, inner, dt, names[i], fault)
					}
				}
			}
			t.Logf("%d plans, %d kernels of products", plans, len(kinds))
			if want := products; plans < 5*want {
				t.Errorf("got %d plans, want at least %d", plans, 5*want)
			}
		})
	}
}

// Rows of products of few terms that are too long for the L2 cache.
func TestLongOuterProducts(t *testing.T) {
	r, dev := random(t), device0(t)
	for _, dt := range []kernels.Dtype{f32, f64} {
		for _, most := range []int64{4, 8, 16} {
			p := gemm.Product{Dtype: dt, Batch: 1 + r.Int64N(2), M: 20 + r.Int64N(20), N: 550_000 + r.Int64N(9), K: 1 + r.Int64N(most), A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}
			a, b := between1(r, p.Batch*p.M*p.K), between1(r, p.Batch*p.K*p.N)
			want, magnitude := productOf(p, a, b)
			names, _, list, err := gemm.Candidates(p, dev)
			testutil.Do(t, err)
			plans := 0
			for i, plan := range list {
				if strings.HasPrefix(names[i], "outer") {
					plans++
					if fault := compareTo(t, plan, dt, want, magnitude, allowedOf(p), a, b); fault != "" {
						t.Errorf("%v, %d x (%d x %d x %d), %s: %s", p, p.Batch, p.M, p.K, p.N, names[i], fault)
					}
				}
			}
			if plans == 0 {
				t.Errorf("%v, %d x (%d x %d x %d): got no plan with a kernel of few terms, want one", p, p.Batch, p.M, p.K, p.N)
			}
		}
	}
}

// allowedOf returns the error that the elements of a product may have, relative to the sums of the magnitudes of their terms.
func allowedOf(p gemm.Product) float64 {
	if p.Dtype == f64 {
		return 0x1p-48
	}
	return map[kernels.Precision]float64{kernels.FullPrecision: 0x1p-20, kernels.TF32: 0x1p-9, kernels.BF16: 0x1p-6, kernels.F16: 0x1p-9}[p.Round]
}

// between1 draws numbers of float32 in [-1, 1).
func between1(r *rand.Rand, n int64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(r.Float32()*2 - 1)
	}
	return x
}

// productOf returns the elements of a product in float64, and the sums of the magnitudes of their terms.
func productOf(p gemm.Product, a, b []float64) (c, magnitude []float64) {
	return productsOf(a, b, p.Batch, p.M, p.N, p.K, p.A.Trans, p.B.Trans)
}

// compareTo runs a plan of operands of a type on device 0 and says where its result is farther from what is wanted than a share of the magnitude, "" if nowhere.
func compareTo(t *testing.T, p *kernels.Plan, dt kernels.Dtype, want, magnitude []float64, relative float64, operands ...[]float64) string {
	t.Helper()
	var inputs [][]byte
	for _, x := range operands {
		if dt == f32 {
			inputs = append(inputs, kernels.Bytes(convert(x, func(e float64) float32 { return float32(e) })))
		} else {
			inputs = append(inputs, kernels.Bytes(x))
		}
	}
	return compareInputs(t, p, dt, want, magnitude, relative, inputs)
}

// compareInputs is compareTo of operands as the plan reads them.
func compareInputs(t *testing.T, p *kernels.Plan, dt kernels.Dtype, want, magnitude []float64, relative float64, inputs [][]byte) string {
	t.Helper()
	out := make([]byte, int64(len(want))*dt.Size())
	testutil.Do(t, Run(0, p, inputs, out))
	for i, w := range want {
		got := 0.0
		if dt == f32 {
			got = float64(kernels.Elements[float32](out)[i])
		} else {
			got = kernels.Elements[float64](out)[i]
		}
		if allowed := relative * magnitude[i]; !(math.Abs(got-w) <= allowed) {
			return fmt.Sprintf("element %d: got %v, want %v within %v", i, got, w, allowed)
		}
	}
	return ""
}
