package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
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
		return kernels.SumVersion(dev, in[0].Dtype, int(s.version), in[0].Shape)
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

var _ = register(Spec{
	Name:      "Sum",
	Formula:   "out[kept] = Σ x[...] over axes",
	Doc:       "Sum over any set of axes of a tensor of any rank.",
	Tolerance: 1,
	Cases:     slices.Concat(sumCases(false), sumBench(false), sumVersionCases()),
	Random:    func(r *rand.Rand) Case { return randomSum(r, false) },
	Versions:  sumVersions,
})

var sumVersions = []VersionDoc{
	{"one thread", "One thread adds up everything, one element after the other: it waits for memory all the time."},
	{"one block, an atomic per thread", "256 threads share the elements and add their sums to one cell by atomics. One multiprocessor works."},
	{"16 blocks, an atomic per thread", "16 multiprocessors work; 4096 atomics on one cell are served one by one, in any order."},
	{"16 blocks, shared tree, an atomic per block", "The threads of a block add up in shared memory first: 16 atomics are left. Their order is any."},
	{"16 blocks, shared tree, partial sums", "Blocks store their sums side by side, and a second launch adds them in order, so that the result stays on the device (kernels.SumPartials leaves them to the host): the same bits in every run."},
	{"2560 blocks, thread 0 adds", "The device is full, but in each block one thread adds 1024 values while the others wait."},
	{"2560 blocks, shared tree", "Ten halving steps instead of 1024 additions; a barrier after each."},
	{"2560 blocks, shuffles", "Warps add up in registers: one barrier is left. The loop before it still loads 4 bytes at a time."},
	{"16 x 16 blocks on a 64 x 64 grid", "For matrices: each block reads 16 x 16 tiles. A row of a tile is 64 bytes, half of what lies side by side in memory."},
}

var _ = register(Spec{
	Name:      "Mean",
	Formula:   "out[kept] = Σ x[...] over axes / number of terms",
	Doc:       "Mean over any set of axes of a tensor of any rank.",
	Tolerance: 2, // the division rounds once more
	Cases:     sumCases(true),
	Random:    func(r *rand.Rand) Case { return randomSum(r, true) },
})

func sumCases(mean bool) []Case {
	return []Case{
		sumCase(mean, tensor.Shape{1}), sumCase(mean, tensor.Shape{7}), sumCase(mean, tensor.Shape{1025}), sumCase(mean, tensor.Shape{1000003}),
		sumCase(mean, tensor.Shape{3, 5}), sumCase(mean, tensor.Shape{3, 5}, 0), sumCase(mean, tensor.Shape{3, 5}, 1),
		sumCase(mean, tensor.Shape{1, 513}, 0), sumCase(mean, tensor.Shape{1, 513}, 1), sumCase(mean, tensor.Shape{513, 1}, 0),
		sumCase(mean, tensor.Shape{257, 1031}, 0), sumCase(mean, tensor.Shape{257, 1031}, 1), sumCase(mean, tensor.Shape{257, 1031}),
		sumCase(mean, tensor.Shape{2, 70001}, 0), sumCase(mean, tensor.Shape{2, 70001}, 1), sumCase(mean, tensor.Shape{70001, 2}, 0),
		sumCase(mean, tensor.Shape{4096, 64}, 0), sumCase(mean, tensor.Shape{3, 40000, 4}, 1),
		sumCase(mean, tensor.Shape{4, 9, 5, 7}, 0, 2), sumCase(mean, tensor.Shape{4, 9, 5, 7}, 1, 3), sumCase(mean, tensor.Shape{4, 9, 5, 7}, 1),
		sumCase(mean, tensor.Shape{2, 3, 2, 3, 2, 3}, 0, 2, 4), sumCase(mean, tensor.Shape{2, 3, 2, 3, 2, 3}, 5, 1),
	}
}

func sumBench(mean bool) []Case {
	return []Case{
		bench("all 512x512", sumCase(mean, tensor.Shape{1 << 9, 1 << 9})),
		bench("all 2^28", sumCase(mean, tensor.Shape{1 << 28})),
		bench("all 2^30", sumCase(mean, tensor.Shape{1 << 30})),
		bench("rows 16384x16384", sumCase(mean, tensor.Shape{1 << 14, 1 << 14}, 1)),
		bench("columns 16384x16384", sumCase(mean, tensor.Shape{1 << 14, 1 << 14}, 0)),
		bench("both 16384x16384", sumCase(mean, tensor.Shape{1 << 14, 1 << 14}, 0, 1)),
	}
}

// sumVersionCases: version 1 gets no more elements than one thread can read in
// a test's time, and versions 1 and 2 are timed on 2^18 elements alone.
func sumVersionCases() (cases []Case) {
	for i := range sumVersions {
		v := Version(i + 1)
		add := func(name string, s tensor.Shape) {
			c := sumCase(false, s)
			if name != "" {
				c = bench(name, c)
			}
			c = versioned(v, c, func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return v.Sum(in[0]) })
			c.Atomic = 2 <= v && v <= 4
			cases = append(cases, c)
		}
		if v == 9 {
			add("", tensor.Shape{1, 1})
			add("", tensor.Shape{3, 5})
			add("", tensor.Shape{1031, 17})
			add("", tensor.Shape{17, 1031})
			add("", tensor.Shape{1500, 1100})
			add("all 512x512", tensor.Shape{1 << 9, 1 << 9})
			add("both 16384x16384", tensor.Shape{1 << 14, 1 << 14})
			continue
		}
		add("", tensor.Shape{1})
		add("", tensor.Shape{1025})
		add("", tensor.Shape{3, 5, 7})
		add("", tensor.Shape{100003})
		add("all 512x512", tensor.Shape{1 << 9, 1 << 9})
		if v > 1 {
			add("", tensor.Shape{1000003})
		}
		if v > 2 {
			add("all 2^28", tensor.Shape{1 << 28})
		}
	}
	return cases
}

func randomSum(r *rand.Rand, mean bool) Case {
	s := randomShape(r, 1, 5)
	var axes []int
	for a := range s {
		if r.IntN(2) == 0 {
			axes = append(axes, a)
		}
	}
	return sumCase(mean, s, axes...)
}

func sumCase(mean bool, s tensor.Shape, along ...int) Case {
	axes := along
	if len(axes) == 0 {
		for a := range s {
			axes = append(axes, a)
		}
	}
	return Case{
		Name:   fmt.Sprintf("%v over %v", []int(s), axes),
		Shapes: []tensor.Shape{s},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			if mean {
				return Mean(in[0], along...)
			}
			return Sum(in[0], along...)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := without(s, axes).TotalSize()
			sums, magnitude := make([]total, n), make([]float64, n)
			index(s, func(flat int, at []int) {
				k := flatten(s, at, axes)
				sums[k].add(in[0][flat])
				magnitude[k] += math.Abs(in[0][flat])
			})
			terms := 1.0
			if mean {
				terms = float64(len(in[0]) / n)
			}
			for k := range sums {
				out = append(out, sums[k].value()/terms)
				magnitude[k] /= terms
			}
			return out, magnitude
		},
	}
}
