package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Sum adds up a tensor over the given axes, or over all without any. As with
// Gorgonia's Sum the axes vanish from the shape, the sum over all axes is a
// scalar, and the sum of a scalar is the scalar itself.
//
//	out[kept] = sum over the axes' indexes of x[...]
//
// The sum is made in double precision whatever the type, so a float32 result is
// the float64 sum rounded once. An axis below zero, beyond the rank or given
// twice is an error.
func Sum(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) { return Version(0).Sum(x, along...) }

// Sum is [Sum] by a numbered version of the kernel. Versions 1 to 9 add up whole
// tensors, version 9 matrices alone: other axes and ranks are errors.
func (v Version) Sum(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	return reduce(false, v, x, along)
}

// Mean is Sum divided by the number of terms.
//
//	out[kept] = (sum over the axes' indexes of x[...]) / (product of the axes' extents)
func Mean(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) { return reduce(true, 0, x, along) }

func reduce(mean bool, v Version, x *gorgonia.Node, along []int) (*gorgonia.Node, error) {
	if err := v.check("Sum", len(sumVersions)); err != nil {
		return nil, err
	}
	if _, err := typeOf(x); err != nil {
		return nil, fmt.Errorf("ops: %v: input 0: %w", sum{mean, along, v}, err)
	}
	if x.IsScalar() && len(along) == 0 {
		return x, nil
	}
	axes := slices.Sorted(slices.Values(along))
	if len(axes) == 0 {
		for a := range x.Shape() {
			axes = append(axes, a)
		}
	}
	return Apply(sum{mean, axes, v}, x)
}

// sum reduces over sorted axes.
type sum struct {
	mean    bool
	axes    []int
	version Version
}

func (s sum) String() string {
	if s.mean {
		return fmt.Sprintf("Mean%v", s.axes)
	}
	return fmt.Sprintf("Sum%v%v", s.axes, s.version)
}

func (s sum) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	x := in[0].Shape
	if err := checkAxes(s.axes, x); err != nil {
		return Type{}, err
	}
	if s.version > 0 && len(s.axes) < x.Dims() {
		return Type{}, fmt.Errorf("got axes %v of shape %v, but numbered versions add up all axes", s.axes, x)
	}
	if s.version == 9 && x.Dims() != 2 {
		return Type{}, fmt.Errorf("got shape %v, want a matrix", x)
	}
	return Type{in[0].Dtype, without(x, s.axes)}, nil
}

func (s sum) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	if s.version > 0 {
		return versions.Sum(dev, in[0].Dtype, int(s.version), in[0].Shape)
	}
	return kernels.Sum(dev, in[0].Dtype, in[0].Shape, s.axes, s.mean), nil
}

func (s sum) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(broadcast{b.In(0).Type().Shape, s.axes, s.mean}, b.Grad())}
}

// checkAxes returns an error if sorted axes are not those of a shape.
func checkAxes(axes []int, shape tensor.Shape) error {
	for i, a := range axes {
		if a < 0 || a >= shape.Dims() {
			return fmt.Errorf("got axis %d for shape %v, want 0 <= axis < %d", a, shape, shape.Dims())
		}
		if i > 0 && axes[i-1] == a {
			return fmt.Errorf("got axis %d twice", a)
		}
	}
	return nil
}

// without returns a shape with axes taken out.
func without(shape tensor.Shape, axes []int) tensor.Shape {
	rest := tensor.Shape{}
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			rest = append(rest, d)
		}
	}
	if len(rest) == 0 {
		return tensor.ScalarShape()
	}
	return rest
}

var sumVersions = []VersionDoc{
	{"one thread", "One thread adds up everything, one element after the other: it waits for memory all the time."},
	{"one block, an atomic per thread", "256 threads share the elements and add their sums to one cell by atomics. One multiprocessor works."},
	{"16 blocks, an atomic per thread", "16 multiprocessors work; 4096 atomics on one cell are served one by one, in any order."},
	{"16 blocks, shared tree, an atomic per block", "The threads of a block add up in shared memory first: 16 atomics are left. Their order is any."},
	{"16 blocks, shared tree, partial sums", "Blocks store their sums side by side, and a second launch adds them in order, so that the result stays on the device (versions.SumPartials leaves them to the host): the same bits in every run."},
	{"2560 blocks, thread 0 adds", "The device is full, but in each block one thread adds 1024 values while the others wait."},
	{"2560 blocks, shared tree", "Ten halving steps instead of 1024 additions; a barrier after each."},
	{"2560 blocks, shuffles", "Warps add up in registers: one barrier is left. The loop before it still loads 4 bytes at a time."},
	{"16 x 16 blocks on a 64 x 64 grid", "For matrices: each block reads 16 x 16 tiles. A row of a tile is 64 bytes, half of what lies side by side in memory."},
}
