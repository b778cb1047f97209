package codegen

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		"Dense": Dense, "NewReduction": NewReduction, "ParseReduction": ParseReduction, "MathFunctions": MathFunctions, "Concat": Concat, "Map": Map, "Rows": Rows, "MapSplit": MapSplit, "RowsSplits": RowsSplits,
		"Digests": Digests, "DigestsOf": DigestsOf, "RowsWhole": nil, "RowsSplit": nil, "SplitBytes": nil, "Ranges": nil, "StoresChannelsLast": nil, "Reduction.Fold": nil, "Reduction.Join": nil, // return no error
	}, -1, int64(-1), kernels.HostDevice(), View{}, Reduction{}, Split(0), expr.Func{})
}
