package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

// The rules of this file lower ops that move no element to views.

// numbers reports whether the node's value and its first input are tensors of one
// type that kernels know.
func (c *call) numbers() bool {
	return len(c.in) > 0 && c.Numeric && c.in[0].Numeric && c.Dtype == c.in[0].Dtype
}

// size lowers the extent of an axis, which the shape of the input tells, to a
// constant.
func size(c *call) *program.Value {
	axis, ok := internal.Size(c.node.Op())
	if !ok || !c.Numeric || len(c.Shape) > 0 || !c.numbers() {
		return nil
	}
	extent := 1
	if shape := c.in[0].Shape; axis < len(shape) {
		extent = shape[axis]
	} else if len(shape) > 0 {
		return nil // an error of the op, when it runs
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

// reshaped returns a value in another shape of as many elements: a view of it, or of
// a copy where its elements do not lie so.
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

// reshapedStrides returns the strides of a view of that shape and those strides in
// another shape of as many elements; ok is false if there are none.
func reshapedStrides(shape []int, strides []int64, to []int) (out []int64, ok bool) {
	out = make([]int64, len(to))
	from, k := 0, 0
	for from < len(shape) || k < len(to) {
		// The next axes of either shape that have as many elements together.
		n, m, first, firstTo := 1, 1, from, k
		for n != m || from == first && k == firstTo {
			if n <= m && from < len(shape) {
				n *= shape[from]
				from++
			} else if k < len(to) {
				m *= to[k]
				k++
			} else {
				return nil, false
			}
		}
		stride, in := int64(0), false // of the last axis, and whether there is one
		for a := from - 1; a >= first; a-- {
			if shape[a] == 1 {
				continue
			}
			if !in {
				stride, in = strides[a], true
				n = shape[a]
			} else if strides[a] != stride*int64(n) {
				return nil, false
			} else {
				n *= shape[a]
			}
		}
		for a := k - 1; a >= firstTo; a-- {
			out[a] = stride
			stride *= int64(to[a])
		}
	}
	return out, true
}

// dense returns a copy of a value in row-major order.
func (c *call) dense(v *program.Value) *program.Value {
	return c.mapped(v.Type, func(b *expr.Builder) expr.Value { return b.Operand(0) }, v)
}

// isContiguous reports whether a view's elements lie in row-major order, one after
// the other.
func isContiguous(shape tensor.Shape, strides []int64) bool {
	v := program.Value{Type: program.Type{Shape: shape}, View: program.View{Strides: strides}}
	return v.IsContiguous()
}

// squeezed returns a shape without its axes of one element.
func squeezed(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
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

// slice lowers a Slice along one axis, which goes from the shape if one index is
// left of it.
func slice(c *call) *program.Value {
	s, increment, ok := internal.Slice(c.node.Op())
	if !ok || increment || !c.numbers() {
		return nil
	}
	from := c.in[0]
	view := program.View{Offset: from.View.Offset, Strides: slices.Clone(from.View.Strides)}
	shape := slices.Clone([]int(from.Shape))
	if !s.All {
		if s.Axis >= len(shape) || s.End > shape[s.Axis] || s.Step != 1 {
			return nil
		}
		view.Offset += int64(s.Start) * view.Strides[s.Axis]
		if shape[s.Axis] = s.End - s.Start; shape[s.Axis] == 1 && len(c.Shape) < len(shape) {
			shape = slices.Delete(shape, s.Axis, s.Axis+1)
			view.Strides = slices.Delete(view.Strides, s.Axis, s.Axis+1)
		}
	}
	if !slices.Equal(shape, c.Shape) {
		return nil // a shape that Gorgonia infers otherwise
	}
	return c.alias(from, c.Type, view)
}

// repeat lowers the repetition of an axis of one element, which all broadcasts of
// Gorgonia's come down to.
func repeat(c *call) *program.Value {
	axis, ok := internal.Repeat(c.node.Op())
	if !ok || !c.numbers() {
		return nil
	}
	from := c.in[0]
	view := program.View{Offset: from.View.Offset, Strides: slices.Clone(from.View.Strides)}
	shape := slices.Clone([]int(from.Shape))
	for len(shape) <= axis { // a vector repeated along its second axis, a scalar along its first
		shape, view.Strides = append(shape, 1), append(view.Strides, 0)
	}
	if len(c.Shape) != len(shape) || shape[axis] != 1 {
		return nil
	}
	shape[axis], view.Strides[axis] = c.Shape[axis], 0
	if !slices.Equal(shape, c.Shape) {
		return nil
	}
	return c.alias(from, c.Type, view)
}
