package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// More equal bytes than 32 bits count.
func TestHistogramBeyond32Bits(t *testing.T) {
	dev := device0(t)
	if testing.Short() {
		t.Skip("4 GiB of bytes")
	}
	const n = 1<<32 + 5
	for v := 2; v <= versions.HistogramVersions; v++ {
		p := testutil.Get[*kernels.Plan](t)(versions.Histogram(dev, kernels.Uint8, v, n, basic.Bins{N: 3, Lo: -1, Hi: 2}))
		timing := testutil.Get[*Timing](t)(Time(0, p, [][]byte{make([]byte, n)}, 1))
		if counts := kernels.Elements[int64](timing.Out); counts[0] != 0 || counts[1] != n || counts[2] != 0 {
			t.Errorf("version %d: got %v, want 0, %d, 0", v, counts, n)
		}
	}
}

// More bins than shared memory is said to hold: elements are sorted by range of bins, whatever their distribution, and counted as by the Go bodies.
func TestHistogramManyBins(t *testing.T) {
	dev := device0(t)
	dev.SharedOptin = 1 << 10
	r := rand.New(rand.NewPCG(17, 4))
	for _, n := range []int64{1 << 21, 1<<21 + 5003} {
		for _, power := range []float64{1, 9} { // of a number from 0 to 1: even, and most of them near 0
			x := make([]float64, n)
			for i := range x {
				x[i] = math.Pow(r.Float64(), power)*1e6 - 1000 // some below the bins
			}
			compareHistogram(t, dev, kernels.Int32, convert(x, func(e float64) int32 { return int32(e) }))
			compareHistogram(t, dev, kernels.Int64, convert(x, func(e float64) int64 { return int64(e) }))
			x[n/2], x[n-1], x[7] = math.NaN(), math.Inf(1), 1e6
			compareHistogram(t, dev, kernels.Float32, convert(x, func(e float64) float32 { return float32(e) }))
			compareHistogram(t, dev, kernels.Float64, x)
		}
	}
	if testing.Short() {
		return
	}
	x := make([]int32, 1<<26+12_345) // more than are sorted at a time
	for i := range x {
		x[i] = r.Int32N(1_000_000)
	}
	compareHistogram(t, dev, kernels.Int32, x)
}

// Two counters of 16 bits in a word: few blocks, so that each counts many elements of one bin, and an odd number of bins that
// fills shared memory.
func TestHistogramHalves(t *testing.T) {
	dev := device0(t)
	dev.SMs = 3
	r := rand.New(rand.NewPCG(17, 5))
	const n = 2_200_007
	x := make([]float64, n)
	for i := range x {
		switch r.IntN(3) {
		case 0:
			x[i] = 500.5 // shares a word with the next bin
		case 1:
			x[i] = 501.5
		default:
			x[i] = r.Float64()*1.1*98_765 - 1000
		}
	}
	x[n/2], x[n-1], x[7] = math.NaN(), math.Inf(1), 98_765
	bins := basic.Bins{N: 98_765, Lo: 0, Hi: 98_765}
	compareBins(t, dev, kernels.Float32, convert(x, func(e float64) float32 { return float32(e) }), bins, 3)
	compareBins(t, dev, kernels.Float64, x, bins, 3)
	x[n/2], x[n-1] = 98_764, -1
	compareBins(t, dev, kernels.Int32, convert(x, func(e float64) int32 { return int32(e) }), bins, 3)
	compareBins(t, dev, kernels.Int64, convert(x, func(e float64) int64 { return int64(e) }), bins, 3)
}

// As few elements as are counted in shared memory: racecheck, which leaves out larger cases of the op, follows these.
func TestHistogramColumns(t *testing.T) {
	dev, r := device0(t), rand.New(rand.NewPCG(17, 6))
	if dev.Major != 9 {
		t.Skipf("%s counts others there", dev.Name)
	}
	const n = 3<<12 + 5
	x := make([]float64, n)
	for _, bins := range []int{7, 1000} {
		for i := range x {
			x[i] = r.Float64() * 1.1 * float64(bins)
		}
		of := basic.Bins{N: bins, Lo: 0, Hi: float64(bins)}
		compareBins(t, dev, kernels.Float32, convert(x, func(e float64) float32 { return float32(e) }), of, 2)
		compareBins(t, dev, kernels.Float64, x, of, 2)
		compareBins(t, dev, kernels.Int32, convert(x, func(e float64) int32 { return int32(e) }), of, 2)
		compareBins(t, dev, kernels.Int64, convert(x, func(e float64) int64 { return int64(e) }), of, 2)
	}
}

func convert[T any](x []float64, to func(float64) T) (y []T) {
	for _, e := range x {
		y = append(y, to(e))
	}
	return y
}

func compareHistogram[T kernels.Element](t *testing.T, dev kernels.Device, dt kernels.Dtype, x []T) {
	t.Helper()
	compareBins(t, dev, dt, x, basic.Bins{N: 1500, Lo: 0, Hi: 999_000}, 1+2*int(kernels.CeilDiv(int64(len(x)), 1<<26)))
}

func compareBins[T kernels.Element](t *testing.T, dev kernels.Device, dt kernels.Dtype, x []T, bins basic.Bins, launches int) {
	t.Helper()
	n := int64(len(x))
	p := basic.Histogram(dev, dt, n, bins)
	if len(p.Launches) != launches {
		t.Fatalf("got %d launches, want %d, one that clears, then those that count: %v", len(p.Launches), launches, p)
	}
	got, want := make([]int64, bins.N), make([]int64, bins.N)
	if err := Run(0, p, [][]byte{kernels.Bytes(x)}, kernels.Bytes(got)); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	if err := basic.Histogram(kernels.HostDevice(), dt, n, bins).Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(want), nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v: counts differ from those of the host", p)
	}
}
