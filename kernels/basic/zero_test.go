package basic_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		"HistogramBody": basic.HistogramBody, "Gather": basic.Gather, "GatherBy": basic.GatherBy, "Scatter": basic.Scatter, "ScatterBy": basic.ScatterBy, "Pick": basic.Pick, "PickAdjoint": basic.PickAdjoint,
		"TopK": basic.TopK, "Categorical": basic.Categorical, "CumSum": basic.CumSum,
		// These return no error: ops have checked the shapes of plans.
		"AddBody": nil, "Add": nil, "Broadcast": nil, "Histogram": nil, "AppendClearedCounts": nil, "HistogramKernels": nil, "Iterate": nil, "IterateChain": nil, "IterateHeld": nil, "IterateRows": nil, "Scale": nil, "ScatterOnto": nil, "ScatterParts": nil,
	}, -1, int64(-1), kernels.HostDevice(), basic.Bins{}, basic.HistogramArgs{}, basic.Draws{}, basic.Rows{}, basic.Largest{})
}
