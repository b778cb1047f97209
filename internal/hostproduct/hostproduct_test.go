package hostproduct

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// drawn returns finite numbers of many magnitudes, zeros and subnormals among them.
func drawn(r *rand.Rand, n int64) []float32 {
	x := make([]float32, n)
	for i := range x {
		if r.IntN(8) > 0 {
			x[i] = float32(math.Ldexp(r.Float64()-0.5, r.IntN(20)*r.IntN(8)-80))
		}
	}
	return x
}

// A product has the bits of gonum's, and nothing beside C is written, whether or not A has NaN and Inf.
func TestMultiply(t *testing.T) {
	if !available {
		t.Skip("SKIPPED, NOT TESTED: this processor has no AVX")
	}
	r := testutil.Random(t)
	for draw := range 200 {
		m, n, k := tileRows+r.Int64N(150), tileCols+r.Int64N(300), 1+r.Int64N(20)
		if draw%8 == 0 {
			k += r.Int64N(3 * depth)
		}
		transA := draw%2 == 0
		rows, cols, flag := m, k, blas.NoTrans
		if transA {
			rows, cols, flag = k, m, blas.Trans
		}
		lda, ldb := cols+r.Int64N(5), n+r.Int64N(5)
		a, b := drawn(r, (rows-1)*lda+cols), drawn(r, (k-1)*ldb+n)
		if draw%3 == 0 {
			for _, bits := range []uint32{0x7fc12345, 0xffc54321, 0x7f800000, 0xff800000, 0x80000000} {
				a[r.IntN(len(a))] = math.Float32frombits(bits)
			}
		}
		got, want := drawn(r, m*n+9), make([]float32, m*n)
		rest := append([]float32(nil), got[m*n:]...)
		if !Multiply(transA, m, n, k, a, lda, b, ldb, got) {
			t.Fatalf("%d x %d x %d is left to gonum", m, n, k)
		}
		gonum.Implementation{}.Sgemm(flag, blas.NoTrans, int(m), int(n), int(k), 1, a, int(lda), b, int(ldb), 0, want, int(n))
		for i, v := range append(want, rest...) {
			if math.Float32bits(got[i]) != math.Float32bits(v) {
				t.Fatalf("%d x %d x %d, A transposed %v: element %d is %v, want %v", m, n, k, transA, i, got[i], v)
			}
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const m, n, k = 1024, 768, 768
	x, y, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
	for _, list := range [][]float32{x, y} {
		for i := range list {
			list[i] = r.Float32() - 0.5
		}
	}
	b.Run("own", func(b *testing.B) {
		for b.Loop() {
			Multiply(false, m, n, k, x, k, y, n, c)
		}
	})
	b.Run("transposed", func(b *testing.B) {
		for b.Loop() {
			Multiply(true, m, n, k, x, m, y, n, c)
		}
	})
	b.Run("gonum", func(b *testing.B) {
		for b.Loop() {
			gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, x, k, y, n, 0, c, n)
		}
	})
}
