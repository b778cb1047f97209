package reduce

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// The Go bodies of all candidates of a drawn sum add up every term once: of whole numbers, whose sums are exact.
func TestCandidates(t *testing.T) {
	dev := kernels.Device{Name: "H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Bandwidth: 4.8e12, FMAs: 33e12}
	r := rand.New(rand.NewPCG(testutil.Seed(t), 36))
	for range 60 {
		outer, terms, inner := 1+r.Int64N(3), 1+r.Int64N(5000), 1+r.Int64N(9)*r.Int64N(2)
		if r.IntN(2) == 0 {
			outer = 1
		}
		if r.IntN(3) == 0 {
			terms, inner = 1+r.Int64N(100), 1+r.Int64N(600)
		}
		checkCandidates[float32](t, r, dev, kernels.Float32, outer, terms, inner)
		checkCandidates[float64](t, r, dev, kernels.Float64, outer, terms, inner)
	}
}

func checkCandidates[T kernels.Float](t *testing.T, r *rand.Rand, dev kernels.Device, dt kernels.Dtype, outer, terms, inner int64) {
	in, out := make([]byte, outer*terms*inner*dt.Size()), make([]byte, outer*inner*dt.Size())
	want := make([]T, outer*inner)
	for i, x := 0, kernels.Elements[T](in); i < len(x); i++ {
		x[i] = T(r.IntN(100))
		want[int64(i)/(terms*inner)*inner+int64(i)%inner] += x[i]
	}
	names, _, plans := Candidates(dev, dt, outer, terms, inner)
	for i, p := range plans {
		testutil.Do(t, p.Run([][]byte{in}, out, nil))
		if got := kernels.Elements[T](out); !slices.Equal(got, want) {
			t.Errorf("%v, %d x %d x %d, %s: got %v, want %v", dt, outer, terms, inner, names[i], got, want)
		}
	}
}
