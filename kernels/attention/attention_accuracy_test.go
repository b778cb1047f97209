package attention_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
)

// The mean error of attention in float32 on the tensor cores is at most twice that of multiply-adds, for the result and each gradient: against float64, in 2^-24 of the sum of |weight v| of an
// element, or of the largest element of a gradient or, where its terms cancel, of the largest term. The errors of the other types are logged.
func TestAccuracy(t *testing.T) {
	devices := tested(t)
	if testing.Short() || devices[0].Memory == 0 {
		t.Skip("SKIPPED, NOT TESTED: there is no GPU, or it is a short test")
	}
	seeds := testutil.Random(t)
	for _, p := range []attention.Problem{{Queries: 1024, Dim: 64}, {Queries: 1024, Dim: 64, Causal: true}, {Queries: 1024, Dim: 128}, {Queries: 4096, Dim: 64}} {
		p.Dtype, p.Batch, p.Heads, p.KeyHeads, p.Keys, p.Scale = kernels.Float32, 1, 1, 1, p.Queries, 1/math.Sqrt(float64(p.Dim))
		r := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		a := &attended{Problem: p}
		a.draw(r)
		a.Counts, a.counts = attention.Counts{}, nil
		a.compute()
		mean := map[string][4]float64{}
		for _, dev := range []kernels.Device{devices[0], devices[2]} {
			for _, round := range []kernels.Precision{kernels.FullPrecision, kernels.TF32} {
				if round != kernels.FullPrecision && dev.Major < 8 {
					continue
				}
				a.Round = round
				largest, average := a.errors(t, dev)
				mean[dev.Name+round.String()] = average
				logErrors(t, p, dev, kind{Dtype: p.Dtype, round: round}, largest, average)
			}
		}
		for _, of := range []kind{bf16, f16} {
			p.Dtype = of.Dtype
			half := &attended{Problem: p}
			half.draw(r)
			half.Counts, half.counts = attention.Counts{}, nil
			half.compute()
			largest, average := half.errors(t, devices[0])
			logErrors(t, p, devices[0], of, largest, average)
		}
		tensor, fma := mean[devices[0].Name+"float32"], mean[devices[2].Name+"float32"]
		for i := range tensor {
			if tensor[i] > 2*fma[i] {
				t.Errorf("%+v: output %d: got a mean error of %.3g, want at most twice that of multiply-adds, %.3g", p, i, tensor[i], fma[i])
			}
		}
	}
}

func logErrors(t *testing.T, p attention.Problem, dev kernels.Device, of kind, largest, mean [4]float64) {
	t.Logf("%d x %d, causal %v, on %s in %v: largest and mean of out %.3g, %.3g, dq %.3g, %.3g, dk %.3g, %.3g, dv %.3g, %.3g", p.Queries, p.Dim, p.Causal, dev.Name, of,
		largest[0], mean[0], largest[1], mean[1], largest[2], mean[2], largest[3], mean[3])
}

// errors returns the largest and the mean errors of out, dq, dk and dv on a device.
func (a *attended) errors(t *testing.T, dev kernels.Device) (largest, mean [4]float64) {
	bytes := func(x []float64) []byte { return bytesOfType(a.Dtype, x) }
	in := [][]byte{bytes(a.q), bytes(a.k), bytes(a.v)}
	forward := run(t, dev, attention.Forward{Problem: a.Problem, Out: true}, in)
	in = append(in, bytesOfType(a.statistics(), a.lse), bytes(a.out), bytes(a.grad))
	p := testutil.Get[*kernels.Plan](t)(attention.Backward{Problem: a.Problem, Q: true, K: true, V: true}.Plan(dev))
	gradients := run(t, dev, attention.Backward{Problem: a.Problem, Q: true, K: true, V: true}, in)
	for i, want := range [][]float64{a.out, a.dq, a.dk, a.dv} {
		got := forward
		if i > 0 {
			got = gradients[p.Parts[i-1]:]
		}
		for k, v := range numbersOfType(a.Dtype, got, len(want)) {
			size := a.sizes[min(k, len(a.sizes)-1)]
			if i > 0 {
				size = a.gradientSizes[i-1]
			}
			e := math.Abs(v-want[k]) / size * (1 << 24)
			largest[i] = max(largest[i], e)
			mean[i] += e / float64(len(want))
		}
	}
	return largest, mean
}

// run returns what a plan computes.
func run(t *testing.T, dev kernels.Device, planner kernels.Planner, in [][]byte) []byte {
	p := testutil.Get[*kernels.Plan](t)(planner.Plan(dev))
	out := make([]byte, p.Out)
	testutil.Do(t, bench.Run(0, p, in, out))
	return out
}
