package maintain

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// modelled is a product with a model of GPUs of compute capability 8.
type modelled struct{ gemm.Product }

func (modelled) Predicted(dev kernels.Device) map[string]float64 {
	if dev.Major != 8 {
		return nil
	}
	return map[string]float64{"slow": 9000, "fast": 8000}
}

// A case has its least predicted time beside the roof on the GPUs that its model knows, and a table without any is left out.
func TestPredictedTable(t *testing.T) {
	p := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: 4096, N: 4096, K: 4096}
	got := testutil.Get[string](t)(predictedTable("Product", []predictedCase{{"4096", modelled{p}}}))
	// 2 * 4096^3 operations at 19.5, 91.6 and 82.6 TFLOP/s
	if want := "| 4096 | 8.00 ms | 7.05 ms | 8.00 ms | 1.50 ms | 8.00 ms | 1.66 ms | | |\n"; !strings.HasSuffix(strings.ReplaceAll(got, "  ", " "), want) {
		t.Errorf("got\n%s\nwant the last line\n%s", got, want)
	}
	if got, err := predictedTable("Sum", nil); got != "" || err != nil {
		t.Errorf("without cases: got %q, %v, want no table", got, err)
	}
	_, has := any(p).(predictor)
	if text := testutil.Get[string](t)(predicted()); strings.Contains(text, "| Product |") != has || !strings.Contains(text, "| Sum |") {
		t.Errorf("products have a model: %t; got\n%s", has, text)
	}
}
