package maintain

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// A wrong output of a drawn case is an error.
func TestDrawnCaseIsChecked(t *testing.T) {
	drawn := testutil.Get[[]opspec.Drawn](t)(opspec.Draw(9, 3, opspec.Limits{Least: 1e3, Most: 1e5, Flops: 1e6}, opspec.All()[:1]))
	first := slices.IndexFunc(drawn, func(d opspec.Drawn) bool { return d.Op == "Add" && d.Dtype == "f32" })
	op := Random(drawn)[first].(Op)
	plan, _, err := op.Case.Plan(op.Dtype, kernels.HostDevice())
	testutil.Do(t, err)
	inputs, out := op.inputs(plan, NewBlock(1, 100_003)), make([]byte, plan.Out)
	testutil.Do(t, plan.Run(inputs, out, nil))
	r := records.Record{Values: map[string]float64{}}
	if err := op.checkInto(&r, plan, inputs, out); err != nil || r.Note != "all" {
		t.Errorf("got %+v, %v, want a checked result", r, err)
	}
	op.Spec.Tolerance = 0 // nothing is allowed, and float32 rounds
	if err := op.checkInto(&r, plan, inputs, out); err == nil || !strings.Contains(err.Error(), "wrong result") {
		t.Errorf("got %v where no rounding is allowed, want an error", err)
	}
}
