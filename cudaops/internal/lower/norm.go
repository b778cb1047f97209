package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The rules of this file lower BatchNorm, GroupNorm and their gradients to Maps. Scale and bias are separate ops of
// the graph.

// norm is a normalization of a value.
type norm struct {
	batch *gorgonia.BatchNormOp // nil of a GroupNorm
	group groupOf
	x     *program.Value
}

type groupOf struct {
	groups  int
	epsilon float64
}

// moments holds the means and standard deviations of rows, where a row is the elements along some axes.
type moments struct {
	axes          []int
	mean, inverse *program.Value // the mean and the inverse deviation, broadcast to every element
	invert        func(b *expr.Builder, v expr.Value) expr.Value
	// If the moments are computed from the input, one for each row:
	elements       float64        // elements of a row
	ofRow          *program.Value // the inverse deviation
	mean64, square *program.Value // the mean and the variance, in float64
}

// spread broadcasts a value with one element per row to every element of the row.
func (c *call) spread(v *program.Value, shape tensor.Shape, axes []int) *program.Value {
	view, own := program.View{Offset: v.View.Offset, Strides: make([]int64, len(shape))}, v.View.Strides
	for a := range shape {
		if !slices.Contains(axes, a) {
			view.Strides[a], own = own[0], own[1:]
		}
	}
	t := v.Type
	t.Shape = shape
	return c.alias(v, t, view)
}

// first returns the first element of each row, broadcast to every element.
func (c *call) first(x *program.Value, axes []int) *program.Value {
	view := program.View{Offset: x.View.Offset, Strides: slices.Clone(x.View.Strides)}
	for _, a := range axes {
		view.Strides[a] = 0
	}
	return c.alias(x, x.Type, view)
}

// moments emits mean and variance of the rows of x, in one pass and in double precision.
//
// For float32 elements, the mean of squares minus the square of the mean is more precise in double precision than the
// elements are. For float64, the first element of the row is subtracted first, so that the cancellation is limited by
// the distance of that element from the mean.
func (c *call) moments(x *program.Value, axes []int, epsilon float64) *moments {
	rows := program.Type{Numeric: true, Dtype: kernels.Float64, Shape: program.Without(x.Shape, axes)}
	m := &moments{axes: axes, elements: float64(x.Elements()) / float64(max(rows.Elements(), 1))}
	in := []*program.Value{x}
	if c.Dtype == kernels.Float64 {
		in = append(in, c.first(x, axes))
	}
	sum := func(square bool) *program.Value {
		return c.reduced(rows, axes, func(b *expr.Builder) expr.Value {
			v := b.Convert(b.Operand(0), kernels.Float64)
			if len(in) > 1 {
				v = b.Apply(expr.Sub, v, b.Operand(1))
			}
			if square {
				v = b.Apply(expr.Mul, v, v)
			}
			return b.Apply(expr.RowSum, v)
		}, in...)
	}
	sums, squares := sum(false), sum(true)
	n := func(b *expr.Builder) expr.Value { return b.Constant(kernels.Float64, m.elements) }
	m.square = c.mapped(rows, func(b *expr.Builder) expr.Value {
		mean := b.Apply(expr.Div, b.Operand(0), n(b))
		v := b.Apply(expr.Sub, b.Apply(expr.Div, b.Operand(1), n(b)), b.Apply(expr.Mul, mean, mean))
		return b.Apply(expr.Max, v, b.Constant(kernels.Float64, 0))
	}, sums, squares)
	if len(in) > 1 { // not from the sum and the first element: that may be infinite
		sums = c.reduced(rows, axes, func(b *expr.Builder) expr.Value { return b.Apply(expr.RowSum, b.Operand(0)) }, x)
	}
	m.mean64 = c.mapped(rows, func(b *expr.Builder) expr.Value { return b.Apply(expr.Div, b.Operand(0), n(b)) }, sums)
	rows.Dtype = c.Dtype
	mean := c.mapped(rows, func(b *expr.Builder) expr.Value { return b.Convert(b.Operand(0), c.Dtype) }, m.mean64)
	m.ofRow = c.mapped(rows, func(b *expr.Builder) expr.Value {
		return b.Convert(b.Apply(expr.InverseSqrt, b.Apply(expr.Add, b.Operand(0), b.Constant(kernels.Float64, epsilon))), c.Dtype)
	}, m.square)
	m.mean, m.inverse = c.spread(mean, x.Shape, axes), c.spread(m.ofRow, x.Shape, axes)
	m.invert = func(_ *expr.Builder, v expr.Value) expr.Value { return v }
	return m
}

// normalized emits (x - mean) / deviation.
func (c *call) normalized(x *program.Value, m *moments) *program.Value {
	in := []*program.Value{x, m.mean, m.inverse}
	f := c.checked(written(func(b *expr.Builder) expr.Value {
		return b.Apply(expr.Mul, b.Apply(expr.Sub, b.Operand(0), b.Operand(1)), m.invert(b, b.Operand(2)))
	}, in...))
	return c.emit(program.Map{Func: f, Shape: x.Shape, FuseWithConsumers: true}, x.Type, in...)
}

