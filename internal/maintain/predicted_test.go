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

func (modelled) Predicted(dev kernels.Device) float64 {
	if dev.Major != 8 {
		return 0
	}
	return 8000
}

// A case has its predicted time beside the roof on the GPUs that its model knows, and a table without any is left out.
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
	text := testutil.Get[string](t)(predicted())
	for _, title := range []string{"Sum", "Product without tensor cores", "Product on tensor cores"} {
		if !strings.Contains(text, "| "+title+" |") {
			t.Errorf("got no table of %s:\n%s", title, text)
		}
	}
}

// No prediction is below its roof: times of operands that are in L2 are none.
func TestPredictionsAreAboveRoofs(t *testing.T) {
	for _, c := range append(predictedProducts(), predictedTensor()...) {
		for _, dev := range unmeasured {
			dev.FMA = true
			p := testutil.Get[*kernels.Plan](t)(c.Plan(dev.Device))
			us, roof := c.Predicted(dev.Device), max(float64(p.Bytes())/dev.Bandwidth, float64(p.Flops)/2/c.peak(dev.Device, dev.tensor))*1e6
			if us < roof || us > 20*roof+20 {
				t.Errorf("%s on %s by %v: got %.2f us, want at least the roof, %.2f, and at most 20 us more than 20 times as much", c.name, dev.Name, p, us, roof)
			}
		}
	}
}

// The operations of a data sheet are those of the FMA units of all SMs at a clock that GPUs have.
func TestUnmeasuredClocks(t *testing.T) {
	for _, dev := range unmeasured {
		if clock := dev.FMAs / float64(dev.SMs) / dev.FMALanes(kernels.Float32); clock < 1.3e9 || clock > 2.7e9 {
			t.Errorf("%s: got a clock of %.2f GHz", dev.Name, clock/1e9)
		}
		if lanes := dev.tensor / dev.FMAs; lanes < 2 || lanes > 32 {
			t.Errorf("%s: got tensor cores of %.1f times the rate of the FMA units", dev.Name, lanes)
		}
	}
}
