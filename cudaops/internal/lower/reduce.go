package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// The rules of this file lower Gorgonia's reductions, and other ops along an axis, to Maps.

// reduce lowers Gorgonia's Sum and Max.
func reduce(c *call) *program.Value {
	name, along, ok := internal.Reduction(c.node.Op())
	if !ok || !c.floats(1) {
		return nil
	}
	x := c.in[0]
	axes := slices.Compact(slices.Sorted(slices.Values(along)))
	if len(axes) == 0 {
		axes = upTo(len(x.Shape))
	}
	if len(x.Shape) == 0 || axes[0] < 0 || axes[len(axes)-1] >= len(x.Shape) {
		return nil
	}
	if !slices.Equal(program.Without(x.Shape, axes), c.Shape) {
		return nil
	}
	op := map[string]expr.Op{"sum": expr.RowSum, "max": expr.RowMax}[name]
	if op == expr.RowSum && c.Elements() > 1 {
		x, axes = c.summed(x, axes)
	}
	if op == expr.RowSum && len(axes) == len(x.Shape) {
		if first := firstAxes(x); first != nil {
			return c.total(x, first)
		}
	}
	return c.rows(op, x, axes)
}

// summed merges a sum of a sum: it returns the operand and the axes of the whole sum if x is a sum with no other user. The
// gradient of a broadcast along several axes consists of such consecutive sums.
func (c *call) summed(x *program.Value, axes []int) (*program.Value, []int) {
	op, _ := x.Def.Op.(program.Map)
	if len(op.PerRow) != 1 || !op.PerRow[0] {
		return x, axes
	}
	from := x.Def.In[0]
	f, err := written(func(b *expr.Builder) expr.Value { return b.Apply(expr.RowSum, b.Operand(0)) }, from)
	if err != nil || op.Func != f || c.users[x.Def.Nodes[0]] != 1 || from.Dtype != x.Dtype {
		return x, axes
	}
	kept := program.Without(program.Without(upTo(len(from.Shape)), op.Axes), axes)
	return from, program.Without(upTo(len(from.Shape)), kept)
}

// firstAxes returns the axes along which a sum of all elements is computed first, or nil for a sum in one step. If x is
// computed by rows, as a softmax is, these are the axes of the rows, so that the same kernel sums them. Otherwise it is
// the last axis if there are many rows.
func firstAxes(x *program.Value) []int {
	look := axesSearch{x.Shape, 16}
	if axes := look.behind(x); axes != nil {
		return axes
	}
	return rowAxes(x.Shape)
}

// axesSearch looks for rows of a shape among the instructions that a value depends on.
type axesSearch struct {
	shape []int
	left  int // instructions left to visit
}

// behind returns the axes of the nearest reduction that a value depends on through other Maps, if there are enough rows, when they are
// long, to occupy a device.
func (s *axesSearch) behind(v *program.Value) []int {
	const (
		long = 1 << 16
		few  = 1 << 6
	)
	in := v.Base.Def
	if s.left--; s.left < 0 || in == nil {
		return nil
	}
	switch op, mapped := in.Op.(program.Map); {
	case len(op.Axes) > 0 && slices.Equal(op.Shape, s.shape):
		rows := kernels.Count(program.Without(s.shape, op.Axes))
		if columns := kernels.Count(s.shape) / rows; rows > 1 && (rows >= few || columns <= long) {
			return op.Axes
		}
	case mapped && len(op.Axes) == 0:
		for _, from := range in.In {
			if axes := s.behind(from); axes != nil {
				return axes
			}
		}
	}
	return nil
}

// rowAxes returns the last axes of a shape that form many rows of moderate length, or nil.
func rowAxes(shape []int) []int {
	const (
		shortest, longest = 32, 1 << 16 // elements, so that a block computes one or more rows
		fewest            = 1 << 10     // rows that occupy a device
	)
	for a := len(shape) - 1; a > 0; a-- {
		columns, rows := kernels.Count(shape[a:]), kernels.Count(shape[:a])
		if columns >= shortest && columns <= longest && rows >= fewest {
			return upTo(len(shape))[a:]
		}
	}
	return nil
}

