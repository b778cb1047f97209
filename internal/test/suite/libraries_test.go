package suite

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/hostblas/hostblastest"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// TestLibraries: products by every BLAS library of the machine against the plain reference,
// as Plans has them.
func TestLibraries(t *testing.T) {
	libraries := hostblastest.Libraries(t)
	specs := opspec.All()
	s := specs[slices.IndexFunc(specs, func(s opspec.Spec) bool { return s.Name == "MatMul" })]
	for _, c := range Cases(t, s) {
		if c.Composed || c.Elements() > 1<<16 || testing.Short() && c.Elements() > 1<<12 {
			continue
		}
		for _, dt := range c.Types {
			t.Run(fmt.Sprintf("%s/%v", c.Name, dt), func(t *testing.T) { testLibraries(t, libraries, s, c, dt) })
		}
	}
}

// onHostBy is OnHost with the products by a BLAS.
func onHostBy(by kernels.BLAS) Runner {
	return func(p *kernels.Plan, inputs [][]byte, out []byte) error { return runOnHost(by, p, inputs, out) }
}

func testLibraries(t *testing.T, libraries []*hostblas.Library, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
	r := Random(t)
	kinds := []opspec.Numbers{opspec.Normal}
	if c.Elements() <= 1<<11 {
		kinds = append(kinds, opspec.Special...)
	}
	for _, k := range kinds {
		xs := k.Draw(r, c, dt)
		ref, magnitude := c.Reference(xs...)
		for _, dev := range append(Others, kernels.HostDevice()) {
			p, result, err := c.Plan(dt, dev)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range libraries {
				if err := CheckPlan(onHostBy(l), runsOn(k, false), p, dt, result.Dtype, xs, ref, magnitude, s.Tolerance, c.Atomic); err != nil {
					t.Errorf("%v, %s, planned for %s: %v", l, k.Name, dev.Name, err)
				}
			}
		}
	}
}
