package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Pick takes elements of x along an axis at indices, integers of any type, of the shape of x but for the extent of that axis; a negative axis
// counts from the end:
//
//	out[i, k, j] = x[i, indices[i, k, j], j]
//
// It is numpy's take_along_axis. x has elements of any type. An index outside of the axis is an error of the run. The gradient by x adds up the
// output's gradients with equal indices, in the order of k.
func Pick(x, indices *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	axis, err := inputAxis("Pick", x, axis)
	if err != nil {
		return nil, err
	}
	return Apply(pick{axis}, x, indices)
}

type pick struct{ axis int }

func (p pick) String() string { return fmt.Sprintf("Pick[%d]", p.axis) }

func (p pick) Infer(in ...Type) (Type, error) {
	if len(in) != 2 {
		return Type{}, fmt.Errorf("got %d inputs, want 2", len(in))
	}
	x, indices := in[0], in[1]
	if !indices.Dtype.IsInteger() {
		return Type{}, fmt.Errorf("input 1: got %v, want integers", values.Tensor(indices.Dtype))
	}
	if len(indices.Shape) != len(x.Shape) || !sameShape(kept(indices.Shape, []int{p.axis}), kept(x.Shape, []int{p.axis})) {
		return Type{}, fmt.Errorf("input 1: got shape %v, want %v but for axis %d", indices.Shape, x.Shape, p.axis)
	}
	return Type{x.Dtype, indices.Shape}, nil
}

func (p pick) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.Pick(dev, in[0].Dtype, in[1].Dtype, in[0].Shape, p.axis, int64(in[1].Shape[p.axis]))
}

// Picks returns the axis of a [Pick]; ok is false for any other op.
func (o *Op) Picks() (axis int, ok bool) {
	p, ok := o.primitive.(pick)
	return p.axis, ok
}

// Limit makes indices outside of the axis an error.
func (p pick) Limit(input int, in ...Type) (count, also int, limited bool) {
	return in[0].Shape[p.axis], 0, input == 1
}

func (p pick) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(pickGradient{p.axis, b.In(0).Type().Shape}, b.Grad(), b.In(1)), {}}
}

// pickGradient adds up elements of its first input by indices in a tensor of a shape.
type pickGradient struct {
	axis  int
	shape tensor.Shape
}

func (p pickGradient) String() string { return fmt.Sprintf("PickGradient[%d]", p.axis) }

func (p pickGradient) Infer(in ...Type) (Type, error) { return Type{in[0].Dtype, p.shape}, nil }

func (p pickGradient) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.PickAdjoint(dev, in[0].Dtype, in[1].Dtype, p.shape, p.axis, int64(in[1].Shape[p.axis]))
}

func (p pickGradient) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(pick{p.axis}, b.Grad(), b.In(1)), {}}
}
