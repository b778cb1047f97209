package hostproduct

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// drawn returns finite numbers of many magnitudes, zeros and subnormals among them.
func drawn[T float32 | float64](r *rand.Rand, n int64) []T {
	x := make([]T, n)
	for i := range x {
		if r.IntN(8) > 0 {
			x[i] = T(math.Ldexp(r.Float64()-0.5, (r.IntN(20)*r.IntN(8)-66)*int(unsafe.Sizeof(x[0]))/4))
		}
	}
	return x
}

// A product has the bits of gonum's, and nothing beside C is written, whether or not A has NaN and Inf.
func TestMultiply(t *testing.T) {
	if !available {
		t.Skip("SKIPPED, NOT TESTED: this processor has no AVX")
	}
	t.Run("float32", func(t *testing.T) { testMultiply(t, gonum.Implementation{}.Sgemm) })
	t.Run("float64", func(t *testing.T) { testMultiply(t, gonum.Implementation{}.Dgemm) })
}

func testMultiply[T float32 | float64](t *testing.T, gemm func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)) {
	r := testutil.Random(t)
	for draw := range 200 {
		m, n, k := tileRows+r.Int64N(150), 16+r.Int64N(300), 1+r.Int64N(20)
		if draw%8 == 0 {
			k += r.Int64N(3 * depth)
		}
		transA := draw%2 == 0
		rows, cols, flag := m, k, blas.NoTrans
		if transA {
			rows, cols, flag = k, m, blas.Trans
		}
		lda, ldb := cols+r.Int64N(5), n+r.Int64N(5)
		a, b := drawn[T](r, (rows-1)*lda+cols), drawn[T](r, (k-1)*ldb+n)
		if draw%3 == 0 {
			for _, bits := range []uint32{0x7fc12345, 0xffc54321, 0x7f800000, 0xff800000, 0x80000000} {
				a[r.IntN(len(a))] = T(math.Float32frombits(bits))
			}
		}
		got, want := drawn[T](r, m*n+9), make([]T, m*n)
		rest := slices.Clone(got[m*n:])
		if !Multiply(transA, m, n, k, a, lda, b, ldb, got) {
			t.Fatalf("%d x %d x %d is left to gonum", m, n, k)
		}
		gemm(flag, blas.NoTrans, int(m), int(n), int(k), 1, a, int(lda), b, int(ldb), 0, want, int(n))
		for i, v := range append(want, rest...) {
			if math.Float64bits(float64(got[i])) != math.Float64bits(float64(v)) {
				t.Fatalf("%d x %d x %d, A transposed %v: element %d is %v, want %v", m, n, k, transA, i, got[i], v)
			}
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	b.Run("float32", func(b *testing.B) { benchmarkMultiply(b, gonum.Implementation{}.Sgemm) })
	b.Run("float64", func(b *testing.B) { benchmarkMultiply(b, gonum.Implementation{}.Dgemm) })
}

func benchmarkMultiply[T float32 | float64](b *testing.B, gemm func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)) {
	const m, n, k = 1024, 768, 768
	r, x, y, c := rand.New(rand.NewPCG(1, 2)), make([]T, m*k), make([]T, k*n), make([]T, m*n)
	for _, list := range [][]T{x, y} {
		for i := range list {
			list[i] = T(r.Float64() - 0.5)
		}
	}
	for name, multiply := range map[string]func(){
		"plain":      func() { Multiply(false, m, n, k, x, k, y, n, c) },
		"transposed": func() { Multiply(true, m, n, k, x, m, y, n, c) },
		"gonum":      func() { gemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, x, k, y, n, 0, c, n) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				multiply()
			}
		})
	}
}
