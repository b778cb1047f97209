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

// The promise of docs/running.md: the same input produces the same bits, whatever a run is asked to
// show, with random numbers too.
func TestSameBits(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		train := func(opts ...Option) *State {
			m := newModesGraph(t, true)
			vm := machine(t, m.g, append(opts, on, Seed(7), Train(G.NewAdamSolver(G.WithLearnRate(0.1)), m.learnables...), ClipNorm(0.3))...)
			for step := range uint64(5) {
				testutil.Do(t, G.Let(m.x, draw(rand.New(rand.NewPCG(9, step)), tensor.Float64, 6, 4)))
				testutil.Do(t, vm.RunAll())
			}
			return testutil.Get[*State](t)(vm.State())
		}
		want := train()
		for name, opts := range map[string][]Option{
			"again":         nil,
			"every value":   {KeepAll()},
			"times":         {Timed()},
			"a trace":       {Trace(io.Discard)},
			"a log":         {Log(log.New(io.Discard, "", 0))},
			"a watch":       {WatchNaN(), WatchInf()},
			"fewer results": {ReadEvery(2)},
		} {
			sameState(t, name, train(opts...), want)
		}
	})
}
