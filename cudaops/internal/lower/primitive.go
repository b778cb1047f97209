package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// The rules of this file lower ops of package ops, and of other modules, that are views, broadcasts or functions of rows.

// viewed lowers an op that is a view of its input.
func viewed(c *call) *program.Value {
	op, ok := c.node.Op().(interface{ View() (codegen.View, bool) })
	if !ok || len(c.in) != 1 || !c.numbers() {
		return nil
	}
	var v codegen.View
	if c.guarded("its View", func() { v, ok = op.View() }); !ok || v.Elements != c.in[0].Elements() || v.Check(c.Shape) != nil {
		return nil
	}
	from := c.in[0]
	if whole := codegen.Dense(c.Shape); whole.Elements == v.Elements && v.Offset == 0 && v.Bounds.To == 0 && slices.Equal(v.Strides, whole.Strides) {
		return c.reshaped(from, c.Shape)
	}
	view, ok := through(from, c.Shape, v)
	if !ok {
		from = c.dense(from)
		view, _ = through(from, c.Shape, v)
	}
	if v.Bounds.To == 0 {
		return c.alias(from, c.Type, view)
	}
	return c.padded(from, c.Type, view, v.Bounds)
}

// broadcasts lowers Broadcast and the gradients of Sum and Mean to a view, so that they are fused with the ops that read them.
func broadcasts(c *call) *program.Value {
	op, ok := c.node.Op().(interface{ Broadcast() ([]int, int, bool) })
	if !ok || !c.floats(1) {
		return nil
	}
	axes, divisor, ok := op.Broadcast()
	if !ok {
		return nil
	}
	v := c.spread(c.in[0], c.Shape, axes)
	if divisor == 1 {
		return v
	}
	return c.mapped(c.Type, func(b *expr.Builder) expr.Value {
		return b.Apply(expr.Div, b.Operand(0), b.Constant(c.Dtype, float64(divisor)))
	}, v)
}

// guarded calls a method of an op, and sets the node's error if it panics.
func (c *call) guarded(what string, call func()) {
	if err := guard.Recover(what, func() error { call(); return nil }); err != nil {
		c.err = err
	}
}

// through returns the view of a value that a view of its elements in row-major order describes; ok is false if the value's strides
// allow no such view.
func through(from *program.Value, shape tensor.Shape, v codegen.View) (view program.View, ok bool) {
	dense := program.Contiguous(from.Shape).Strides
	last := make([]int64, len(from.Shape)) // index of the last element
	step := func(n, times int64) (stride int64) {
		for a, d := range dense {
			last[a] += n / d * times
			stride += n / d * from.View.Strides[a]
			n %= d
		}
		return stride
	}
	view = program.View{Offset: from.View.Offset + step(v.Offset, 1), Strides: make([]int64, len(shape))}
	for a, d := range shape {
		if v.Bounds.To != 0 && v.Bounds.Axis == a {
			d = v.Bounds.To - v.Bounds.From
		}
		if d > 1 || v.Bounds.To != 0 {
			view.Strides[a] = step(int64(v.Strides[a]), int64(d-1))
		}
	}
	for a, d := range from.Shape {
		ok = ok || last[a] >= int64(d)
	}
	return view, !ok
}

// rowwise lowers an op that is a function of rows.
func rowwise(c *call) *program.Value {
	op, ok := c.node.Op().(interface{ Rows() (ops.Rows, bool) })
	if !ok || !c.Numeric {
		return nil
	}
	var r ops.Rows
	c.guarded("its Rows", func() { r, ok = op.Rows() })
	if !ok || len(r.Func.Operands()) != len(c.in)+len(r.Iotas) || len(r.Func.Outputs()) != 1 || r.Func.Outputs()[0] != c.Dtype {
		return nil
	}
	for i, v := range c.in {
		if v.Dtype != r.Func.Operands()[i] {
			return nil
		}
	}
	in := c.broadcast(r.Shape, broadcastTo)
	if in == nil && len(c.in) > 0 {
		return nil
	}
	for _, strides := range r.Iotas {
		in = append(in, c.iota(r.Shape, strides))
	}
	t := c.Type
	if len(r.Axes) == 0 {
		return c.emit(program.Map{Func: r.Func, Shape: r.Shape}, t, in...)
	}
	if t.Shape = r.Shape; r.PerRow {
		t.Shape = program.Without(r.Shape, r.Axes)
	}
	v := c.emit(program.Map{Func: r.Func, Shape: r.Shape, Axes: r.Axes, PerRow: []bool{r.PerRow}}, t, in...)
	if slices.Equal(t.Shape, c.Shape) {
		return v
	}
	return c.reshaped(v, c.Shape)
}

// iota returns numbers of elements as a value of a shape: each is the sum of its indices times strides.
func (c *call) iota(shape tensor.Shape, strides []int) *program.Value {
	if c.iotas == nil {
		c.iotas = c.emit(program.Iota{}, program.Type{Numeric: true, Dtype: kernels.Int64})
	}
	view := program.View{Strides: make([]int64, len(shape))}
	for a, s := range strides {
		view.Strides[a] = int64(s)
	}
	return c.alias(c.iotas, program.Type{Numeric: true, Dtype: kernels.Int64, Shape: shape}, view)
}

// broadcast returns the inputs in a shape, by the views that view returns, or nil if one does not fit.
func (c *call) broadcast(shape tensor.Shape, view func(v *program.Value, shape tensor.Shape) (program.View, bool)) []*program.Value {
	views := make([]program.View, len(c.in))
	for i, v := range c.in {
		var ok bool
		if views[i], ok = view(v, shape); !ok {
			return nil
		}
	}
	in := slices.Clone(c.in)
	for i, v := range in {
		if !slices.Equal(v.Shape, shape) {
			in[i] = c.alias(v, program.Type{Numeric: true, Dtype: v.Dtype, Shape: shape}, views[i])
		}
	}
	return in
}

// broadcastTo returns the view of a value broadcast to a shape by numpy's rule; ok is false if it does not broadcast to that.
func broadcastTo(v *program.Value, shape tensor.Shape) (view program.View, ok bool) {
	view = program.View{Offset: v.View.Offset, Strides: make([]int64, len(shape))}
	before := len(shape) - len(v.Shape)
	for a, d := range v.Shape {
		switch {
		case before < 0 || d != 1 && d != shape[before+a]:
			return view, false
		case d != 1:
			view.Strides[before+a] = v.View.Strides[a]
		}
	}
	return view, true
}
