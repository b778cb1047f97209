package ops

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Reshape returns the elements of x, in row-major order, in another shape. One extent may be -1: it follows from the number of elements.
// It is an error if the shape has another number of elements.
func Reshape(x *gorgonia.Node, shape ...int) (*gorgonia.Node, error) {
	t, _, err := anyInputAlong(x, nil)
	if err != nil {
		return nil, fmt.Errorf("ops: Reshape%v: %w", shape, err)
	}
	to := slices.Clone(tensor.Shape(shape))
	if free := slices.Index(to, -1); free >= 0 {
		to[free] = 1
		all, n := t.Shape.TotalSize(), to.TotalSize()
		if n <= 0 || all%n != 0 || slices.Min(to) < 1 {
			return nil, fmt.Errorf("ops: Reshape%v: got shape %v of %d elements, want extents of 1 or more whose product divides it, and at most one -1", shape, t.Shape, all)
		}
		to[free] = all / n
	}
	if err := (Type{t.Dtype, to}).check(); err != nil {
		return nil, fmt.Errorf("ops: Reshape%v: %w", shape, err)
	}
	return Apply(viewing{reshape{to}}, x)
}

// Permute returns x with its axes in another order: axis i of the result is axis axes[i] of x. A negative axis counts from the end. It is an
// error unless each axis of x is given once.
func Permute(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error) {
	t, sorted, err := anyInputAlong(x, axes)
	if err == nil && (len(axes) != len(t.Shape) || len(sorted) != len(t.Shape)) {
		err = fmt.Errorf("got %d axes for shape %v, want each axis once", len(axes), t.Shape)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: Permute%v: %w", axes, err)
	}
	order := make([]int, len(axes))
	for i, a := range axes {
		order[i], _ = axisOf(a, t.Shape)
	}
	return Apply(viewing{permute{order}}, x)
}
