package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// indexCase is a shape with indices along an axis.
type indexCase struct {
	shape []int
	axis  int
	count int
	draw  func(r *rand.Rand, extent int) int64
}

func anyIndex(r *rand.Rand, extent int) int64 { return int64(r.IntN(extent)) }

// indexCases are shapes of rank 1 to 5; lists that are empty, of one index, longer than a
// block holds; indices all equal, few, and outside.
func indexCases() []indexCase {
	equal := func(r *rand.Rand, extent int) int64 { return int64(extent - 1) }
	few := func(r *rand.Rand, extent int) int64 { return int64(r.IntN(min(extent, 3))) }
	outside := func(r *rand.Rand, extent int) int64 {
		return []int64{-1, int64(extent), math.MinInt64, math.MaxInt64, anyIndex(r, extent)}[r.IntN(5)]
	}
	return []indexCase{
		{[]int{7}, 0, 5, anyIndex}, {[]int{1}, 0, 1, anyIndex}, {[]int{1000}, 0, 3000, anyIndex}, {[]int{5}, 0, 0, anyIndex},
		{[]int{10, 4}, 0, 6, anyIndex}, {[]int{10, 3}, 1, 8, anyIndex}, {[]int{3, 5, 1}, 1, 4, anyIndex}, {[]int{6, 0}, 0, 3, anyIndex},
		{[]int{2, 9, 3, 5}, 1, 11, anyIndex}, {[]int{2, 3, 2, 5, 7}, 3, 9, few}, {[]int{3, 2, 2, 2, 6}, 4, 5, anyIndex},
		{[]int{1300, 9}, 0, 700, anyIndex}, {[]int{1030, 130}, 0, 40, outside}, {[]int{20, 300}, 0, 5000, equal}, {[]int{4, 33}, 0, 2500, few},
		{[]int{500, 7, 2}, 1, 3, outside}, {[]int{3, 600, 17}, 1, 2100, anyIndex}, {[]int{40, 700}, 1, 1025, outside},
		{[]int{3000, 5}, 0, 20_000, anyIndex}, {[]int{2, 700, 3}, 1, 16_400, outside}, {[]int{100, 40}, 0, 1 << 14, equal},
		{[]int{1}, 0, 40_000, equal}, {[]int{7}, 0, 9_001, anyIndex}, {[]int{2, 5, 3}, 1, 4500, outside}, {[]int{90, 13}, 0, 6000, anyIndex},
	}
}

// A gather returns the elements at indices, a scatter sums those of equal indices in their
// order, each sum rounded: to the bit, on the host and on a GPU, whatever the tiles.
func TestIndices(t *testing.T) {
	run := map[string]func(p *kernels.Plan, inputs [][]byte, out []byte) error{
		"host": func(p *kernels.Plan, inputs [][]byte, out []byte) error {
			return runGuarded(new(exec.HostBackend), p, inputs, out)
		},
		"GPU": func(p *kernels.Plan, inputs [][]byte, out []byte) error { return Run(0, p, inputs, out) },
	}
	for name, run := range run {
		t.Run(name, func(t *testing.T) {
			devices := []kernels.Device{kernels.HostDevice(), {Major: 9, SMs: 1, SharedOptin: 227 << 10}, {Major: 9, SMs: 132, SharedOptin: 227 << 10}}
			if name == "GPU" {
				device0(t)
				devices = devices[1:]
			}
			r := testutil.Random(t)
			for i, c := range indexCases() {
				for k, dev := range devices {
					if testing.Short() && k != i%len(devices) {
						continue // a checker follows every access
					}
					t.Run(fmt.Sprintf("%v,%d,%d/%d", c.shape, c.axis, c.count, dev.SMs), func(t *testing.T) { c.check(t, r, dev, run, name == "host") })
				}
			}
		})
	}
}

func (c indexCase) check(t *testing.T, r *rand.Rand, dev kernels.Device, run func(*kernels.Plan, [][]byte, []byte) error, onHost bool) {
	indices := make([]int64, c.count)
	for i := range indices {
		indices[i] = c.draw(r, c.shape[c.axis])
	}
	part := append([]int(nil), c.shape...)
	part[c.axis] = c.count
	types := []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Int64, kernels.Int32, kernels.Bool}
	if testing.Short() || onHost { // under sanitizers, and of Go bodies, which are one generic function
		types = []kernels.Dtype{types[r.IntN(2)], types[2+r.IntN(3)]}
	}
	for _, dt := range types {
		x := drawn(r, dt, kernels.Count(c.shape))
		p := testutil.Get[*kernels.Plan](t)(basic.Gather(dev, dt, c.shape, c.axis, int64(c.count)))
		compare(t, p, run, dt, c.gathered(indices, x), exprtest.Pack(dt, x), kernels.Bytes(indices))
		if dt.IsFloat() {
			g := drawn(r, dt, kernels.Count(part))
			p := testutil.Get[*kernels.Plan](t)(basic.Scatter(dev, dt, c.shape, c.axis, int64(c.count)))
			compare(t, p, run, dt, c.scattered(dt, indices, g), exprtest.Pack(dt, g), kernels.Bytes(indices))
		}
	}
}

// compare runs a plan and compares its output with the reference, bit by bit.
func compare(t *testing.T, p *kernels.Plan, run func(*kernels.Plan, [][]byte, []byte) error, dt kernels.Dtype, want []float64, inputs ...[]byte) {
	t.Helper()
	out := exprtest.Memory(p.Out)
	testutil.Do(t, run(p, inputs, out))
	got := exprtest.Unpack(dt, out)
	if len(got) != len(want) {
		t.Fatalf("%s: got %d elements, want %d", p.Op, len(got), len(want))
	}
	for i := range got {
		if !exprtest.Same(got[i], want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", p.Op, i, got[i], want[i])
		}
	}
}

