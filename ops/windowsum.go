package ops

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
	"gorgonia.org/gorgonia"
)

// WindowSum sums a window of 2 radius + 1 elements around each element along
// the last axis of x, a tensor of float32 or float64 of rank 1 or more:
//
//	Valid: out[..., i] = x[..., i] + ... + x[..., i + 2 radius]
//	Same:  out[..., i] = x[..., i - radius] + ... + x[..., i + radius]
//
// With Valid, the default, windows lie inside the axis of n elements: the output has n - 2 radius,
// and n must exceed 2 radius. With Same, elements outside count as zero, the output has x's shape,
// and any radius is allowed. The time hardly depends on the radius. Elements outside a window never
// enter its sum (there are no running differences), and sums are made in double precision.
//
// It is an error if x is nil or a scalar or has another type, if the radius is negative, or if it
// is too large for Valid.
func WindowSum(x *gorgonia.Node, radius int, opts ...WindowOption) (*gorgonia.Node, error) {
	t := windowSum{radius: radius}
	for _, o := range opts {
		t.mode = o.mode
	}
	return Apply(t, x)
}

// WindowOption is an option of WindowSum: Valid() or Same().
type WindowOption struct{ mode window.WindowMode }

// Valid keeps the windows that lie inside the axis; the output is shorter by
// 2 radius. It is the default.
func Valid() WindowOption { return WindowOption{window.WindowValid} }

// Same pads the axis with radius zeros at both ends; the output has the input's
// shape.
func Same() WindowOption { return WindowOption{window.WindowSame} }

// windowSum implements WindowSum. Its third mode, full, pads with 2 radius zeros at both ends: it
// is the adjoint of Valid, whose own adjoint is Valid again.
type windowSum struct {
	radius int
	mode   window.WindowMode
}

func (t windowSum) String() string {
	return fmt.Sprintf("WindowSum[%d %v]", t.radius, t.mode)
}

func (t windowSum) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	if t.radius < 0 {
		return Type{}, fmt.Errorf("got radius %d, want 0 or more", t.radius)
	}
	x := in[0].Shape
	axis := x.Dims() - 1
	if axis < 0 {
		return Type{}, fmt.Errorf("got a scalar, want a tensor of at least one axis")
	}
	n := x[axis]
	if t.mode == window.WindowValid && t.radius > (n-1)/2 {
		return Type{}, fmt.Errorf("got radius %d on a last axis of %d (shape %v), want an axis longer than 2 radius, or Same()",
			t.radius, n, x)
	}
	if t.mode == window.WindowFull && t.radius > (math.MaxInt-n)/2 {
		return Type{}, fmt.Errorf("got radius %d, want at most %d", t.radius, (math.MaxInt-n)/2)
	}
	out := x.Clone()
	out[axis] = int(t.mode.Outputs(int64(n), int64(t.radius)))
	return Type{in[0].Dtype, out}, nil
}

func (t windowSum) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	rows, n := rowsOf(in[0].Shape)
	return window.WindowSum(dev, in[0].Dtype, rows, n, int64(t.radius), t.mode), nil
}

func (t windowSum) Adjoints(b *Backward) []Term {
	switch t.mode {
	case window.WindowValid:
		t.mode = window.WindowFull
	case window.WindowFull:
		t.mode = window.WindowValid
	}
	return []Term{b.Apply(t, b.Grad())}
}
