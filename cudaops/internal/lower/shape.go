package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// The rules of this file lower ops that move no element to views.

// alias makes the value of n a view of from, given in from's own elements: the
// element of index i is from's of index offset + sum of i[k] strides[k], where the
// strides are those of from's view.
func (l *lowerer) alias(def *program.Instr, n *gorgonia.Node, t program.Type, from *program.Value, view program.View) *program.Value {
	def.Op, def.In = program.Alias{}, []*program.Value{from}
	return l.graph.Program.NewAlias(def, n.Name(), t, from, view)
}

// numbers reports whether a node and its first input are tensors of one type that
// kernels know.
func numbers(def *program.Instr, t program.Type) bool {
	return len(def.In) > 0 && t.Numeric && def.In[0].Numeric && t.Dtype == def.In[0].Dtype
}

// size lowers the extent of an axis, which the shape of the input tells, to a
// constant.
func size(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	axis, ok := internal.Size(n.Op())
	if !ok || !t.Numeric || len(t.Shape) > 0 || !numbers(def, t) {
		return nil
	}
	extent := 1
	if shape := def.In[0].Shape; axis < len(shape) {
		extent = shape[axis]
	} else if len(shape) > 0 {
		return nil // an error of the op, when it runs
	}
	v := values.Number(t.Dtype, float64(extent))
	def.Op, def.In = program.Constant{Value: v}, nil
	return l.graph.Program.NewValue(def, n.Name(), t)
}

// reshape lowers Gorgonia's Reshape of a value that lies in row-major order.
func reshape(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	if !internal.IsReshape(n.Op()) || len(def.In) != 1 || !numbers(def, t) {
		return nil
	}
	from := def.In[0]
	if t.Elements() != from.Elements() || !from.IsContiguous() {
		return nil
	}
	view := program.Contiguous(t.Shape)
	view.Offset = from.View.Offset
	return l.alias(def, n, t, from, view)
}

// transpose lowers a Transpose to a view whose axes have another order.
func transpose(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	pattern, ok := internal.Transpose(n.Op())
	if !ok || !numbers(def, t) {
		return nil
	}
	from := def.In[0]
	if len(pattern) != len(from.Shape) || len(t.Shape) != len(pattern) {
		return nil
	}
	view := program.View{Offset: from.View.Offset, Strides: make([]int64, len(pattern))}
	for i, p := range pattern {
		if p < 0 || p >= len(pattern) || t.Shape[i] != from.Shape[p] {
			return nil
		}
		view.Strides[i] = from.View.Strides[p]
	}
	return l.alias(def, n, t, from, view)
}

// slice lowers a Slice along one axis, which goes from the shape if one index is
// left of it.
func slice(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	s, increment, ok := internal.Slice(n.Op())
	if !ok || increment || !numbers(def, t) {
		return nil
	}
	from := def.In[0]
	view := program.View{Offset: from.View.Offset, Strides: slices.Clone(from.View.Strides)}
	shape := slices.Clone([]int(from.Shape))
	if !s.All {
		if s.Axis >= len(shape) || s.End > shape[s.Axis] || s.Step != 1 {
			return nil
		}
		view.Offset += int64(s.Start) * view.Strides[s.Axis]
		if shape[s.Axis] = s.End - s.Start; shape[s.Axis] == 1 && len(t.Shape) < len(shape) {
			shape = slices.Delete(shape, s.Axis, s.Axis+1)
			view.Strides = slices.Delete(view.Strides, s.Axis, s.Axis+1)
		}
	}
	if !slices.Equal(shape, t.Shape) {
		return nil // a shape that Gorgonia infers otherwise
	}
	return l.alias(def, n, t, from, view)
}

// repeat lowers the repetition of an axis of one element, which all broadcasts of
// Gorgonia's come down to.
func repeat(l *lowerer, def *program.Instr, n *gorgonia.Node, t program.Type) *program.Value {
	axis, ok := internal.Repeat(n.Op())
	if !ok || !numbers(def, t) {
		return nil
	}
	from := def.In[0]
	view := program.View{Offset: from.View.Offset, Strides: slices.Clone(from.View.Strides)}
	shape := slices.Clone([]int(from.Shape))
	for len(shape) <= axis { // a vector repeated along its second axis, a scalar along its first
		shape, view.Strides = append(shape, 1), append(view.Strides, 0)
	}
	if len(t.Shape) != len(shape) || shape[axis] != 1 {
		return nil
	}
	shape[axis], view.Strides[axis] = t.Shape[axis], 0
	if !slices.Equal(shape, t.Shape) {
		return nil
	}
	return l.alias(def, n, t, from, view)
}
