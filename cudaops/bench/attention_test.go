package bench

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Every version of attention computes the definition, with weights and scores rounded to BF16 at most, and twice the same bits.
func TestAttentionVersions(t *testing.T) {
	r := random(t)
	run := func(dev kernels.Device, p *kernels.Plan, in [][]byte, out []byte) error {
		if dev.Kind == kernels.CPU {
			return runGuarded(new(exec.HostBackend), p, in, out)
		}
		return Run(0, p, in, out)
	}
	devices := []kernels.Device{kernels.HostDevice()}
	if list, err := cudaops.Devices(); err == nil {
		devices = append(devices, list[0].Device)
	}
	for version := 1; version <= len(versions.Docs("Attention")); version++ {
		for range repeats(4) {
			a := attention.Problem{Dtype: expr.BF16, Batch: 1 + r.Int64N(2), Heads: 1 + r.Int64N(3), Queries: 1 + r.Int64N(200), Keys: 8 * (1 + r.Int64N(30)), Dim: 8 * (1 + r.Int64N(16)), Causal: version > 1 && r.IntN(2) == 1}
			a.KeyHeads, a.Scale = a.Heads, 1/math.Sqrt(float64(a.Dim))
			var x [3][]float64
			var in [][]byte
			for i, rows := range []int64{a.Queries, a.Keys, a.Keys} {
				halves := make([]uint16, a.Batch*a.Heads*rows*a.Dim)
				for k := range halves {
					halves[k] = expr.ToHalf(expr.BF16, float32(r.NormFloat64()))
					x[i] = append(x[i], float64(expr.FromHalf(expr.BF16, halves[k])))
				}
				in = append(in, kernels.Bytes(halves))
			}
			want, sizes := attend(a, x[0], x[1], x[2])
			for _, dev := range devices {
				p := testutil.Get[*kernels.Plan](t)(versions.Attention(dev, version, a))
				out, again := make([]uint16, len(want)), make([]uint16, len(want))
				for i := range out {
					out[i] = 0x7fff // NaN
				}
				testutil.Do(t, run(dev, p, in, kernels.Bytes(out)))
				if copy(again, out); !testing.Short() {
					testutil.Do(t, run(dev, p, in, kernels.Bytes(again)))
				}
				for i, w := range want {
					if got := float64(expr.FromHalf(expr.BF16, out[i])); out[i] != again[i] || !(math.Abs(got-w) <= 0x1p-5*sizes[i]) {
						t.Errorf("version %d on %s: element %d is %v, then %#x and %#x, want %v within %v: %+v", version, dev.Name, i, got, out[i], again[i], w, 0x1p-5*sizes[i], a)
						break
					}
				}
			}
		}
	}
	for _, a := range []attention.Problem{{}, {Dtype: expr.BF16, Batch: 1, Heads: 1, KeyHeads: 1, Queries: 8, Keys: 8, Dim: 136, Scale: 1}, {Dtype: expr.F16, Batch: 1, Heads: 1, KeyHeads: 1, Queries: 8, Keys: 8, Dim: 8, Scale: 1}} {
		if p, err := versions.Attention(kernels.HostDevice(), 2, a); err == nil {
			t.Errorf("%+v: got %v, want an error", a, p)
		}
	}
}

// attend returns attention by the definition, and the sums of the sizes of its terms.
func attend(a attention.Problem, q, k, v []float64) (out, sizes []float64) {
	out, sizes = make([]float64, len(q)), make([]float64, len(q))
	for row := range a.Batch * a.Heads * a.Queries {
		seen, head := a.Keys, row/a.Queries
		if a.Causal {
			seen = min(max(row%a.Queries+a.Keys-a.Queries+1, 0), a.Keys)
		}
		total, weights := 0.0, make([]float64, seen)
		for j := range weights {
			for l := range a.Dim {
				weights[j] += q[row*a.Dim+l] * k[(head*a.Keys+int64(j))*a.Dim+l]
			}
			weights[j] = math.Exp(weights[j] * a.Scale)
			total += weights[j]
		}
		for j, w := range weights {
			for l := range a.Dim {
				x := v[(head*a.Keys+int64(j))*a.Dim+l]
				out[row*a.Dim+l] += w / total * x
				sizes[row*a.Dim+l] += w / total * math.Abs(x)
			}
		}
	}
	return out, sizes
}
