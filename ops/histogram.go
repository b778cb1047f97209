package ops

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Histogram counts the elements of a tensor of any shape in bins of equal width
// that cover lo <= x < hi. It takes bytes, int32, int64, int, float32 and float64,
// and gives an int64 vector of one count for each bin.
//
//	out[k] = number of x with lo <= x < hi and floor((x - lo) * (bins / (hi - lo))) = k
//
// The formula is evaluated in float64, so for integers below 2^53
// Histogram(x, bins, 0, float64(bins)) counts how often each integer from 0 to
// bins - 1 occurs. A result that rounds up to bins counts in the last bin. Elements
// outside and NaN are not counted; nor is hi itself, which other libraries count in the last bin:
// give a hi a little above the greatest element.
//
// Counts are exact and the same in every run. They are int64 because float32 stops
// counting at 2^24 and int32 wraps at 2^31, both less than a GPU counts in a
// millisecond, and because int64, unlike int, is the same on all platforms.
// Gorgonia's LispMachine, which makes a derivative for every value, cannot carry
// integer tensors; all other machines do.
//
// Histogram has no gradient: counts do not change when an element moves a little,
// and jump when it crosses the edge of a bin. It is an error if bins is below 1 or
// above 2^30, or if not lo < hi, or if hi - lo or bins / (hi - lo) is not finite.
func Histogram(x *gorgonia.Node, bins int, lo, hi float64) (*gorgonia.Node, error) {
	return Version(0).Histogram(x, bins, lo, hi)
}

// Histogram is [Histogram] by a numbered version of the kernel; the last one is
// the op's own. Versions 2 and 3 count more bins than shared memory holds (58112
// on an H100) as version 1 does.
func (v Version) Histogram(x *gorgonia.Node, bins int, lo, hi float64) (*gorgonia.Node, error) {
	if err := v.check("Histogram", len(histogramVersions)); err != nil {
		return nil, err
	}
	return Apply(histogram{v, kernels.Bins{N: bins, Lo: lo, Hi: hi}}, x)
}

type histogram struct {
	version Version
	bins    kernels.Bins
}

func (h histogram) String() string {
	return fmt.Sprintf("Histogram[%d in %v to %v]%v", h.bins.N, h.bins.Lo, h.bins.Hi, h.version)
}

func (h histogram) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	const most = 1 << 30
	if h.bins.N < 1 || h.bins.N > most {
		return Type{}, fmt.Errorf("got %d bins, want 1 to %d", h.bins.N, most)
	}
	lo, hi := h.bins.Lo, h.bins.Hi
	if !(lo < hi) || math.IsInf(hi-lo, 0) || math.IsInf(float64(h.bins.N)/(hi-lo), 0) {
		return Type{}, fmt.Errorf("got bins from %v to %v, want finite bounds, the first below the second, whose distance neither overflows nor is next to nothing", lo, hi)
	}
	return Type{kernels.Int64, tensor.Shape{h.bins.N}}, nil
}

func (h histogram) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	v := int(h.version)
	if v == 0 {
		v = kernels.HistogramVersions
	}
	return kernels.Histogram(dev, in[0].Dtype, v, in[0].Elements(), h.bins)
}

func (histogram) Adjoints(b *Backward) []Term {
	return b.None("counts do not change when an element moves a little, and jump when it crosses the edge of a bin")
}

var histogramVersions = []VersionDoc{
	{"global atomics", "Every element is an atomic on a counter in global memory, where all threads of the grid meet."},
	{"shared atomics", "Each block counts in shared memory and adds its counts to the grid's at the end: only its own threads meet."},
	{"lane-private columns", "Each lane of a warp has counters in a memory bank of its own, so that lanes never meet, whatever the data."},
}

var _ = register(Spec{
	Name:       "Histogram",
	Formula:    "out[k] = number of x with ⌊(x - lo) bins / (hi - lo)⌋ = k",
	Doc:        "Exact counts in bins of equal width, of bytes, integers and floating-point numbers; no gradient.",
	Types:      []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int},
	Exact:      true,
	NoGradient: true,
	Cases:      histogramCases(),
	Random: func(r *rand.Rand) Case {
		lo := float64(r.IntN(9) - 6)
		return histogramCase(0, randomShape(r, 1, 3), 1+r.IntN(300), lo, lo+float64(1+r.IntN(1000))/4)
	},
	Versions: histogramVersions,
})

func histogramCases() (cases []Case) {
	cases = []Case{
		histogramCase(0, tensor.Shape{1}, 1, -8, 8), histogramCase(0, tensor.ScalarShape(), 4, -2, 2),
		histogramCase(0, tensor.Shape{1025}, 256, 0, 256), histogramCase(0, tensor.Shape{31, 33}, 10, -0.3, 1),
		histogramCase(0, tensor.Shape{100003}, 128, 0, 128), histogramCase(0, tensor.Shape{1000003}, 256, 0, 256),
		histogramCase(0, tensor.Shape{40009}, 5000, -4, 4), histogramCase(0, tensor.Shape{40009}, 50000, -200, 200), histogramCase(0, tensor.Shape{40009}, 100000, -4, 300),
	}
	for v := Version(1); int(v) <= len(histogramVersions); v++ {
		cases = append(cases, histogramCase(v, tensor.Shape{1025}, 100, -1, 1), histogramCase(v, tensor.Shape{100003}, 256, 0, 256))
		cases = append(cases, histogramBytes(v, fmt.Sprintf("2^28 bytes version %d", v), 1<<28))
	}
	equal := histogramBytes(0, "2^30 equal bytes", 1<<30)
	equal.Fill = func(operand []byte) {
		for i := range operand {
			operand[i] = 'e'
		}
	}
	return append(cases, histogramBytes(0, "2^30 bytes", 1<<30), equal,
		bench("2^28 into 256", histogramCase(0, tensor.Shape{1 << 28}, 256, -1, 1)),
		bench("2^28 into 16384", histogramCase(0, tensor.Shape{1 << 28}, 16384, -1, 1)))
}

// histogramBytes is the timed case of n bytes and their 256 values.
func histogramBytes(v Version, name string, n int) Case {
	c := bench(name, histogramCase(v, tensor.Shape{n}, 256, 0, 256))
	c.Timed = []kernels.Dtype{kernels.Uint8}
	return c
}

func histogramCase(v Version, s tensor.Shape, bins int, lo, hi float64) Case {
	c := Case{
		Name:   fmt.Sprintf("%v into %d of %v to %v", []int(s), bins, lo, hi),
		Shapes: []tensor.Shape{s},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return v.Histogram(in[0], bins, lo, hi)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out, magnitude = make([]float64, bins), make([]float64, bins)
			for _, x := range in[0] {
				if x >= lo && x < hi {
					out[min(int(math.Floor((x-lo)*(float64(bins)/(hi-lo)))), bins-1)]++
				}
			}
			return out, magnitude
		},
	}
	if v > 0 {
		c = versioned(v, c, c.Build)
	}
	return c
}
