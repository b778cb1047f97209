package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// Many rows, by blocks of few threads, and few rows of columns that fill vectors and that do not, as by the Go bodies.
func TestSumsOfManyRows(t *testing.T) {
	for _, c := range []struct {
		shape []int
		axis  int
	}{{[]int{40, 2500}, 1}, {[]int{33, 4101}, 1}, {[]int{4, 3000}, 0}, {[]int{7, 3, 3001}, 1}, {[]int{15, 2804}, 0}} {
		compareSum[float32](t, f32, c.shape, c.axis, 2e-7)
		compareSum[float64](t, f64, c.shape, c.axis, 1e-14)
	}
}

func compareSum[T float32 | float64](t *testing.T, dt kernels.Dtype, shape []int, axis int, tolerance float64) {
	t.Helper()
	dev := device0(t)
	dev.SMs = 1
	r := rand.New(rand.NewPCG(uint64(shape[0]), 7))
	x := make([]T, kernels.Count(shape))
	for i := range x {
		x[i] = T(r.Float64())
	}
	plan := func(dev kernels.Device) *kernels.Plan { return reduce.Sum(dev, dt, shape, []int{axis}, true) }
	p := plan(dev)
	got, want := make([]T, p.Out/dt.Size()), make([]T, p.Out/dt.Size())
	testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(x)}, kernels.Bytes(got)))
	testutil.Do(t, plan(kernels.HostDevice()).Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(want), nil))
	compareNearly(t, p, got, want, tolerance)
}

// compareNearly compares elements, up to a tolerance relative to the largest one.
func compareNearly[T float32 | float64](t *testing.T, p *kernels.Plan, got, want []T, tolerance float64) {
	t.Helper()
	largest := 0.0
	for _, e := range want {
		largest = max(largest, math.Abs(float64(e)))
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= tolerance*largest) {
			t.Fatalf("%v: element %d: got %v, want %v, the largest is %v", p, i, got[i], want[i], largest)
		}
	}
}
