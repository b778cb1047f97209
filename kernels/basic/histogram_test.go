package basic_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// Values at and around the edges of cells, of the range and of the types fall where
// the definition puts them.
func TestHistogramEdges(t *testing.T) {
	below := math.Nextafter(1, 0)
	for _, c := range []struct {
		bins basic.Bins
		x    []float64
		want []int64
	}{
		{basic.Bins{N: 4, Lo: 0, Hi: 1}, []float64{0, below, 1, .25, .5, .75, math.Nextafter(.25, 0), math.Copysign(0, -1)}, []int64{3, 1, 1, 2}},
		{basic.Bins{N: 2, Lo: -1, Hi: 1}, []float64{-1, 0, math.Nextafter(-1, -2), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64}, []int64{1, 1}},
		{basic.Bins{N: 3, Lo: 0, Hi: 0x3p-1022}, []float64{0, 0x1p-1022, 0x1.8p-1022, 0x2p-1022, 0x1p-1074}, []int64{2, 2, 1}},
		{basic.Bins{N: 1, Lo: -math.MaxFloat64 / 2, Hi: math.MaxFloat64 / 2}, []float64{0, 1e300, -1e300}, []int64{3}},
		{basic.Bins{N: 10, Lo: 0, Hi: .3}, []float64{math.Nextafter(.3, 0)}, []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}, // the product may round up to 10
	} {
		p := basic.Histogram(kernels.HostDevice(), kernels.Float64, int64(len(c.x)), c.bins)
		got := make([]int64, c.bins.N)
		if err := p.Run([][]byte{kernels.Bytes(c.x)}, kernels.Bytes(got), nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v of %v: got %v, want %v", c.bins, c.x, got, c.want)
		}
	}
}
