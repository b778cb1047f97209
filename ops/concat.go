package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"gorgonia.org/gorgonia"
)

// Concat puts tensors one after the other along an axis. They have one element type, and equal shapes but for that axis, in which the
// result has the sum of their extents. A negative axis counts from the end.
func Concat(axis int, xs ...*gorgonia.Node) (*gorgonia.Node, error) {
	t, err := anyTypesOf(xs)
	if err == nil {
		axis, err = axisOf(axis, t[0].Shape)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: Concat: %w", err)
	}
	return Apply(concat{axis}, xs...)
}

// Stack puts tensors of one type and shape one after the other along a new axis, which becomes the given axis of the result: the stack of n
// tensors of shape (3, 4) is (n, 3, 4) along axis 0 and (3, 4, n) along axis 2 or -1.
func Stack(axis int, xs ...*gorgonia.Node) (*gorgonia.Node, error) {
	parts, types, err := inputsOf(xs...)
	if err != nil {
		return nil, fmt.Errorf("ops: Stack: %w", err)
	}
	shape := types[0].Shape
	a, err := axisOf(axis, append(slices.Clone(shape), 1))
	if err != nil {
		return nil, fmt.Errorf("ops: Stack: %w", err)
	}
	for i, t := range types {
		if !sameShape(t.Shape, shape) {
			return nil, fmt.Errorf("ops: Stack: input %d: got shape %v, want %v, as of input 0", i, t.Shape, shape)
		}
		if parts[i], err = reshaped(parts[i], slices.Insert(slices.Clone(shape), a, 1)); err != nil {
			return nil, fmt.Errorf("ops: Stack: input %d: %w", i, err)
		}
	}
	out, err := Concat(a, parts...)
	if err != nil {
		return nil, fmt.Errorf("ops: Stack: %w", err)
	}
	return out, nil
}

type concat struct{ axis int }

func (p concat) String() string { return fmt.Sprintf("Concat[%d]", p.axis) }

func (p concat) Infer(in ...Type) (Type, error) {
	shape := slices.Clone(in[0].Shape)
	for i, t := range in[1:] {
		if t.Dtype != in[0].Dtype {
			return Type{}, fmt.Errorf("input %d is %v, input 0 is %v: want one type", i+1, values.Tensor(t.Dtype), values.Tensor(in[0].Dtype))
		}
		if len(t.Shape) != len(shape) || !sameShape(without(t.Shape, []int{p.axis}), without(shape, []int{p.axis})) {
			return Type{}, fmt.Errorf("input %d: got shape %v, want %v but for axis %d, as of input 0", i+1, t.Shape, in[0].Shape, p.axis)
		}
		shape[p.axis] += t.Shape[p.axis]
	}
	return Type{in[0].Dtype, shape}, nil
}

func (p concat) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	out, err := p.Infer(in...)
	if err != nil {
		return nil, err
	}
	extents, views := make([]int, len(in)), make([]codegen.View, len(in))
	for i, t := range in {
		extents[i], views[i] = t.Shape[p.axis], codegen.Dense(t.Shape)
	}
	return codegen.Concat(dev, out.Dtype, out.Shape, p.axis, extents, views...)
}

func (p concat) Adjoints(b *Backward) []Term {
	terms, from := make([]Term, len(b.in)), 0
	for i, t := range b.in {
		n := t.Type().Shape[p.axis]
		terms[i] = b.view(section{p.axis, from, n, 1}, b.Grad())
		from += n
	}
	return terms
}