// repeated emits the instructions of f again for every node that uses the result: subtracting the mean again costs less than
// storing the difference.
func (c *call) repeated(f func(c *call) *program.Value) *program.Value {
	v := f(c)
	c.again[v] = f
	return v
}

// factors are the factors of an element-wise product.
type factors []*program.Value

// product returns the product of the operands from index on.
func (f factors) product(b *expr.Builder, first int) expr.Value {
	v := b.Operand(first)
	for i := 1; i < len(f); i++ {
		v = b.Apply(expr.Mul, v, b.Operand(first+i))
	}
	return v
}

// factors returns the two factors of an element-wise product, so that a scale needs no pass over memory, or the value itself if
// it is no product. Each is viewed through view.
func (c *call) factors(v *program.Value, view func(v *program.Value) *program.Value) factors {
	if m, mapped := v.Def.Op.(program.Map); mapped && v.Base == v {
		f, err := written(func(b *expr.Builder) expr.Value { return b.Apply(expr.Mul, b.Operand(0), b.Operand(1)) }, v, v)
		if in := v.Def.In; err == nil && m.Func == f && !slices.ContainsFunc(in, func(v *program.Value) bool { return v.IsBounded() || v.IsRandom() }) {
			return factors{view(in[0]), view(in[1])}
		}
	}
	return factors{view(v)}
}

// normalizedDiff emits the gradient w.r.t. the input of normalized, given the gradient w.r.t. its result.
func (c *call) normalizedDiff(x *program.Value, dy factors, m *moments) *program.Value {
	if m.ofRow == nil {
		return c.mapped(x.Type, func(b *expr.Builder) expr.Value {
			return b.Apply(expr.Mul, dy.product(b, 1), m.invert(b, b.Operand(0)))
		}, slices.Concat(factors{m.inverse}, dy)...)
	}
	t := m.ofRow.Type
	level := c.reduced(t, m.axes, func(b *expr.Builder) expr.Value { return b.Apply(expr.RowSum, dy.product(b, 0)) }, dy...)
	along := c.reduced(t, m.axes, func(b *expr.Builder) expr.Value {
		return b.Apply(expr.RowSum, b.Apply(expr.Mul, dy.product(b, 2), b.Apply(expr.Sub, b.Operand(0), b.Operand(1))))
	}, slices.Concat(factors{x, m.mean}, dy)...)
	n := func(b *expr.Builder) expr.Value { return b.Constant(c.Dtype, m.elements) }
	level = c.mapped(t, func(b *expr.Builder) expr.Value { return b.Apply(expr.Div, b.Operand(0), n(b)) }, level)
	along = c.mapped(t, func(b *expr.Builder) expr.Value {
		return b.Apply(expr.Mul, b.Apply(expr.Div, b.Operand(0), n(b)), b.Apply(expr.Mul, b.Operand(1), b.Operand(1)))
	}, along, m.ofRow)
	in := factors{x, m.mean, m.inverse, c.spread(level, x.Shape, m.axes), c.spread(along, x.Shape, m.axes)}
	return c.mapped(x.Type, func(b *expr.Builder) expr.Value {
		part := b.Apply(expr.Mul, b.Apply(expr.Sub, b.Operand(0), b.Operand(1)), b.Operand(4))
		return b.Apply(expr.Mul, b.Apply(expr.Sub, b.Apply(expr.Sub, dy.product(b, len(in)), b.Operand(3)), part), b.Operand(2))
	}, slices.Concat(in, dy)...)
}

// batchNorm lowers BatchNorm, and its gradient, whose inputs are the BatchNorm's input and the gradient w.r.t. its output. In training it
// normalizes each channel by the channel's moments and updates the running moments; otherwise it normalizes by the running moments. Gorgonia's
// gradient in evaluation mode uses the moments of the last training run, or none.
func batchNorm(c *call) *program.Value {
	bn, ok := internal.BatchNorm(c.node.Op())
	if !ok || !c.sameShapes(bn.Derivative) {
		return nil
	}
	m := c.batchMoments(bn)
	if m == nil {
		return nil
	}
	x := c.in[0]
	if bn.Derivative {
		return c.normalizedDiff(x, c.factors(c.in[1], func(v *program.Value) *program.Value { return v }), m)
	}
	if c.trains() {
		c.runningMoments(bn, m)
	}
	return c.repeated(func(c *call) *program.Value { return c.normalized(x, m) })
}

// sameShapes reports whether the node has one floating-point input, or two as a derivative, of the shape of its value.
func (c *call) sameShapes(derivative bool) bool {
	inputs := 1
	if derivative {
		inputs = 2
	}
	return c.floats(inputs) && !slices.ContainsFunc(c.in, func(v *program.Value) bool { return !slices.Equal(v.Shape, c.Shape) })
}

