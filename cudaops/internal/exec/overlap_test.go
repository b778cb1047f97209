package exec

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Collectives of gradients run beside the backward pass: no launch waits for the last collective before it in the program, unless it reads what
// the ranks have reduced.
func TestCollectivesOverlap(t *testing.T) {
	solver, _, err := internal.ReadSolver(G.NewAdamSolver())
	testutil.Do(t, err)
	spec := graphspec.MLP(4096, 784, 4096, 2048, 2048, 10)
	for _, sharded := range []bool{false, true} {
		for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.TF32} {
			g := G.NewGraph()
			var in G.Nodes
			for _, i := range spec.Inputs {
				in = append(in, G.NewTensor(g, tensor.Float32, len(i.Shape), G.WithShape(i.Shape...), G.WithName(i.Name)))
			}
			spec.Build(in)
			graph := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Ranks: 2, Precision: by,
				Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: in[2:]}}, Sharded: sharded}}))
			p := graph.Program
			testutil.Do(t, passes.Run(p, passes.Target{Device: kernels.Device{Name: "H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Memory: 141 << 30, Cooperative: true}}, nil))
			reduced := map[*program.Value]bool{} // what is computed of results of collectives
			var o order
			waits, last, collectives := make([]map[int]bool, len(p.Instrs)), -1, 0
			for i, in := range p.Instrs {
				waits[i] = map[int]bool{}
				collective, after := program.Is[program.Collective](in.Op), false
				for _, v := range in.In {
					after = after || reduced[v.Base]
				}
				for _, v := range in.Out {
					reduced[v] = after || collective
				}
				if program.Is[program.Alias](in.Op) || program.Is[program.ConcatInPlace](in.Op) || program.Is[program.Input](in.Op) {
					continue
				}
				for _, j := range o.add(i, in) {
					waits[i][j] = true
					for k := range waits[j] {
						waits[i][k] = true
					}
				}
				if collective {
					last = i
					collectives++
				} else if !after && waits[i][last] {
					t.Errorf("state divided %v, %v: instruction %d, %v, waits for %d, %v", sharded, by, i, in.Op, last, p.Instrs[last].Op)
				}
			}
			if collectives < 4 {
				t.Errorf("state divided %v: got %d collectives, want those of several groups", sharded, collectives)
			}
		}
	}
}
