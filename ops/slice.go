package ops

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Slice returns a range of x along each axis, as numpy's x[0:3, :, 2:10:2] does:
//
//	ops.Slice(x, gorgonia.S(0, 3), nil, gorgonia.S(2, 10, 2))
//
// A nil range, or one that is left out at the end, is the whole axis. No axis is removed: gorgonia.S(3) is the one element 3. It is an error
// if a range is empty, has a negative start or step, or reaches beyond its axis, or if there are more ranges than axes. Stheno's machine reads x through a view and
// copies nothing. Gorgonia's own Slice takes ranges that differ by a multiple of 256 for one.
func Slice(x *gorgonia.Node, ranges ...tensor.Slice) (*gorgonia.Node, error) {
	t, _, err := anyInputAlong(x, nil)
	if err != nil {
		return nil, fmt.Errorf("ops: Slice: %w", err)
	}
	if len(ranges) > len(t.Shape) {
		return nil, fmt.Errorf("ops: Slice: got %d ranges for shape %v, want one for each axis at most", len(ranges), t.Shape)
	}
	for axis, r := range ranges {
		if r == nil {
			continue
		}
		from, to, step, extent := r.Start(), r.End(), max(r.Step(), 1), t.Shape[axis]
		if from < 0 || to > extent || from >= to || r.Step() < 0 {
			return nil, fmt.Errorf("ops: Slice: got the range %d:%d:%d of axis %d of shape %v, want 0 <= start < end <= %d and a step of 1 or more", from, to, r.Step(), axis, t.Shape, extent)
		}
		if x, err = cut(x, section{axis, from, (to-from-1)/step + 1, min(step, to-from)}); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Split cuts x along an axis into parts of the given sizes, which add up to the extent of the axis: the inverse of [Concat]. A negative
// axis counts from the end. The parts are slices as of [Slice].
func Split(x *gorgonia.Node, axis int, sizes ...int) ([]*gorgonia.Node, error) {
	t, axes, err := anyInputAlong(x, []int{axis})
	if err != nil {
		return nil, fmt.Errorf("ops: Split: %w", err)
	}
	extent, sum := t.Shape[axes[0]], 0
	for _, size := range sizes {
		sum += size
	}
	if sum != extent || len(sizes) == 0 || slices.Min(sizes) < 1 {
		return nil, fmt.Errorf("ops: Split: got sizes %v of axis %d of shape %v, want sizes of 1 or more that add up to %d", sizes, axis, t.Shape, extent)
	}
	parts, from := make([]*gorgonia.Node, len(sizes)), 0
	for i, size := range sizes {
		if parts[i], err = cut(x, section{axes[0], from, size, 1}); err != nil {
			return nil, err
		}
		from += size
	}
	return parts, nil
}

// cut returns a section of x, which is x if that is the whole axis.
func cut(x *gorgonia.Node, s section) (*gorgonia.Node, error) {
	if s.count == x.Shape()[s.axis] {
		return x, nil
	}
	return Apply(viewing{s}, x)
}
