package kernels_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		"Archive": kernels.Archive, "Check": kernels.Check, "CheckGrid": kernels.CheckGrid, "Load": kernels.Load,
		"NewLibrary": kernels.NewLibrary, "Builtin": kernels.Builtin, "Source": kernels.Source, "Target": kernels.Target, "HostDevice": kernels.HostDevice,
		"Count": kernels.Count, "In": kernels.In, "At": kernels.At,
		// These return no error: CheckLaunch has checked the arguments of Go bodies.
		"CeilDiv": nil, "Parallel": nil, "Call": nil,
	}, -1, int64(-1), "sum", kernels.HostDevice(), &kernels.Plan{}, &kernels.Plan{Launches: []kernels.Launch{{}}}, &kernels.Plan{Launches: []kernels.Launch{{Kernel: &kernels.Kernel{}}}},
		&kernels.Checker{}, &kernels.Library{}, kernels.NewLibrary("x", nil), &kernels.Kernel{}, kernels.Launch{}, kernels.Code{}, kernels.Ref{}, kernels.Operand(0), kernels.Precision(0),
		kernels.TensorElement(0), kernels.TensorMap{}, kernels.TensorWindows{}, kernels.Host{}, kernels.Kind(0), kernels.Compiled{},
		kernels.CollectiveKind(9), kernels.Calibration{}, kernels.Facts{}, kernels.Collective{}, kernels.Collective{Kind: 9, Ranks: -1})
}
