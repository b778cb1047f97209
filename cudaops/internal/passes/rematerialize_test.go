package passes_test

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
)

// gptStep returns the program of a step of AdamW of a GPT, on a device.
func gptStep(t *testing.T, layers, width, heads, vocabulary, batch, time int, target passes.Target) *program.Program {
	g, parameters := trained(t, layers, width, heads, vocabulary, batch, time)
	solver, _, err := internal.ReadSolver(G.NewAdamW())
	testutil.Do(t, err)
	l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: target.Mixed, Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: parameters}}}}))
	testutil.Do(t, passes.Run(l.Program, target, func(_ string, p *program.Program) error { return program.Verify(p) }))
	return l.Program
}

// A step of GPT-2 124M in float32, batch 8 x 1024, computes values of the forward pass again: it takes 9500 MiB at most.
func TestMemoryOfGPT2(t *testing.T) {
	const most = 9500
	if p := gptStep(t, 12, 768, 12, 50304, 8, 1024, passes.Target{Device: passes.H200, Replay: true}); p.Arena>>20 > most {
		t.Errorf("got %d MiB, want at most %d", p.Arena>>20, most)
	}
}

// With less memory a step has more instructions and a lower peak; with enough it computes each value once.
func TestRematerialize(t *testing.T) {
	for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.BF16} {
		step := func(memory int64) (peak int64, instrs int) {
			dev := passes.H200
			dev.Memory = memory
			p := gptStep(t, 4, 256, 4, 256, 16, 256, passes.Target{Device: dev, Mixed: by})
			return p.Peak, len(p.Instrs)
		}
		peak, instrs := step(141 << 30)
		if same, n := step(8 * peak); same != peak || n != instrs {
			t.Errorf("%v: got a peak of %d of %d instructions with memory for all, want %d of %d", by, same, n, peak, instrs)
		}
		if less, more := step(8 * peak * 3 / 4); less > peak*7/8 || more <= instrs {
			t.Errorf("%v: got a peak of %d of %d instructions with less memory, want at most %d of more than %d", by, less, more, peak*7/8, instrs)
		}
	}
}

// Gradients of attention in float32 w.r.t. parts of one value are written into it on 9.0, and copied side by side elsewhere: none are added to zeros.
func TestGradientsOfParts(t *testing.T) {
	const layers = 2
	for dev, want := range map[*kernels.Device]int{&passes.H200: 0, {Name: "A100", Major: 8, SMs: 108, SharedOptin: 163 << 10, L2: 40 << 20, Memory: 40 << 30, Cooperative: true}: layers} {
		concats := 0
		for _, in := range gptStep(t, layers, 64, 2, 64, 2, 32, passes.Target{Device: *dev}).Instrs {
			if program.Is[program.Concat](in.Op) {
				concats++
			}
			for _, v := range in.In {
				if v.IsBounded() {
					t.Errorf("%s: %v reads a value with bounds", dev.Name, in.Op)
				}
			}
		}
		if concats != want {
			t.Errorf("%s: got %d concatenations, want %d for %d layers", dev.Name, concats, want, layers)
		}
	}
}