// drawn draws elements, NaN, infinities and zeros of both signs among them.
func drawn(r *rand.Rand, dt kernels.Dtype, n int64) []float64 {
	x := make([]float64, n)
	for i := range x {
		switch v := r.NormFloat64(); {
		case dt == kernels.Bool:
			x[i] = float64(r.IntN(2))
		case !dt.IsFloat():
			x[i] = math.Trunc(1000*v) + 0 // no -0
		case r.IntN(50) == 0:
			x[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}[r.IntN(4)]
		default:
			x[i] = float64(float32(v))
		}
	}
	return x
}

// each calls f with each element of out and, where the index is one of the axis, the element
// that it stands for in a tensor of the indexed extent.
func (c indexCase) each(indices []int64, f func(part, whole int, inside bool)) {
	inner := int(kernels.Count(c.shape[c.axis+1:]))
	extent := c.shape[c.axis]
	for o := range int(kernels.Count(c.shape[:c.axis])) {
		for k, v := range indices {
			inside := v >= 0 && v < int64(extent)
			for i := range inner {
				whole := 0
				if inside {
					whole = (o*extent+int(v))*inner + i
				}
				f((o*c.count+k)*inner+i, whole, inside)
			}
		}
	}
}

func (c indexCase) gathered(indices []int64, x []float64) []float64 {
	out := make([]float64, int(kernels.Count(c.shape[:c.axis]))*c.count*int(kernels.Count(c.shape[c.axis+1:])))
	c.each(indices, func(part, whole int, inside bool) {
		if inside {
			out[part] = x[whole]
		}
	})
	return out
}

// scattered returns the sums of the elements that fall to each place, in order: part by part of the indices, the parts' sums in lanes, and these.
func (c indexCase) scattered(dt kernels.Dtype, indices []int64, g []float64) []float64 {
	n, inner := int(kernels.Count(c.shape)), int(kernels.Count(c.shape[c.axis+1:]))
	add := func(sum *float64, x float64) {
		if *sum += x; dt == kernels.Float32 { // rounded twice, as once: 53 bits are more than 2 * 24 + 1
			*sum = float64(float32(*sum))
		}
	}
	parts := make([][]float64, basic.ScatterParts(kernels.Count(c.shape[:c.axis]), int64(c.shape[c.axis]), int64(inner), int64(c.count)))
	for p := range parts {
		parts[p] = make([]float64, n)
	}
	c.each(indices, func(part, whole int, inside bool) {
		if inside {
			add(&parts[part/inner%c.count%len(parts)][whole], g[part])
		}
	})
	if len(parts) == 1 {
		return parts[0]
	}
	lanes := make([][]float64, basic.ScatterLanes+1)
	for l := range lanes {
		lanes[l] = make([]float64, n)
	}
	for p, sums := range parts {
		for i, x := range sums {
			add(&lanes[p%basic.ScatterLanes][i], x)
		}
	}
	out := lanes[basic.ScatterLanes]
	for _, lane := range lanes[:basic.ScatterLanes] {
		for i, x := range lane {
			add(&out[i], x)
		}
	}
	return out
}

// Sums by parts are for many indices of few rows; the shape alone decides how many parts there are.
func TestScatterParts(t *testing.T) {
	for _, c := range []struct{ outer, rows, inner, count, parts int64 }{
		{1, 1, 1, 4095, 1}, {1, 1, 1, 4096, 64}, {1, 64, 3, 4096, 4}, {1, 65, 1, 4096, 1}, {1, 96, 1, 6144, 4}, {1, 97, 1, 1 << 20, 1}, {1, 3, 9, 1 << 24, 1 << 15}, {1, 5, 1, 0, 1},
		{4, 64, 64, 4096, 4}, {4, 64, 65, 4096, 1},
	} {
		if got := basic.ScatterParts(c.outer, c.rows, c.inner, c.count); got != c.parts {
			t.Errorf("%d indices of %d x %d x %d: got %d parts, want %d", c.count, c.outer, c.rows, c.inner, got, c.parts)
		}
	}
}

// The launches are such as the entry points take.
func TestIndicesLaunches(t *testing.T) {
	var plans []*kernels.Plan
	for _, c := range indexCases() {
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Int64, kernels.Int32, kernels.Bool} {
			dev := kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}
			if plans = append(plans, testutil.Get[*kernels.Plan](t)(basic.Gather(dev, dt, c.shape, c.axis, int64(c.count)))); dt.IsFloat() {
				plans = append(plans, testutil.Get[*kernels.Plan](t)(basic.Scatter(dev, dt, c.shape, c.axis, int64(c.count))))
			}
		}
	}
	var c kernels.Checker
	for _, p := range plans {
		testutil.Do(t, c.Check(p))
	}
}

// Arguments that do not fit are refused with an error that names them.
func TestIndicesErrors(t *testing.T) {
	dev := kernels.HostDevice()
	for want, plan := range map[string]func() (*kernels.Plan, error){
		"got axis 2 of shape":  func() (*kernels.Plan, error) { return basic.Gather(dev, kernels.Float32, []int{2, 3}, 2, 4) },
		"got axis -1 of shape": func() (*kernels.Plan, error) { return basic.Scatter(dev, kernels.Float32, []int{2, 3}, -1, 4) },
		"got -4 indices":       func() (*kernels.Plan, error) { return basic.Gather(dev, kernels.Float32, []int{2, 3}, 0, -4) },
		"want float32 or":      func() (*kernels.Plan, error) { return basic.Scatter(dev, kernels.Int64, []int{2, 3}, 0, 4) },
	} {
		if p, err := plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
}
