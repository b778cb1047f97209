package kernels

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	testutil.SurviveWhole(t, map[string]any{
		"Check": Check, "CheckGrid": CheckGrid, "CheckImage": CheckImage, "CodeFor": CodeFor, "GeneratedCode": GeneratedCode, "ImageName": ImageName,
		"NewLibrary": NewLibrary, "Builtin": Builtin, "Digests": Digests, "Target": Target, "HostDevice": HostDevice, "Count": Count, "Dense": Dense,
		"NewReduction": NewReduction, "ParseReduction": ParseReduction, "HistogramBody": HistogramBody,
		"AveragePool": AveragePool, "AveragePoolDiff": AveragePoolDiff, "MaxPool": MaxPool, "MaxPoolDiff": MaxPoolDiff, "Col2Im": Col2Im, "Im2Col": Im2Col,
		"Concat": Concat, "Gather": Gather, "Scatter": Scatter, "Map": Map, "Rows": Rows,
		// These return no error. Ops have checked the shapes of plans, and CheckLaunch the arguments of Go bodies.
		"Add": nil, "Broadcast": nil, "Dot": nil, "Histogram": nil, "Iterate": nil, "IterateChain": nil, "IterateHeld": nil, "IterateRows": nil,
		"MatMul": nil, "MatMulIn": nil, "MatMulWith": nil, "Reduce": nil, "Scale": nil, "Sum": nil, "WindowSum": nil, "Plan.AppendSum": nil,
		"ScatterParts": nil, "RowsWhole": nil, "CeilDiv": nil, "Parallel": nil, "Call": nil,
	}, -1, int64(-1), "sum", HostDevice(),
		&Plan{}, &Plan{Launches: []Launch{{}}}, &Plan{Launches: []Launch{{Kernel: &Kernel{}}}}, &Checker{}, &Library{}, NewLibrary("x", nil),
		&Kernel{}, Launch{}, Code{}, View{}, Ref{}, Bins{}, Epilogue{}, Operand(0), Precision(0), Product{}, Planes{}, PlanesProduct{}, Reduction{}, Rounded{},
		RoundedProduct{}, TensorElement(0), TensorMap{}, TiledMatMul{}, WindowAxis{}, WindowMode(0), Windows{}, Host{}, expr.Func{}, compiled{})
}
