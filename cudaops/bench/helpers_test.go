package bench

import (
	"strings"
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
	names, _, plans, err := p.Candidates(dev)
	testutil.Do(t, err)
	for _, plan := range plans {
		if strings.Contains(plan.String(), kernel) {
			return plan
		}
	}
	t.Fatalf("%v: got the candidates %v, want one of %s", p, names, kernel)
	return nil
}

// rounded returns a product of operands that have been rounded.
func rounded(p gemm.Product) gemm.Product {
	p.A.Form, p.B.Form = gemm.Form(p.Round), gemm.Form(p.Round)
	return p
}
