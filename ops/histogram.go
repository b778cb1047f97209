package ops

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Histogram counts the elements of a tensor of any shape in bins of equal width
// that cover lo <= x < hi. It takes bytes, int32, int64, int, float32 and float64,
// and returns an int64 vector of one count for each bin.
//
//	out[k] = number of x with lo <= x < hi and floor((x - lo) * (bins / (hi - lo))) = k
//
// The formula is evaluated in float64, so for integers below 2^53
// Histogram(x, bins, 0, float64(bins)) counts how often each integer from 0 to
// bins - 1 occurs. A result that rounds up to bins counts in the last bin. Elements
// outside and NaN are not counted; nor is hi itself, which other libraries count in the last bin:
// choose hi a little above the greatest element.
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
	return Apply(histogram{basic.Bins{N: bins, Lo: lo, Hi: hi}}, x)
}

type histogram struct{ bins basic.Bins }

func (h histogram) String() string {
	return fmt.Sprintf("Histogram[%d in %v to %v]", h.bins.N, h.bins.Lo, h.bins.Hi)
}

func (h histogram) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	if in[0].Dtype == kernels.Bool {
		return Type{}, fmt.Errorf("got %v, want numbers", values.Tensor(kernels.Bool))
	}
	const most = 1 << 30
	if h.bins.N < 1 || h.bins.N > most {
		return Type{}, fmt.Errorf("got %d bins, want 1 to %d", h.bins.N, most)
	}
	lo, hi := h.bins.Lo, h.bins.Hi
	if !(lo < hi) || math.IsInf(hi-lo, 0) || math.IsInf(float64(h.bins.N)/(hi-lo), 0) {
		return Type{}, fmt.Errorf("got bins from %v to %v, want finite bounds, the first below the second, with a finite difference and a finite number of bins per unit", lo, hi)
	}
	return Type{kernels.Int64, tensor.Shape{h.bins.N}}, nil
}

func (h histogram) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.Histogram(dev, in[0].Dtype, in[0].Elements(), h.bins), nil
}

func (histogram) Adjoints(b *Backward) []Term {
	return b.None("counts do not change when an element moves a little, and jump when it crosses the edge of a bin")
}
