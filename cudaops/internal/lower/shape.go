package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

// The rules of this file lower ops that do not move elements to views.

// numbers reports whether the node's value and its first input have the same element type, one that kernels support.
func (c *call) numbers() bool {
	return len(c.in) > 0 && c.Numeric && c.in[0].Numeric && c.Dtype == c.in[0].Dtype
}

// size lowers the extent of an axis to a constant.
func size(c *call) *program.Value {
	axis, ok := internal.Size(c.node.Op())
	if !ok || !c.Numeric || len(c.Shape) > 0 || !c.numbers() {
		return nil
	}
	extent := 1
	if shape := c.in[0].Shape; axis < len(shape) {
		extent = shape[axis]
	} else if len(shape) > 0 {
		return nil // the op's Do returns an error
	}
	return c.emit(program.Constant{Value: values.Number(c.Dtype, float64(extent))}, c.Type)
}

// reshape lowers Gorgonia's Reshape.
func reshape(c *call) *program.Value {
	if !internal.IsReshape(c.node.Op()) || len(c.in) != 1 || !c.numbers() || c.Elements() != c.in[0].Elements() {
		return nil
	}
	return c.reshaped(c.in[0], c.Shape)
}

// reshaped returns a value in another shape: a view of it, or of a row-major copy if the strides allow no view.
func (c *call) reshaped(v *program.Value, shape tensor.Shape) *program.Value {
	strides, ok := reshapedStrides(v.Shape, v.View.Strides, shape)
	if !ok {
		v = c.dense(v)
		strides = program.Contiguous(shape).Strides
	}
	t := v.Type
	t.Shape = shape
	return c.alias(v, t, program.View{Offset: v.View.Offset, Strides: strides})
}

// reshapedStrides returns the strides of a view after a reshape; ok is false if the result is not a view.
func reshapedStrides(shape []int, strides []int64, to []int) (out []int64, ok bool) {
	out = make([]int64, len(to))
	for a, b := 0, 0; a < len(shape) || b < len(to); {
		n, m := sameExtent(shape[a:], to[b:])
		stride, ok := oneStride(shape[a:a+n], strides[a:a+n])
		if !ok {
			return nil, false
		}
		for i := b + m - 1; i >= b; i-- {
			out[i] = stride
			stride *= int64(to[i])
		}
		a, b = a+n, b+m
	}
	return out, true
}

// sameExtent returns the smallest n, m >= 1 such that the first n axes of a and the first m axes of b have equally many
// elements.
func sameExtent(a, b []int) (n, m int) {
	left, right := 1, 1
	for n+m == 0 || left != right {
		if m == len(b) || n < len(a) && left <= right {
			left *= a[n]
			n++
		} else {
			right *= b[m]
			m++
		}
	}
	return n, m
}

// oneStride returns the single stride between consecutive elements of a view; ok is false if the stride varies.
func oneStride(shape []int, strides []int64) (stride int64, ok bool) {
	n := 0 // elements of the inner axes so far, or 0 before the first axis of more than one element
	for a, d := range slices.Backward(shape) {
		switch {
		case d == 1:
		case n == 0:
			stride, n = strides[a], d
		case strides[a] != stride*int64(n):
			return 0, false
		default:
			n *= d
		}
	}
	return stride, true
}

// dense returns a copy of a value in row-major order.
func (c *call) dense(v *program.Value) *program.Value {
	return c.mapped(v.Type, func(b *expr.Builder) expr.Value { return b.Operand(0) }, v)
}

// transpose lowers a Transpose to a view whose axes have another order.
func transpose(c *call) *program.Value {
	pattern, ok := internal.Transpose(c.node.Op())
	if !ok || !c.numbers() {
		return nil
	}
	from := c.in[0]
	if len(pattern) != len(from.Shape) || len(c.Shape) != len(pattern) {
		return nil
	}
	view := program.View{Offset: from.View.Offset, Strides: make([]int64, len(pattern))}
	for i, p := range pattern {
		if p < 0 || p >= len(pattern) || c.Shape[i] != from.Shape[p] {
			return nil
		}
		view.Strides[i] = from.View.Strides[p]
	}
	return c.alias(from, c.Type, view)
}

// slice lowers a Slice along one axis, which is removed from the shape if a single index remains.
func slice(c *call) *program.Value {
	s, increment, ok := internal.Slice(c.node.Op())
	if !ok || increment || !c.numbers() {
		return nil
	}
	from := c.in[0]
	t, view := from.Type, program.View{Offset: from.View.Offset, Strides: slices.Clone(from.View.Strides)}
	t.Shape = slices.Clone(t.Shape)
	if !s.All {
		if s.Axis >= len(t.Shape) || s.End > t.Shape[s.Axis] {
			return nil
		}
		view.Offset += int64(s.Start) * view.Strides[s.Axis]
		view.Strides[s.Axis] *= int64(s.Step)
		if t.Shape[s.Axis] = max((s.End-s.Start)/s.Step, 1); t.Shape[s.Axis] == 1 {
			t.Shape, view.Strides = program.Without(t.Shape, []int{s.Axis}), program.Without(view.Strides, []int{s.Axis})
		}
	}
	if !slices.Equal(t.Shape, c.Shape) {
		return nil // Gorgonia infers another shape
	}
	return c.alias(from, t, view)
}

