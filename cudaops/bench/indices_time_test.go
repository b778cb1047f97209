package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// normal returns bytes of n normal numbers in float32.
func normal(r *rand.Rand, n int64) []byte {
	few := make([]float32, 1<<20+7)
	for i := range few {
		few[i] = float32(2.5 * r.NormFloat64())
	}
	x := make([]float32, n)
	for at := 0; at < len(x); at += len(few) {
		copy(x[at:], few)
	}
	return kernels.Bytes(x)
}

// The times of selections, draws, cumulative sums, the gradient of an embedding, and a matrix times a vector, a line each, of those that the regular expression STHENO_TIMES
// matches. Bytes are those that have to be read and written.
func TestIndexTimes(t *testing.T) {
	w := newStopwatch(t)
	r := random(t)
	const n = 50_304
	plan := func(name string, bytes int64, p *kernels.Plan, err error, inputs ...[]byte) {
		t.Helper()
		testutil.Do(t, err)
		w.plan(name, p, inputs, bytes, 60*time.Millisecond)
	}
	for _, rows := range []int64{1, 8, 16, 33, 64, 132, 264, 1024, 8192} {
		var x []byte
		logits := func() []byte {
			if x == nil {
				x = normal(r, rows*n)
			}
			return x
		}
		if name := fmt.Sprintf("topk 50 of %d x %d", rows, n); w.wants(name) {
			p, err := basic.TopK(w.dev, kernels.Float32, rows, n, 50)
			plan(name, 4*rows*n, p, err, logits())
		}
		for _, c := range []struct {
			k           int64
			p           float32
			temperature float32
		}{{0, 1, 1}, {1, 1, 0}, {50, 1, 1}, {50, .9, 1}, {0, .9, 1}, {0, .9, 8}, {2000, .9, 1}} {
			name := fmt.Sprintf("draw from %d x %d, k %d, p %v, temperature %v", rows, n, c.k, c.p, c.temperature)
			if !w.wants(name) {
				continue
			}
			p, err := basic.Categorical(w.dev, kernels.Float32, basic.Draws{Rows: rows, N: n, Temperature: 1, K: 1, P: 1, Stream: 1})
			plan(name, 4*rows*n, p, err, logits(), kernels.Bytes([]float32{c.temperature}), kernels.Bytes([]int64{c.k}), kernels.Bytes([]float32{c.p}), kernels.Bytes([]int64{5, 7}))
		}
	}
	for _, s := range [][]int{{n}, {1 << 26}, {8, n}, {4096, n}, {64, 1024, 1024}} {
		if name := fmt.Sprintf("cumsum of %v along 1", s); w.wants(name) {
			size := int64(4)
			for _, e := range s {
				size *= int64(e)
			}
			p, err := basic.CumSum(w.dev, kernels.Float32, s, min(len(s)-1, 1), false)
			plan(name, 2*size, p, err, uniform(size, 0))
		}
	}
	for _, c := range []struct{ rows, inner, count int64 }{{n, 768, 8192}, {n, 768, 16384}, {1024, 768, 8192}} {
		if name := fmt.Sprintf("scatter of %d to %d x %d", c.count, c.rows, c.inner); w.wants(name) {
			indices := make([]int64, c.count)
			for i := range indices {
				indices[i] = r.Int64N(c.rows)
			}
			p, err := basic.Scatter(w.dev, kernels.Float32, []int{int(c.rows), int(c.inner)}, 0, c.count)
			plan(name, 4*(c.rows+c.count)*c.inner, p, err, uniform(4*c.count*c.inner, 0), kernels.Bytes(indices))
		}
	}
	for _, c := range [][2]int64{{768, 768}, {1024, 1024}, {2048, 2048}, {3000, 3000}, {4096, 4096}, {8192, 8192}, {768, 3072}, {3072, 768}, {768, 50_304}, {50_304, 768}, {256, 30_000}, {16384, 4096}, {4096, 50_304}} {
		k, m := c[0], c[1]
		for _, trans := range []bool{false, true} {
			if name := fmt.Sprintf("vector, %d terms of %d, transposed %v", k, m, trans); w.wants(name) {
				p, err := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: m, N: 1, K: k, A: gemm.Operand{Trans: trans}}.Plan(w.dev)
				plan(name, 4*k*m, p, err, uniformInputs(p)...)
			}
		}
	}
}