// batchMoments returns the moments that a BatchNorm or its gradient uses for the node's first input, or nil if the op does not
// fit the input.
func (c *call) batchMoments(bn internal.BatchNormOf) *moments {
	x, key := c.in[0], norm{batch: bn.Op, x: c.in[0]}
	if m := c.norms[key]; m != nil {
		return m
	}
	mean, variance, ok := running(bn.Op, c.Type)
	if !ok {
		return nil
	}
	axes := upTo(len(x.Shape))
	axes = slices.Delete(axes, 1, 2)
	if c.trains() {
		c.norms[key] = c.moments(x, axes, bn.Epsilon)
		return c.norms[key]
	}
	// Broadcast to every element, so that the Maps that use it compute it, instead of once per channel.
	m := &moments{axes: axes, mean: c.spread(c.keeps(mean, nil), x.Shape, axes), inverse: c.spread(c.keeps(variance, nil), x.Shape, axes)}
	m.invert = func(b *expr.Builder, v expr.Value) expr.Value {
		return b.Apply(expr.InverseSqrt, b.Apply(expr.Add, v, b.Constant(x.Dtype, bn.Epsilon)))
	}
	c.norms[key] = m
	return m
}

// running returns the running mean and variance of a BatchNorm for each channel. ok is false if they do not fit the type of the
// input.
func running(op *gorgonia.BatchNormOp, t program.Type) (mean, variance *tensor.Dense, ok bool) {
	m, v := op.Stats()
	mean, dense := m.(*tensor.Dense)
	variance, both := v.(*tensor.Dense)
	if !dense || !both || len(t.Shape) < 2 {
		return nil, nil, false
	}
	for _, s := range []*tensor.Dense{mean, variance} {
		dt, known := values.Dtype(s.Dtype())
		if !known || dt != t.Dtype || !slices.Equal(s.Shape(), t.Shape[1:2]) {
			return nil, nil, false
		}
	}
	return mean, variance, true
}

// runningMoments updates the running moments of a BatchNorm with the moments of this run. If SetTraining was never called, the
// op's variance is zeros, which training replaces by ones.
func (c *call) runningMoments(bn internal.BatchNormOf, m *moments) {
	mean, variance, _ := running(bn.Op, c.Type)
	along := func(state, first *tensor.Dense, now *program.Value, factor float64) {
		old := c.keeps(state, first)
		c.kept[state] = c.mapped(old.Type, func(b *expr.Builder) expr.Value {
			number := func(v float64) expr.Value { return b.Constant(kernels.Float64, v) }
			stays := b.Apply(expr.Mul, number(1-bn.Momentum), b.Convert(b.Operand(0), kernels.Float64))
			comes := b.Apply(expr.Mul, number(bn.Momentum), b.Apply(expr.Mul, b.Operand(1), number(factor)))
			return b.Convert(b.Apply(expr.Add, comes, stays), c.Dtype)
		}, old, now)
	}
	along(mean, nil, m.mean64, 1)
	along(variance, tensor.Ones(variance.Dtype(), variance.Shape()...), m.square, m.elements/(m.elements-1))
}

// groupNorm lowers GroupNorm, which normalizes groups of channels, and its gradient, whose inputs are the GroupNorm's input and the gradient
// w.r.t. its output.
func groupNorm(c *call) *program.Value {
	groups, epsilon, derivative, ok := internal.GroupNorm(c.node.Op())
	if !ok || !c.sameShapes(derivative) || !grouped(c.Shape, groups) {
		return nil
	}
	x, shape := c.inGroups(c.in[0], groups), c.Shape
	if derivative {
		dy := c.factors(c.in[1], func(v *program.Value) *program.Value { return c.inGroups(v, groups) })
		return c.reshaped(c.normalizedDiff(x, dy, c.groupMoments(c.in[0], x, groups, epsilon)), shape)
	}
	m := c.groupMoments(c.in[0], x, groups, epsilon)
	return c.repeated(func(c *call) *program.Value { return c.reshaped(c.normalized(x, m), shape) })
}

// grouped reports whether channels, the second axis of a shape, can be divided into that many
// groups.
func grouped(shape tensor.Shape, groups int) bool {
	return len(shape) >= 2 && groups > 0 && shape[1]%groups == 0
}

// inGroups returns a view of a value with its channel axis split into groups and channels of a group.
func (c *call) inGroups(v *program.Value, groups int) *program.Value {
	shape := slices.Concat(v.Shape[:1], []int{groups, v.Shape[1] / groups}, v.Shape[2:])
	return c.reshaped(v, shape)
}

// groupMoments returns the moments that a GroupNorm uses for a value; grouped is the value viewed by inGroups.
func (c *call) groupMoments(v, grouped *program.Value, groups int, epsilon float64) *moments {
	key := norm{group: groupOf{groups, epsilon}, x: v}
	if c.norms[key] == nil {
		c.norms[key] = c.moments(grouped, upTo(len(grouped.Shape))[2:], epsilon)
	}
	return c.norms[key]
}
