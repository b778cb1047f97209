package codegen

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Generated kernels wait by themselves on devices that can start them early, as PTX and assembled beforehand.
func TestGeneratedWait(t *testing.T) {
	dev, shape := kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 232448, Cooperative: true}, []int{1000}
	for name, text := range map[string]string{"map": "tanh(a)", "prebuilt map": "-a"} {
		f := testutil.Get[expr.Func](t)(expr.Parse(text, kernels.Float32, "a"))
		p := testutil.Get[*kernels.Plan](t)(Map(dev, f, shape, Dense(shape)))
		for _, major := range []int{7, 8, 9, 10, 12} {
			code := testutil.Get[kernels.Code](t)(p.Launches[0].Kernel.Image.Code(major, 0))
			if got, want := code.WaitsForDependencies(mapEntry), major >= 9; got != want {
				t.Errorf("%s for %d.0, of %s: WaitsForDependencies is %v, want %v", name, major, code.Target, got, want)
			}
		}
	}
}
