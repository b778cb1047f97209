package cudaops

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec/exectest"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/tensor"
)

// Every op of Gorgonia's that the VM lowers, and its derivative, run on an H200 as if the
// instructions of the program ran consecutively.
func TestOrderOfLowered(t *testing.T) {
	quiet(t)
	seed, total := testutil.Seed(t), 0
	for _, c := range slices.Concat(loweredCases(), windowCases(seed)) {
		for dt, w := range map[tensor.Dtype]*lower.Wanted{tensor.Float64: nil, tensor.Float32: {All: true}} {
			p := testutil.Get[*lower.Graph](t)(lower.New(c.graph(t, dt, 1).g, w)).Program
			testutil.Do(t, passes.Run(p, passes.Target{Device: exectest.H200}, nil))
			nodes, err := exectest.Check(p, exectest.H200)
			if err != nil {
				t.Errorf("%s of %v: %v\n%v", c.name, dt, err, p)
			}
			total += nodes
		}
	}
	if total < 1000 {
		t.Errorf("got %d nodes of graphs, want more", total)
	}
}
