package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// TestStridedTimes times the two sums of a BatchNorm's gradient over a strided axis that is split among blocks, of matrices in float32 and in BF16.
func TestStridedTimes(t *testing.T) {
	if os.Getenv("STHENO_TIMES") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_TIMES is not set")
	}
	watch, dev := newStopwatch(t), device0(t)
	for _, d := range []expr.Dtype{expr.Float32, expr.BF16} {
		line := d.String()
		for _, shape := range [][]int{{1 << 19, 64}, {1 << 17, 128}, {1 << 15, 256}, {1 << 13, 512}, {1 << 13, 768}, {1 << 13, 3072}, {1 << 14, 1000}, {4096, 4096}} {
			b := expr.NewBuilder(d, d)
			x, y := b.Convert(b.Operand(0), expr.Float32), b.Convert(b.Operand(1), expr.Float32)
			if d == expr.Float32 {
				x, y = b.Operand(0), b.Operand(1)
			}
			f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowSum, x), b.Apply(expr.RowSum, b.Apply(expr.Mul, x, y))))
			p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, shape, []int{0}, []bool{true, true}, codegen.Dense(shape), codegen.Dense(shape)))
			us := timeConv(t, watch, p, [][]byte{signed(p.Inputs[0], 0), signed(p.Inputs[1], 1)}, 100*time.Millisecond)
			line += fmt.Sprintf("  %dx%d %.1f us %.2f TB/s", shape[0], shape[1], us, float64(p.Inputs[0]+p.Inputs[1])/us/1e6)
		}
		t.Log(line)
	}
}
