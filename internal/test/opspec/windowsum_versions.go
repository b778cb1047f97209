package opspec

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func windowVersionCases() (cases []Case) {
	for v := 1; v <= len(versions.Docs("WindowSum")); v++ {
		add := func(c Case, radius int, same bool) {
			cases = append(cases, versioned(v, c, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
				return versions.Version(v).WindowSum(in[0], radius, windowOption(same))
			}))
		}
		for _, t := range []struct {
			radius int
			same   bool
			shape  tensor.Shape
		}{
			{0, false, tensor.Shape{1}}, {2, false, tensor.Shape{5}}, {2, false, tensor.Shape{3, 1031}}, {2, true, tensor.Shape{7, 33}},
			{2, true, tensor.Shape{512}}, {100, false, tensor.Shape{2, 4099}}, {600, true, tensor.Shape{3, 700}}, {50, true, tensor.Shape{4, 13}},
		} {
			add(windowCase(fmt.Sprintf("radius %d %v same %v", t.radius, t.shape, t.same), t.radius, t.same, t.shape...), t.radius, t.same)
		}
		for _, radius := range []int{2, 32} {
			add(timed(fmt.Sprintf("2^28 r=%d", radius), windowCase("", radius, true, 1<<28)), radius, true)
		}
	}
	return cases
}
