package gemm

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{"Candidates": Candidates, "ConvCandidates": ConvCandidates}, -1, int64(-1), kernels.HostDevice(), Product{}, Product{Also: BF16}, Product{A: Operand{Form: BF16Split}}, Prepare{}, Form(9), Operand{}, TiledMatMul{}, ConvAxis{}, ConvResult(9), Conv{}, PrepareFilters{}, ConvSplit{}, ConvCandidate{})
}
