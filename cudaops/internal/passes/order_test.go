package passes

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec/exectest"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"pgregory.net/rapid"
)

// Drawn graphs run on an H200 as if their instructions ran consecutively, and so do
// steps of a solver.
func TestOrderOfDrawnGraphs(t *testing.T) {
	ordered := func(t *rapid.T, g *lower.Graph) {
		if err := Run(g.Program, Target{Device: exectest.H200, Replay: rapid.Bool().Draw(t, "replay")}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := exectest.Check(g.Program, exectest.H200); err != nil {
			t.Fatalf("%v\n%v", err, g.Program)
		}
	}
	t.Run("graphs", func(t *testing.T) {
		testutil.CheckProperty(t, func(t *rapid.T) {
			b := drawGraph(t)
			g, err := lower.New(b.g, &lower.Wanted{Keep: b.keep, All: rapid.Bool().Draw(t, "all"), Watch: rapid.Bool().Draw(t, "watch")})
			if err != nil {
				t.Fatal(err)
			}
			ordered(t, g)
		})
	})
	t.Run("training", func(t *testing.T) {
		testutil.CheckProperty(t, func(t *rapid.T) { ordered(t, drawTraining(t, 1).graph) })
	})
}
