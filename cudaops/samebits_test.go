package cudaops

import (
	"io"
	"log"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// As docs/running.md promises, the same input produces the same bits with any options that only show more of a run, including
// random numbers.
func TestSameBits(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		train := func(opts ...Option) *Snapshot {
			m := newModesGraph(t, true)
			vm := machine(t, m.g, append(opts, on, Seed(7), Train(G.NewAdamSolver(G.WithLearnRate(0.1)), m.learnables...), ClipNorm(0.3))...)
			for step := range uint64(5) {
				testutil.Do(t, G.Let(m.x, draw(rand.New(rand.NewPCG(9, step)), tensor.Float64, 6, 4)))
				testutil.Do(t, vm.RunAll())
			}
			return testutil.Get[*Snapshot](t)(vm.Snapshot())
		}
		want := train()
		for name, opts := range map[string][]Option{
			"again":         nil,
			"every value":   {KeepAll()},
			"times":         {Timed()},
			"a trace":       {Trace(io.Discard)},
			"a log":         {Log(log.New(io.Discard, "", 0))},
			"a watch":       {Watch(NaN | Inf)},
			"fewer results": {ReadEvery(2)},
		} {
			sameSnapshot(t, name, train(opts...), want)
		}
	})
}
