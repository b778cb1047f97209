package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
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

// All candidates of sums of drawn shapes, as a sum in float64.
func TestSumCandidates(t *testing.T) {
	dev, r := device0(t), random(t)
	_, err := onGPU(0, "sums", func(g *exec.GPUBackend) (any, error) {
		draws := 8
		if testing.Short() {
			draws = 2
		}
		for range draws {
			outer, rows, inner := 1+r.Int64N(4), 1+r.Int64N(600), 1+r.Int64N(40)
			switch r.IntN(5) {
			case 0:
				rows, inner = 1+r.Int64N(20000), 1
			case 3:
				inner = 1 + r.Int64N(1500) // rows of all alignments
			case 1:
				inner = 4 * (1 + r.Int64N(100))
			case 2:
				outer = 1
			}
			compareCandidates[float32](t, g, r, dev, f32, outer, rows, inner, 3e-7)
			compareCandidates[float64](t, g, r, dev, f64, outer, rows, inner, 1e-12)
		}
		return nil, nil
	})
	testutil.Do(t, err)
}

func compareCandidates[T float32 | float64](t *testing.T, g *exec.GPUBackend, r *rand.Rand, dev kernels.Device, dt kernels.Dtype, outer, rows, inner int64, tolerance float64) {
	t.Helper()
	x, want, got := make([]T, outer*rows*inner), make([]float64, outer*inner), make([]T, outer*inner)
	for i := range x {
		x[i] = T(r.Float64())
		want[int64(i)/(rows*inner)*inner+int64(i)%inner] += float64(x[i])
	}
	names, _, plans := reduce.Candidates(dev, dt, outer, rows, inner)
	for i, p := range plans {
		testutil.Do(t, runGuarded(g, p, [][]byte{kernels.Bytes(x)}, kernels.Bytes(got)))
		for k, w := range want {
			if d := math.Abs(float64(got[k]) - w); !(d <= tolerance*w) {
				t.Fatalf("%v %d x %d x %d, %s: element %d: got %v, want %v\n%v", dt, outer, rows, inner, names[i], k, got[k], w, p)
			}
		}
	}
}
