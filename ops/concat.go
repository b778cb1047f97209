package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"gorgonia.org/gorgonia"
)

// Concat puts tensors one after the other along an axis. They have one element type, and equal shapes but for that axis, in which the
// result has the sum of their extents. A negative axis counts from the end. The gradients are slices of the result's.
func Concat(axis int, xs ...*gorgonia.Node) (*gorgonia.Node, error) {
	if len(xs) == 0 {
		return nil, fmt.Errorf("ops: Concat[%d]: got no inputs, want at least one", axis)
	}
	t, err := typeOf(xs[0])
	if err != nil {
		return nil, fmt.Errorf("ops: Concat[%d]: input 0: %w", axis, err)
	}
	a, err := axisOf(axis, t.Shape)
	if err != nil {
		return nil, fmt.Errorf("ops: Concat[%d]: %w", axis, err)
	}
	return Apply(concat{a}, xs...)
}

// Stack puts tensors of one type and shape one after the other along a new axis, which is inserted before the given one: the stack of n
// tensors of shape (3, 4) is (n, 3, 4) along axis 0 and (3, 4, n) along axis 2 or -1.
func Stack(axis int, xs ...*gorgonia.Node) (*gorgonia.Node, error) {
	var parts []*gorgonia.Node
	for i, x := range xs {
		t, err := typeOf(x)
		if err != nil {
			return nil, fmt.Errorf("ops: Stack[%d]: input %d: %w", axis, i, err)
		}
		if first := xs[0].Shape(); !sameShape(t.Shape, first) {
			return nil, fmt.Errorf("ops: Stack[%d]: input %d: got shape %v, want %v, as of input 0", axis, i, t.Shape, first)
		}
		a, err := axisOf(axis, append(slices.Clone(t.Shape), 1))
		if err != nil {
			return nil, fmt.Errorf("ops: Stack[%d]: %w", axis, err)
		}
		part, err := reshaped(x, slices.Insert(slices.Clone(t.Shape), a, 1))
		if err != nil {
			return nil, fmt.Errorf("ops: Stack[%d]: input %d: %w", axis, i, err)
		}
		parts = append(parts, part)
	}
	return Concat(axis, parts...)
}

type concat struct{ axis int }

func (p concat) String() string { return fmt.Sprintf("Concat[%d]", p.axis) }

func (p concat) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, len(in)); err != nil {
		return Type{}, err
	}
	shape := slices.Clone(in[0].Shape)
	for i, t := range in[1:] {
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
