package basic

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		"HistogramBody": HistogramBody, "Gather": Gather, "GatherBy": GatherBy, "Scatter": Scatter, "ScatterBy": ScatterBy, "Pick": Pick, "PickAdjoint": PickAdjoint,
		"TopK": TopK, "Categorical": Categorical, "CumSum": CumSum,
		// These return no error: ops have checked the shapes of plans.
		"AddBody": nil, "Add": nil, "Broadcast": nil, "Histogram": nil, "Iterate": nil, "IterateChain": nil, "IterateHeld": nil, "IterateRows": nil, "Scale": nil, "ScatterParts": nil,
	}, -1, int64(-1), kernels.HostDevice(), Bins{}, HistogramArgs{}, Draws{}, Rows{})
}
