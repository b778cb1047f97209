package gemm

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		// These return no error: ops have checked the shapes of plans.
		"MatMul": nil, "MatMulIn": nil, "MatMulWith": nil,
	}, -1, int64(-1), kernels.HostDevice(), Epilogue{}, Product{}, Planes{}, PlanesProduct{}, Rounded{}, RoundedProduct{}, TiledMatMul{})
}
