package passes_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

// The gradient of the embedding of a tied table is added to that of the last layer, where it is: in the group of all gradients, in memory of its own without a solver.
func TestEmbeddingOnto(t *testing.T) {
	g, parameters := trained(t, 1, 64, 2, 72, 4, 128)
	adam, _, err := internal.ReadSolver(G.NewAdamSolver())
	testutil.Do(t, err)
	for name, w := range map[string]*lower.Wanted{
		"gradients": {},
		"a step":    {Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: adam, Learnables: parameters}}}},
	} {
		l := testutil.Get[*lower.Graph](t)(lower.New(g, w))
		testutil.Do(t, passes.Run(l.Program, passes.Target{Device: passes.H200}, nil))
		testutil.Do(t, program.Verify(l.Program))
		found := 0
		for _, in := range l.Program.Instrs {
			k, is := in.Op.(program.Kernel)
			if is && k.InPlace && strings.Contains(k.String(), "onto a tensor") {
				found++
				if base := in.In[0].Base; in.Out[0].Buffer.Offset != base.Buffer.Offset || !program.Launches(base.Def.Op) {
					t.Errorf("%s: %v writes %v, want the memory of %v", name, in, in.Out[0], base)
				}
			}
			if strings.HasSuffix(in.Op.String(), "EmbeddingGradient") {
				t.Errorf("%s: %v is a launch of its own", name, in)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d gradients are added onto others, want 1:\n%v", name, found, l.Program)
		}
	}
}
