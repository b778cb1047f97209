package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The functions of this file check axes and shapes. Axes of the ops may be negative, as in numpy: -1 is the last one.

// axisOf returns an axis of a shape, counted from 0.
func axisOf(axis int, shape tensor.Shape) (int, error) {
	rank := len(shape)
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("got axis %d of shape %v, want %d <= axis < %d", axis, shape, -rank, rank)
	}
	return (axis + rank) % rank, nil
}

// inputAxis is axisOf of input 0 of an op.
func inputAxis(op string, x *gorgonia.Node, axis int) (int, error) {
	t, err := typeOf(x)
	if err == nil {
		axis, err = axisOf(axis, t.Shape)
	}
	if err != nil {
		return 0, fmt.Errorf("ops: %s: input 0: %w", op, err)
	}
	return axis, nil
}

// axesOf returns axes of a shape, counted from 0 and rising: all of them if none is given.
func axesOf(along []int, shape tensor.Shape) ([]int, error) {
	axes := make([]int, 0, len(shape))
	for _, axis := range along {
		a, err := axisOf(axis, shape)
		if err != nil {
			return nil, err
		}
		axes = append(axes, a)
	}
	if len(along) == 0 {
		for a := range shape {
			axes = append(axes, a)
		}
	}
	slices.Sort(axes)
	return axes, checkAxes(axes, shape)
}

// kept returns a shape with axes of one element instead of some axes.
func kept(shape tensor.Shape, axes []int) tensor.Shape {
	ones := slices.Clone(shape)
	for _, a := range axes {
		ones[a] = 1
	}
	return ones
}

// broadcastShape returns the shape that shapes broadcast to by numpy's rule.
func broadcastShape(shapes ...tensor.Shape) (tensor.Shape, error) {
	out := tensor.ScalarShape()
	for i, s := range shapes {
		for len(out) < len(s) {
			out = slices.Insert(out, 0, 1)
		}
		for a, d := range s {
			switch o := &out[len(out)-len(s)+a]; {
			case *o == 1:
				*o = d
			case d != 1 && d != *o:
				return nil, fmt.Errorf("input %d: got shape %v, want one that broadcasts with %v, as of the inputs before", i, s, out)
			}
		}
	}
	return out, nil
}

// broadcastView returns the view of a tensor of a shape, in row-major order, broadcast to another shape; ok is false if it does not
// broadcast to that.
func broadcastView(from, to tensor.Shape) (v codegen.View, ok bool) {
	if sameShape(from, to) {
		return codegen.Dense(to), true
	}
	v = codegen.View{Elements: kernels.Count(from), Strides: make([]int, len(to))}
	before := len(to) - len(from)
	if before < 0 {
		return v, false
	}
	stride := 1
	for a, d := range slices.Backward(from) {
		if d != 1 {
			if d != to[before+a] {
				return v, false
			}
			v.Strides[before+a] = stride
		}
		stride *= d
	}
	return v, true
}

// sumTo sums a term over the axes along which a shape broadcasts to the term's, and returns the sum in that shape.
func sumTo(b *Backward, t Term, shape tensor.Shape) Term {
	from := t.Type().Shape
	var axes []int
	for a, d := range from {
		if own := a - len(from) + len(shape); d != 1 && (own < 0 || shape[own] == 1) {
			axes = append(axes, a)
		}
	}
	if len(axes) > 0 {
		t = b.rows("Sum", "rowsum(a)", from, axes, ofRowsKept, t)
	}
	return b.reshape(t, shape)
}
