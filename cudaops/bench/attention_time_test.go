package bench

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// The times of attention and its gradients of standard normal numbers, 16 384 tokens in rows of 2048 elements, and those of a layer of GPT-2 124M, batch 8 x 1024: a line each, of those that the
// regular expression STHENO_TIMES matches. The operands are larger than four times L2, or there are copies of them, here and in bench/model_peers.py.
func TestAttentionTimes(t *testing.T) {
	w := newStopwatch(t)
	problems := []attention.Problem{
		{Dtype: kernels.Float32, Batch: 8, Heads: 12, Queries: 1024, Dim: 64, Causal: true},
		{Dtype: kernels.Float32, Round: kernels.TF32, Batch: 8, Heads: 12, Queries: 1024, Dim: 64, Causal: true},
		{Dtype: expr.BF16, Batch: 8, Heads: 12, Queries: 1024, Dim: 64, Causal: true},
	}
	for _, causal := range []bool{false, true} {
		for _, dim := range []int64{64, 128} {
			for _, n := range []int64{512, 2048, 8192, 16384} {
				for _, a := range []attention.Problem{{Dtype: expr.BF16}, {Dtype: kernels.Float32}, {Dtype: kernels.Float32, Round: kernels.TF32}} {
					a.Batch, a.Heads, a.Queries, a.Dim, a.Causal = 16384/n, 2048/dim, n, dim, causal
					problems = append(problems, a)
				}
			}
		}
	}
	for _, a := range problems {
		a.KeyHeads, a.Keys, a.Scale = a.Heads, a.Queries, 1/math.Sqrt(float64(a.Dim))
		forward, backward := attention.Forward{Problem: a, Out: true, Statistics: true}, attention.Backward{Problem: a, Q: true, K: true, V: true}
		for _, planner := range []kernels.Planner{forward, backward} {
			name := fmt.Sprintf("%v %v %v, %d x %d x %d of %d, causal %v", planner, a.Dtype, a.Round, a.Batch, a.Heads, a.Queries, a.Dim, a.Causal)
			if !w.wants(name) {
				continue
			}
			p := testutil.Get[*kernels.Plan](t)(planner.Plan(w.dev))
			var inputs [][]byte
			for i, bytes := range p.Inputs {
				x := gaussian(bytes*4/a.Dtype.Size(), i)
				if i == 3 { // statistics stay in float32
					x = gaussian(bytes, 3)
				} else if a.Dtype == expr.BF16 {
					words := kernels.Elements[float32](x)
					halves := make([]uint16, len(words))
					for k, v := range words {
						halves[k] = expr.ToHalf(a.Dtype, v)
					}
					x = kernels.Bytes(halves)
				}
				inputs = append(inputs, x)
			}
			if len(inputs) > 3 { // statistics of about such scores
				for k, list := 0, kernels.Elements[float32](inputs[3]); k < len(list); k++ {
					list[k] = float32(math.Log(float64(a.Keys)))
				}
			}
			timing := testutil.Get[*Timing](t)(TimeWithin(0, p, inputs, 15, 150*time.Millisecond))
			us, _, _ := w.rate(timing.Runs, p.Bytes())
			t.Logf("%-70s %9.1f us %6.1f TFLOP/s", name, us, float64(p.Flops)/us/1e6)
		}
	}
}
