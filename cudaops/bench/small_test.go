package bench

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// smallProducts are products in TF32, BF16 and F16 whose operands are rounded as they are multiplied: in parts
// that a cluster adds up, and whole. sms: of a device with that many SMs.
var smallProducts = []struct {
	sms            int
	batch, m, n, k int64
}{
	{132, 1, 130, 201, 260}, {132, 2, 129, 66, 200}, {132, 3, 33, 32, 277}, {132, 1, 64, 128, 392}, {2, 1, 33, 65, 250}, {9, 1, 190, 129, 192}, {9, 1, 64, 64, 1300}, {1, 1, 64, 64, 200},
}

// smallKernels are those that round operands as they multiply.
const smallKernels = "matmul_mma_small_"

// smallDevice skips a test where small products are not rounded.
func smallDevice(t *testing.T) kernels.Device {
	t.Helper()
	dev := device0(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skipf("%s computes small products with all bits", dev.Name)
	}
	dev.FMAs = 0 // limits choose kernels, as in productDevices
	return dev
}

// Every form is exact where numbers are whole, have as many bits as the precision keeps, and their sums are small.
func TestSmallForms(t *testing.T) {
	r, dev := random(t), smallDevice(t)
	entries := map[string]bool{}
	for i, f := range smallProducts {
		dev.SMs = f.sms
		for transposes := range 4 {
			for by, bits := range significant {
				transA, transB := transposes >= 2, transposes%2 == 1
				p := candidate(t, dev, smallKernels, by, f.batch, f.m, f.n, f.k, transA, transB)
				entries[p.Launches[0].Kernel.Entry] = true
				if testing.Short() && transposes != i%4 {
					continue // a checker follows every access
				}
				t.Run(fmt.Sprintf("%s transposed %v %v", p.Op, transA, transB), func(t *testing.T) {
					most := [2]int{1, 1<<bits - 1}
					small := r.IntN(2) // the operand of small numbers, so that sums are exact
					whole := func(operand int) float32 {
						most := most[(operand+small)%2]
						return float32(r.IntN(2*most+1) - most)
					}
					reduced(t, p, f.batch, f.m, f.n, f.k, transA, transB, whole, func(x float32) float64 { return float64(x) }, 0)
				})
			}
		}
	}
	if len(entries) != 6 {
		t.Errorf("got %d entry points, want all 6: %v", len(entries), entries)
	}
}

// Products of random numbers of sizes that are drawn are those of rounded operands, within the error of float32 sums.
func TestSmallRandom(t *testing.T) {
	r, dev := random(t), smallDevice(t)
	sms := dev.SMs
	for range 12 {
		batch, m, n, k := 1+r.Int64N(3), 24+r.Int64N(150), 24+r.Int64N(150), 192+r.Int64N(500)
		for by, bits := range significant {
			dev.SMs = []int{sms, 60}[r.IntN(2)]
			reducedDrawn(t, r, dev, smallKernels, by, bits, batch, m, n, k)
		}
		if testing.Short() {
			return
		}
	}
}

// A number times 1 is rounded as Precision.Round says, to the bit, as in TestReducedRounding.
func TestSmallRounding(t *testing.T) {
	reducedRoundingOn(t, random(t), smallDevice(t), smallKernels, 132, 192)
}

// An epilogue computes the bits of a kernel after the product.
func TestSmallEpilogues(t *testing.T) {
	r, dev := random(t), smallDevice(t)
	for i, f := range smallProducts {
		dev.SMs = f.sms
		for j, text := range epilogues {
			if testing.Short() && j != i {
				continue // a checker follows every access
			}
			transposes := (i + j) % 4
			for by := range significant {
				if testing.Short() && int(by)%3 != i%3 {
					continue
				}
				p := gemm.Product{Dtype: kernels.Float32, Batch: f.batch, M: f.m, N: f.n, K: f.k, A: gemm.Operand{Trans: transposes >= 2}, B: gemm.Operand{Trans: transposes%2 == 1}, Round: by}
				t.Run(fmt.Sprintf("%v %dx%dx%dx%d %v", p, f.batch, f.m, f.n, f.k, text), func(t *testing.T) {
					finishProduct[float32](t, r, dev, p, text)
				})
			}
		}
	}
}

// The times of small products with all bits, in TF32, BF16 and F16.
func TestSmallTimes(t *testing.T) {
	w := newStopwatch(t)
	for _, s := range []struct {
		m, n, k int64
		form    string
	}{
		{128, 512, 784, "nn"}, {128, 512, 512, "nn"}, {128, 512, 512, "nt"}, {512, 512, 128, "tn"}, {784, 512, 128, "tn"}, {64, 512, 784, "nn"}, {256, 512, 784, "nn"},
		{256, 256, 256, "nn"}, {384, 384, 384, "nn"}, {512, 512, 512, "nn"}, {100, 128, 625, "nn"}, {784, 512, 256, "tn"},
	} {
		for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16} {
			p := testutil.Get[*kernels.Plan](t)(gemm.Product{Dtype: kernels.Float32, Batch: 1, M: s.m, N: s.n, K: s.k, A: gemm.Operand{Trans: s.form[0] == 't'}, B: gemm.Operand{Trans: s.form[1] == 't'}, Round: by}.Plan(w.dev))
			if name := fmt.Sprintf("small %dx%dx%d %s %v", s.m, s.n, s.k, s.form, by); w.wants(name) && (by == kernels.FullPrecision || p.Precision == by) {
				w.plan(name, p, uniformInputs(p), p.Bytes(), 40e6)
			}
		}
	}
}
