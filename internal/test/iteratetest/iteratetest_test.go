package iteratetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// By the definition of the iteration, in plain loops, the values are those of After, and one
// that was late once shows to the end.
func TestRotation(t *testing.T) {
	seed := testutil.Seed(t)
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{1, 2, 3, 12, 64, 96} {
		for _, transposed := range []bool{false, true} {
			o := New(r, n, transposed)
			const steps = 20
			if got, want := iterate(o, transposed, steps, -1, 0), o.After(steps); !slices.Equal(got, want) {
				t.Errorf("n = %d, transposed %v: got %v, want %v", n, transposed, got, want)
			}
			if n < 64 {
				continue // an old element may well be equal to the new one
			}
			for range 20 {
				half, row := 2+r.IntN(2*steps-2), r.IntN(n)
				if slices.Equal(iterate(o, transposed, steps, half, row), o.After(steps)) {
					t.Errorf("n = %d, transposed %v: nothing shows that row %d was not computed in half step %d of %d", n, transposed, row, half, 2*steps)
				}
			}
		}
	}
}

// iterate runs the definition; in half step late a row keeps its old value.
func iterate(o *Rotation, transposed bool, steps, late, row int) []float32 {
	n := len(o.X)
	in, out := make([]float64, n), make([]float64, n)
	for i, v := range o.X {
		in[i] = float64(v)
	}
	for half := range 2 * steps {
		w := [2][]float32{o.W1, o.W2}[half%2]
		for j := range n {
			if half == late && j == row {
				continue
			}
			out[j] = 0
			for k := range n {
				if transposed {
					out[j] += float64(w[k*n+j]) * in[k]
				} else {
					out[j] += float64(w[j*n+k]) * in[k]
				}
			}
		}
		in, out = out, in
	}
	x := make([]float32, n)
	for i, v := range in {
		x[i] = float32(v)
	}
	return x
}
