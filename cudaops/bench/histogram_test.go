package bench

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// More equal bytes than 32 bits count.
func TestHistogramBeyond32Bits(t *testing.T) {
	dev := device0(t)
	if testing.Short() {
		t.Skip("4 GiB of bytes")
	}
	const n = 1<<32 + 5
	for v := 2; v <= versions.HistogramVersions; v++ {
		p := must.Get[*kernels.Plan](t)(versions.Histogram(dev, kernels.Uint8, v, n, kernels.Bins{N: 3, Lo: -1, Hi: 2}))
		timing := must.Get[*Timing](t)(Time(0, p, [][]byte{make([]byte, n)}, 1))
		if counts := kernels.Elements[int64](timing.Out); counts[0] != 0 || counts[1] != n || counts[2] != 0 {
			t.Errorf("version %d: got %v, want 0, %d, 0", v, counts, n)
		}
	}
}
