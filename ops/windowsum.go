package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
	return apply(t, x)
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

func (t windowSum) infer(in []tensor.Shape) (tensor.Shape, error) {
	if t.radius < 0 {
		return nil, fmt.Errorf("got radius %d, want 0 or more", t.radius)
	}
	axis := in[0].Dims() - 1
	if axis < 0 {
		return nil, fmt.Errorf("got a scalar, want a tensor of at least one axis")
	}
	n := in[0][axis]
	if t.mode == kernels.WindowValid && (n == 0 || t.radius > (n-1)/2) {
		return nil, fmt.Errorf("got radius %d on a last axis of %d (shape %v), want an axis longer than 2 radius, or Same()",
			t.radius, n, in[0])
	}
	if t.mode == kernels.WindowFull && t.radius > (math.MaxInt-n)/2 {
		return nil, fmt.Errorf("got radius %d, want at most %d", t.radius, (math.MaxInt-n)/2)
	}
	out := in[0].Clone()
	out[axis] = int(t.mode.Outputs(int64(n), int64(t.radius)))
	return out, nil
}

func (t windowSum) plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	rows, n := int64(1), int64(in[0][in[0].Dims()-1])
	for _, d := range in[0][:in[0].Dims()-1] {
		rows *= int64(d)
	}
	if t.version > 0 {
		return versions.WindowSum(dev, dt, int(t.version), rows, n, int64(t.radius), t.mode)
	}
	return kernels.WindowSum(dev, dt, rows, n, int64(t.radius), t.mode), nil
}

func (t windowSum) adjoints([]tensor.Shape) []adjoint {
	t.version = 0
	switch t.mode {
	case kernels.WindowValid:
		t.mode = kernels.WindowFull
	case kernels.WindowFull:
		t.mode = kernels.WindowValid
	}
	return []adjoint{{t, []int{gradient}}}
}

var _ = register(Spec{
	Name:    "WindowSum",
	Formula: "out[..., i] = Σ x[..., i+j], |j| <= radius",
	Doc:     "Sum over a sliding window along the last axis; a window of a million elements takes little more than twice the time of one of five.",
	// The results are rounded once from double sums; for float64 the sums' own
	// rounding, here and in the reference, adds up over up to 2001 terms.
	Tolerance: 4,
	Cases: slices.Concat([]Case{
		windowCase("one element", 0, false, 1),
		windowCase("one window", 2, false, 5),
		windowCase("radius 0", 0, false, 17),
		windowCase("radius 1", 1, false, 101),
		windowCase("radius 7", 7, false, 5, 97),
		windowCase("radius 8", 8, false, 3, 5, 61),
		windowCase("radius 100", 100, false, 2, 4099),
		windowCase("radius 1000", 1000, false, 6007),
		windowCase("same, one element", 3, true, 1),
		windowCase("same, radius 0", 0, true, 2, 3),
		windowCase("same, radius 2", 2, true, 3, 1, 31),
		windowCase("same, radius 8", 8, true, 67, 19),
		windowCase("same, radius 64", 64, true, 2, 2, 509),
		windowCase("same, radius beyond the axis", 50, true, 4, 13),
		windowBench("2^28 r=2", 2, 1<<28),
		inBoth(windowBench("2^28 r=32", 32, 1<<28)),
		windowBench("2^28 r=512", 512, 1<<28),
		windowBench("2^28 r=10^6", 1_000_000, 1<<28),
		windowBench("2^20 x 256 r=2", 2, 1<<20, 256),
	}, windowVersionCases()),
	Versions: windowVersions,
	Random: func(r *rand.Rand) Case {
		shape := make([]int, 1+r.IntN(3))
		for i := range shape {
			shape[i] = 1 + r.IntN(6)
		}
		n := 1 + r.IntN(90)
		shape[len(shape)-1] = n
		if r.IntN(2) == 0 {
			return windowCase("random", r.IntN(n+20), true, shape...)
		}
		return windowCase("random", r.IntN((n-1)/2+1), false, shape...)
	},
})

var windowVersions = []VersionDoc{
	{"simple", "A thread reads its whole window from global memory: neighbours read the same elements again, out of the first-level cache."},
	{"shared memory", "256 threads fetch the 256 + 2 radius elements of their windows together, each element once, and add up from shared memory."},
	{"fast", "The op itself: vector loads, several outputs a thread, and for windows of 16 elements and more sums of chunks that neighbours share."},
}

func windowVersionCases() (cases []Case) {
	for i := range windowVersions {
		v := Version(i + 1)
		add := func(c Case, radius int, same bool) {
			cases = append(cases, versioned(v, c, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
				return v.WindowSum(in[0], radius, windowOption(same))
			}))
		}
		for _, t := range []struct {
			radius int
			same   bool
			shape  tensor.Shape
		}{
			{0, false, tensor.Shape{1}}, {2, false, tensor.Shape{5}}, {2, false, tensor.Shape{3, 1031}}, {2, true, tensor.Shape{7, 33}},
			{2, true, tensor.Shape{512}}, {100, false, tensor.Shape{2, 4099}}, {600, true, tensor.Shape{3, 700}}, {50, true, tensor.Shape{4, 13}},
		} {
			add(windowCase(fmt.Sprintf("radius %d %v same %v", t.radius, t.shape, t.same), t.radius, t.same, t.shape...), t.radius, t.same)
		}
		for _, radius := range []int{2, 32} {
			add(windowBench(fmt.Sprintf("2^28 r=%d", radius), radius, 1<<28), radius, true)
		}
	}
	return cases
}

// windowOption is the option for the mode.
func windowOption(same bool) WindowOption {
	if same {
		return Same()
	}
	return Valid()
}

func windowCase(name string, radius int, same bool, shape ...int) Case {
	return Case{
		Name:   name,
		Shapes: []tensor.Shape{shape},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return WindowSum(in[0], radius, windowOption(same))
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := shape[len(shape)-1]
			first, last := radius, n-radius // centres
			if same {
				first, last = 0, n
			}
			for row := 0; row < len(in[0]); row += n {
				x := in[0][row : row+n]
				for centre := first; centre < last; centre++ {
					var sum total
					abs := 0.0
					for j := centre - radius; j <= centre+radius; j++ {
						if 0 <= j && j < n {
							sum.add(x[j])
							abs += math.Abs(x[j])
						}
					}
					out, magnitude = append(out, sum.value()), append(magnitude, abs)
				}
			}
			return out, magnitude
		},
	}
}

func windowBench(name string, radius int, shape ...int) Case {
	c := windowCase(name, radius, true, shape...)
	c.Bench = true
	return c
}
