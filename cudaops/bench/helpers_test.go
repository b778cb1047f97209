package bench

import (
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// device0 returns the properties of device 0; without one the test is skipped, or
// fails if STHENO_REQUIRE_GPU=1.
func device0(t testing.TB) kernels.Device {
	t.Helper()
	devices, err := cudaops.Devices()
	testutil.SkipUnless(t, "GPU", err)
	return devices[0].Device
}

// product plans a product in a precision, full for 0.
func product(t *testing.T, dev kernels.Device, by kernels.Precision, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) *kernels.Plan {
	t.Helper()
	p := gemm.Product{Dtype: dt, Batch: batch, M: m, N: n, K: k, A: gemm.Operand{Trans: transA}, B: gemm.Operand{Trans: transB}, Round: by}
	return testutil.Get[*kernels.Plan](t)(p.Plan(dev))
}

// candidate returns the first plan of a product by a kernel whose name has that part, or the product's plan if that is not known.
func candidate(t *testing.T, dev kernels.Device, kernel string, by kernels.Precision, batch, m, n, k int64, transA, transB bool) *kernels.Plan {
	t.Helper()
	if kernel == "" {
		return product(t, dev, by, kernels.Float32, batch, m, n, k, transA, transB)
	}
	p := gemm.Product{Dtype: kernels.Float32, Batch: batch, M: m, N: n, K: k, A: gemm.Operand{Trans: transA}, B: gemm.Operand{Trans: transB}, Round: by}
	names, _, plans, err := gemm.Candidates(p, dev)
	testutil.Do(t, err)
	for _, plan := range plans {
		if strings.Contains(plan.String(), kernel) {
			return plan
		}
	}
	t.Fatalf("%v: got the candidates %v, want one of %s", p, names, kernel)
	return nil
}

// repeats is how often a test runs a plan to compare the bits of the runs: n times, but once under a sanitizer, which follows every access.
func repeats(n int) int {
	if testing.Short() {
		return 1
	}
	return n
}

// widened returns numbers in float64.
func widened[T kernels.Float](x []T) []float64 {
	to := make([]float64, len(x))
	for i, v := range x {
		to[i] = float64(v)
	}
	return to
}

// productsOf returns the elements of products of op(A) of m x k and op(B) of k x n in float64, and the sums of the magnitudes of their terms.
func productsOf(a, b []float64, batch, m, n, k int64, transA, transB bool) (c, magnitude []float64) {
	if transA {
		a = transposed(a, batch, k)
	}
	if !transB { // columns of op(B) side by side
		b = transposed(b, batch, k)
	}
	c, magnitude = make([]float64, batch*m*n), make([]float64, batch*m*n)
	var wait sync.WaitGroup
	rows, workers := batch*m, int64(runtime.GOMAXPROCS(0))
	for w := range workers {
		wait.Go(func() {
			for row := w; row < rows; row += workers {
				x := a[row*k:][:k]
				for col := range n {
					y, sum, abs := b[(row/m*n+col)*k:][:k], 0.0, 0.0
					for l, v := range x {
						term := v * y[l]
						sum, abs = sum+term, abs+math.Abs(term)
					}
					c[row*n+col], magnitude[row*n+col] = sum, abs
				}
			}
		})
	}
	wait.Wait()
	return c, magnitude
}

// rounded returns a product of operands that have been rounded.
func rounded(p gemm.Product) gemm.Product {
	p.A.Form, p.B.Form = gemm.Form(p.Round), gemm.Form(p.Round)
	return p
}