// total emits the sum of all elements as the sum of the sums along some axes, in double precision. So the sum of a loss
// becomes a part of the kernel that computes its rows.
func (c *call) total(x *program.Value, first []int) *program.Value {
	t := program.Type{Numeric: true, Dtype: kernels.Float64, Shape: program.Without(x.Shape, first)}
	rows := c.reduced(t, first, func(b *expr.Builder) expr.Value {
		return b.Apply(expr.RowSum, b.Convert(b.Operand(0), kernels.Float64))
	}, x)
	t.Dtype, t.Shape = x.Dtype, nil
	return c.reduced(t, upTo(len(rows.Shape)), func(b *expr.Builder) expr.Value {
		return b.Convert(b.Apply(expr.RowSum, b.Operand(0)), x.Dtype)
	}, rows)
}

// rows emits a reduction along axes, or a view if these have one element.
func (c *call) rows(op expr.Op, x *program.Value, axes []int) *program.Value {
	t := x.Type
	t.Shape = program.Without(x.Shape, axes)
	if t.Elements() == x.Elements() {
		return c.alias(x, t, program.View{Offset: x.View.Offset, Strides: program.Without(x.View.Strides, axes)})
	}
	return c.reduced(t, axes, func(b *expr.Builder) expr.Value { return b.Apply(op, b.Operand(0)) }, x)
}

// average lowers GlobalAveragePool2D: the mean of each channel of each image.
func average(c *call) *program.Value {
	if !internal.IsGlobalAverage(c.node.Op()) || !c.floats(1) || len(c.in[0].Shape) != 4 {
		return nil
	}
	sum := c.rows(expr.RowSum, c.in[0], []int{2, 3})
	mean := c.mapped(sum.Type, func(b *expr.Builder) expr.Value {
		return b.Apply(expr.Div, b.Operand(0), b.Constant(c.Dtype, float64(c.in[0].Elements()/sum.Elements())))
	}, sum)
	return c.reshaped(mean, c.Shape)
}

// softMax lowers SoftMax and LogSoftMax. It subtracts the maximum of each row first, so that no exponential overflows.
func softMax(c *call) *program.Value {
	axis, log, derivative, ok := internal.SoftMax(c.node.Op())
	if !ok || derivative || !c.floats(1) || !slices.Equal(c.in[0].Shape, c.Shape) || len(c.Shape) == 0 {
		return nil
	}
	axes := c.softMaxAxes(axis)
	shifted := c.apply(expr.Sub, c.in[0], c.spread(c.rows(expr.RowMax, c.in[0], axes), c.Shape, axes))
	e := c.apply(expr.Exp, shifted)
	sum := c.rows(expr.RowSum, e, axes)
	if log {
		return c.apply(expr.Sub, shifted, c.spread(c.apply(expr.Log, sum), c.Shape, axes))
	}
	return c.apply(expr.Div, e, c.spread(sum, c.Shape, axes))
}

// softMaxDiff lowers the gradient of SoftMax and LogSoftMax, whose inputs are the op's input and output and the gradient
// w.r.t. the output.
//
// The SoftMax of a column vector without an axis is along the first axis. Gorgonia then computes the gradient along the last
// axis; here it is along the first too.
func softMaxDiff(c *call) *program.Value {
	axis, log, derivative, ok := internal.SoftMax(c.node.Op())
	if !ok || !derivative || !c.floats(3) || len(c.Shape) == 0 {
		return nil
	}
	y, dy := c.in[1], c.in[2]
	if !slices.Equal(y.Shape, c.Shape) || !slices.Equal(dy.Shape, c.Shape) {
		return nil
	}
	axes := c.softMaxAxes(axis)
	if log {
		sum := c.spread(c.rows(expr.RowSum, dy, axes), c.Shape, axes)
		return c.apply(expr.Sub, dy, c.apply(expr.Mul, c.apply(expr.Exp, y), sum))
	}
	sum := c.spread(c.rows(expr.RowSum, c.apply(expr.Mul, y, dy), axes), c.Shape, axes)
	return c.apply(expr.Mul, y, c.apply(expr.Sub, dy, sum))
}

// softMaxAxes returns the axis of a SoftMax; negative axes count from the end. For a column vector, Gorgonia's default of -1 means
// the first axis.
func (c *call) softMaxAxes(axis int) []int {
	dims := len(c.Shape)
	if axis == -1 && c.Shape.IsColVec() {
		axis = 0
	}
	return []int{(axis%dims + dims) % dims}
}