// sliceDiff lowers the gradient of a Slice: the second input, padded with zeros to the shape of the first.
func sliceDiff(c *call) *program.Value {
	s, increment, ok := internal.Slice(c.node.Op())
	if !ok || !increment || !c.floats(2) || s.Axis >= len(c.Shape) {
		return nil
	}
	t := c.Type
	t.Shape = slices.Clone(c.Shape)
	if s.All {
		s.Step, s.End = 1, t.Shape[s.Axis]
	}
	if s.End > t.Shape[s.Axis] {
		return nil
	}
	n := max((s.End-s.Start)/s.Step, 1)
	t.Shape[s.Axis] = n
	if !slices.Equal(program.Squeezed(t.Shape), program.Squeezed(c.in[1].Shape)) {
		return nil
	}
	part := c.in[1]
	if !slices.Equal(part.Shape, t.Shape) {
		part = c.reshaped(part, t.Shape)
	}
	if s.Step > 1 && n > 1 { // zeros between the elements
		wide := t
		wide.Shape = slices.Insert(slices.Clone(t.Shape), s.Axis+1, s.Step)
		view := program.View{Offset: part.View.Offset, Strides: slices.Insert(slices.Clone(part.View.Strides), s.Axis+1, 0)}
		t.Shape[s.Axis] = n * s.Step
		part = c.reshaped(c.padded(part, wide, view, codegen.Bounds{Axis: s.Axis + 1, To: 1}), t.Shape)
	}
	return c.padded(part, c.Type, part.View, codegen.Bounds{Axis: s.Axis, From: s.Start, To: s.Start + t.Shape[s.Axis]})
}

// padded returns a zero-padded view of a value, as the bounds describe.
func (c *call) padded(v *program.Value, t program.Type, view program.View, b codegen.Bounds) *program.Value {
	if b.From == 0 && b.To == t.Shape[b.Axis] {
		return c.alias(v, t, view)
	}
	view.Bounds = b
	return c.dense(c.alias(v, t, view))
}

// at lowers At, which returns one element.
func at(c *call) *program.Value {
	index, ok := internal.At(c.node.Op())
	if !ok || !c.numbers() || len(c.Shape) > 0 || len(index) != len(c.in[0].Shape) {
		return nil
	}
	view := program.View{Offset: c.in[0].View.Offset}
	for a, i := range index {
		if i < 0 || i >= c.in[0].Shape[a] {
			return nil
		}
		view.Offset += int64(i) * c.in[0].View.Strides[a]
	}
	return c.alias(c.in[0], c.Type, view)
}

// repeat lowers the repetition of elements along an axis, which implements all of Gorgonia's broadcasts. It emits a view for
// an axis of one element, otherwise a copy.
func repeat(c *call) *program.Value {
	axis, ok := internal.Repeat(c.node.Op())
	if !ok || !c.numbers() {
		return nil
	}
	from := c.in[0]
	t, view := from.Type, program.View{Offset: from.View.Offset, Strides: slices.Clone(from.View.Strides)}
	t.Shape = slices.Clone(t.Shape)
	for len(t.Shape) <= axis { // a vector repeated along its second axis, a scalar along its first
		t.Shape, view.Strides = append(t.Shape, 1), append(view.Strides, 0)
	}
	if len(c.Shape) != len(t.Shape) || t.Shape[axis] == 0 || c.Shape[axis]%t.Shape[axis] != 0 {
		return nil
	}
	times := c.Shape[axis] / t.Shape[axis]
	if want := slices.Clone(t.Shape); !slices.Equal(slices.Replace(want, axis, axis+1, c.Shape[axis]), c.Shape) {
		return nil
	}
	if t.Shape[axis] == 1 {
		t.Shape[axis], view.Strides[axis] = times, 0
		return c.alias(from, t, view)
	}
	t.Shape = slices.Insert(t.Shape, axis+1, times)
	view.Strides = slices.Insert(view.Strides, axis+1, 0)
	return c.reshaped(c.alias(from, t, view), c.Shape)
}

// fitting returns the view of a value in a shape: a broadcast of one element, or the elements in order if the shapes
// differ only in axes of one element. ok is false if the shapes do not fit. The element type is the value's.
func fitting(v *program.Value, shape tensor.Shape) (view program.View, ok bool) {
	view = program.View{Offset: v.View.Offset}
	if v.Elements() == 1 {
		view.Strides = make([]int64, len(shape))
		return view, true
	}
	if !slices.Equal(program.Squeezed(v.Shape), program.Squeezed(shape)) {
		return view, false
	}
	view.Strides, ok = reshapedStrides(v.Shape, v.View.Strides, shape)
	return view, ok
}
