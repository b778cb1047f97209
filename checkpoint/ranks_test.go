package checkpoint

import (
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A file of 8 ranks among which the solver's state is divided has the bits of their state on 1, 2 and 8 ranks, and on 8 continues with the same bits.
func TestRanks(t *testing.T) {
	path, all := filepath.Join(t.TempDir(), "run.safetensors"), []cudaops.Option{cudaops.EMA(0.9), cudaops.StepEvery(3)}
	divided := func(n int) cudaops.Option { return cudaops.Options(cudaops.OnHosts(n), cudaops.ShardSolver()) }
	m := newModel(t, tensor.Float64, 1, 5)
	want := m.machine(t, divided(8), G.NewAdamSolver(), all...)
	m.steps(t, want, 0, 4) // the file is of the middle of a step
	testutil.Do(t, Save(path, want, nil))
	load := func(name string, on cudaops.Option) *cudaops.VM {
		again := newModel(t, tensor.Float64, 2, 5)
		got := again.machine(t, on, G.NewAdamSolver(), all...)
		checked(t)(Load(path, got, nil))
		same(t, "loaded on ranks: "+name, got, want)
		again.steps(t, got, 4, 10)
		return got
	}
	for name, on := range map[string]cudaops.Option{"1": cudaops.OnHost(), "2": cudaops.OnHosts(2), "2, divided": divided(2)} {
		load(name, on)
	}
	whole := load("8", cudaops.OnHosts(8))
	parts := load("8, divided", divided(8))
	m.steps(t, want, 4, 10)
	same(t, "continued", whole, want)
	same(t, "continued, divided", parts, want)
}
