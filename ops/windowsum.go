package ops

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
)

// WindowSum sums a window of 2 radius + 1 elements around each element along
// the last axis of x, a tensor of float32 or float64 of rank 1 or more:
//
//	Valid: out[..., i] = x[..., i] + ... + x[..., i + 2 radius]
//	Same:  out[..., i] = x[..., i - radius] + ... + x[..., i + radius]
//
// With Valid, the default, windows lie inside the axis of n elements: the
// output has n - 2 radius, and n must exceed 2 radius. With Same, elements
// outside count as zero and the output has x's shape; any radius will do. The
// time hardly depends on the radius. Elements outside a window never enter its
// sum (no running differences), and the sums are made in double precision.
//
// The error names a nil node, a scalar, another type, a negative radius, or a
// radius too large for Valid.
func WindowSum(x *gorgonia.Node, radius int, opts ...WindowOption) (*gorgonia.Node, error) {
	return Version(0).WindowSum(x, radius, opts...)
}

// WindowSum is [WindowSum] by a numbered version of the kernel. The cost of
// versions 1 and 2 grows with the radius.
func (v Version) WindowSum(x *gorgonia.Node, radius int, opts ...WindowOption) (*gorgonia.Node, error) {
	if err := v.check("WindowSum", len(windowVersions)); err != nil {
		return nil, err
	}
	t := windowSum{radius: radius, version: v}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("ops: %v: got a nil option", t)
		}
		o(&t)
	}
	return Apply(t, x)
}

// WindowOption is an option of WindowSum: Valid() or Same().
type WindowOption func(*windowSum)

// Valid keeps the windows that lie inside the axis; the output is shorter by
// 2 radius. It is the default.
func Valid() WindowOption { return func(t *windowSum) { t.mode = kernels.WindowValid } }

// Same pads the axis with radius zeros at both ends; the output has the input's
// shape.
func Same() WindowOption { return func(t *windowSum) { t.mode = kernels.WindowSame } }

// windowSum is WindowSum. Its third mode, full, pads with 2 radius zeros at both
// ends: the adjoint of Valid, whose own adjoint is Valid again.
type windowSum struct {
	radius  int
	mode    kernels.WindowMode
	version Version
}

func (t windowSum) String() string {
	return fmt.Sprintf("WindowSum[%d %v]%v", t.radius, t.mode, t.version)
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
	if t.mode == kernels.WindowValid && t.radius > (n-1)/2 {
		return Type{}, fmt.Errorf("got radius %d on a last axis of %d (shape %v), want an axis longer than 2 radius, or Same()",
			t.radius, n, x)
	}
	if t.mode == kernels.WindowFull && t.radius > (math.MaxInt-n)/2 {
		return Type{}, fmt.Errorf("got radius %d, want at most %d", t.radius, (math.MaxInt-n)/2)
	}
	out := x.Clone()
	out[axis] = int(t.mode.Outputs(int64(n), int64(t.radius)))
	return Type{in[0].Dtype, out}, nil
}

func (t windowSum) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	rows, n := rowsOf(in[0].Shape)
	if t.version > 0 {
		return versions.WindowSum(dev, in[0].Dtype, int(t.version), rows, n, int64(t.radius), t.mode)
	}
	return kernels.WindowSum(dev, in[0].Dtype, rows, n, int64(t.radius), t.mode), nil
}

func (t windowSum) Adjoints(b *Backward) []Term {
	t.version = 0
	switch t.mode {
	case kernels.WindowValid:
		t.mode = kernels.WindowFull
	case kernels.WindowFull:
		t.mode = kernels.WindowValid
	}
	return []Term{b.Apply(t, b.Grad())}
}

var windowVersions = []VersionDoc{
	{"simple", "A thread reads its whole window from global memory: neighbours read the same elements again, out of the first-level cache."},
	{"shared memory", "256 threads fetch the 256 + 2 radius elements of their windows together, each element once, and add up from shared memory."},
	{"fast", "The op itself: vector loads, several outputs a thread, and for windows of 16 elements and more sums of chunks that neighbours share."},
}
