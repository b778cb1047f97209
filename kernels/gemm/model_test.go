package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

var h200 = kernels.Device{Name: "NVIDIA H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Memory: 140 << 30, Cooperative: true, Bandwidth: 4.81e12, FMAs: 33.4e12}

// The time to choose kernels for a product of the record that were not chosen before.
func BenchmarkChoose(b *testing.B) {
	var problems []problem
	for _, s := range readSweep(b, choicesRecord...) {
		problems = append(problems, s.problem())
	}
	for i := 0; b.Loop(); i++ {
		x := &problems[i%len(problems)]
		x.search(max(x.A.Form, x.B.Form))
	}
}

// A slower clock, memory or float64 slows some predicted times of drawn products down and none up, on GPUs of 9.0 and on others, which do not choose by them. A
// calibration that measures half of a GPU's rates has the times of half the peaks.
func TestPredictedScales(t *testing.T) {
	r := rand.New(rand.NewPCG(testutil.Seed(t), 35))
	l40s := kernels.Device{Name: "L40S", Major: 8, Minor: 9, SMs: 142, SharedOptin: 99 << 10, L2: 96 << 20, Memory: 48 << 30, Bandwidth: 864e9, FMAs: 45.8e12, FMA: true}
	slow := map[string]func(*kernels.Device){
		"clock": func(d *kernels.Device) { d.FMAs /= 1.5 }, "memory": func(d *kernels.Device) { d.Bandwidth /= 1.5 },
		"calibrated": func(d *kernels.Device) {
			f := kernels.Device{SMs: 132}.Facts()
			d.Calibration = kernels.Calibration{Memory: 4.513e12 * d.Bandwidth / 4.814e12 / 2, L2: 5.73e12 * f.L2, FMAs: 1.985e13 * d.FMAs / 33.45e12 / 2, Launch: 2.57, Load: 0.58, Barrier: 1.8}
		},
	}
	later, number := map[string]int{}, func(most float64) int64 { return int64(math.Exp(r.Float64() * math.Log(most))) }
	for range 300 {
		p := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)], Batch: 1, M: number(5000), N: number(5000), K: number(5000), A: Operand{Trans: r.IntN(2) == 0}}
		for _, dev := range []kernels.Device{h200, l40s} {
			x := p.problem(dev)
			for _, o := range x.options() {
				before := o.scaled()
				for what, f := range slow {
					slowed := o
					f(&slowed.as.dev)
					after := slowed.scaled()
					if before > 0 && after < before*(1-1e-6) || (before > 0) != (after > 0) {
						t.Fatalf("%v, %d x %d x %d on %s, %v: got %v us with a slower %s, want at least %v", p, p.M, p.K, p.N, dev.Name, o, after, what, before)
					}
					if after > 1.05*before {
						later[what+" of "+dev.Name]++
					}
				}
			}
		}
	}
	for what := range slow {
		for _, dev := range []kernels.Device{h200, l40s} {
			if later[what+" of "+dev.Name] == 0 {
				t.Errorf("a slower %s of %s slows no option down by 5 %%, want some", what, dev.Name)
			}
		}
	}
}

// A matrix times a vector and its transpose have the same operands in memory: the kernels for vectors take the same time for both.
func TestTransposedVectors(t *testing.T) {
	r := testutil.Random(t)
	times := func(p Product) map[string]float64 {
		us := map[string]float64{}
		for _, o := range p.problem(h200).options() {
			if o.m == 0 && o.able.side == (span{to: 1}) {
				us[o.String()] = o.predicted()
			}
		}
		return us
	}
	cuts := 0
	for range 200 {
		size := func() int64 { return int64(math.Exp(r.Float64()*math.Log(1<<20))) + 2 }
		p := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)], Batch: 1, M: size(), K: size(), N: 1, A: Operand{Trans: r.IntN(2) == 0}}
		q := p
		q.M, q.N, q.A, q.B = 1, p.M, Operand{}, Operand{Trans: !p.A.Trans}
		got, want := times(q), times(p)
		for name, us := range want {
			if got[name] != us {
				t.Errorf("%v, %d x %d x 1 of %v: got %v us of %s for its transpose, want %v", p, p.M, p.K, p.Dtype, got[name], name, us)
			}
		}
		if cuts += len(want); len(got) != len(want) {
			t.Errorf("%v, %d x %d x 1 of %v: got %d cuts of kernels for vectors, want those of its transpose, %d", p, p.M, p.K, p.Dtype, len(got), len(want))
		}
	}
	if cuts == 0 {
		t.Error("got no cuts of kernels for vectors")
	}
}
