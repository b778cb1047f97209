package passes

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Equal functions of equal views share a plan, and each instruction has the plan that it would have alone: the first softmax reads rows, the others columns.
func TestSharedPlans(t *testing.T) {
	g, node := G.NewGraph(), testutil.Get[*G.Node](t)
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(64, 64), G.WithName("x"))
	y := node(ops.SoftMax(x, -1))
	for i := range 2 {
		y = node(ops.SoftMax(node(ops.Permute(y, 1, 0)), -1))
		y = node(ops.MatMul(y, G.NewMatrix(g, tensor.Float32, G.WithShape(64, 64), G.WithName(fmt.Sprint("w", i)))))
	}
	p := testutil.Get[*lower.Graph](t)(lower.New(g, nil)).Program
	testutil.Do(t, Run(p, Target{Device: H200}, nil))
	instrs, plans := 0, map[*kernels.Plan]bool{}
	for _, in := range p.Instrs {
		if !program.Launches(in.Op) {
			continue
		}
		instrs++
		plans[in.Plan] = true
		if got, want := fmt.Sprintf("%+v", *in.Plan), fmt.Sprintf("%+v", *testutil.Get[*kernels.Plan](t)(in.PlanFor(H200))); got != want {
			t.Errorf("%v has the plan\n%s\nwant\n%s", in.Op, got, want)
		}
	}
	if len(plans) != 4 || instrs != 5 {
		t.Errorf("got %d plans of %d instructions, want 4 of 5\n%v", len(plans), instrs, p)
	}
}
