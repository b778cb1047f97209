package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
)

// concat lowers Gorgonia's Concat and that of package ops. Their gradients are slices, which are views.
func concat(c *call) *program.Value {
	axis, ok := internal.Concat(c.node.Op())
	if op, own := c.node.Op().(interface{ Concat() (int, bool) }); own {
		axis, ok = op.Concat()
	}
	if !ok || !c.numbers() || axis < 0 || axis >= len(c.Shape) {
		return nil
	}
	along := 0
	for _, v := range c.in {
		want := slices.Clone(c.Shape)
		if len(v.Shape) == len(want) {
			want[axis] = v.Shape[axis]
		}
		if !v.Numeric || v.Dtype != c.Dtype || !slices.Equal(v.Shape, want) {
			return nil
		}
		along += v.Shape[axis]
	}
	if along != c.Shape[axis] {
		return nil
	}
	if len(c.in) == 1 {
		return c.alias(c.in[0], c.Type, c.in[0].View)
	}
	return c.emit(program.Concat{Axis: axis}, c.Type, c.in...)
}
