package suite

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Constants tests that all inputs of an op but one may be constants of gorgonia.NewConstant, which are in no graph.
func Constants(t *testing.T, machines ...Machine) {
	severalInputs := func(_ opspec.Spec, c opspec.Case) bool { return len(c.Shapes) > 1 }
	each(t, 1<<10, severalInputs, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		vs, build := c.Values(dt, opspec.Short.Draw(Random(t), c, dt)), c.Build
		for i := range vs {
			c.Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
				for k := range in {
					if k != i {
						in[k] = gorgonia.NewConstant(vs[k])
					}
				}
				return build(in...)
			}
			onMachines(t, machines, s, c, dt, vs)
		}
	})
}
