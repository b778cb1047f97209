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
	if view, ok := joined(axis, c.in); ok {
		return c.alias(c.in[0], c.Type, view)
	}
	return c.emit(program.Concat{Axis: axis}, c.Type, c.in...)
}

// joined returns a view of the elements of all values, concatenated along an axis. ok is false unless each value after the first is a view of the same memory that continues
// the one before it.
func joined(axis int, list []*program.Value) (view program.View, ok bool) {
	first := list[0]
	view = first.View
	if len(list) == 1 {
		return view, true
	}
	view.Strides = slices.Clone(view.Strides)
	offset := first.View.Offset
	if first.Shape[axis] == 1 {
		view.Strides[axis] = list[1].View.Offset - offset
	}
	if view.Strides[axis] < 1 {
		return view, false
	}
	for _, v := range list {
		if v.IsBounded() || v.IsRandom() || v.Base != first.Base || v.View.Offset != offset {
			return view, false
		}
		for a, n := range v.Shape {
			if n > 1 && v.View.Strides[a] != view.Strides[a] {
				return view, false
			}
		}
		offset += view.Strides[axis] * int64(v.Shape[axis])
	}
	return view, true
}
