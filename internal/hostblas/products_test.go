package hostblas_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/hostblas/hostblastest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// product is a random product of matrices.
type product[T kernels.Float] struct{ kernels.Matrices[T] }

// newProduct draws one, in rows with a gap that holds NaN; every 100th of special numbers is
// NaN, infinite, 0 or denormal.
func newProduct[T kernels.Float](r *rand.Rand, m, n, k int64, transA, transB, special bool) product[T] {
	x := kernels.Matrices[T]{TransA: transA, TransB: transB, M: m, N: n, K: k}
	draw := func(rows, cols int64) ([]T, int64) {
		ld := cols + r.Int64N(5)
		all := make([]T, rows*ld)
		for row := range rows {
			line := all[row*ld : (row+1)*ld]
			for i := range line {
				if line[i] = T(math.NaN()); int64(i) < cols {
					line[i] = T(r.Float64()*2 - 1)
				}
				if special && r.IntN(100) == 0 {
					line[i] = []T{T(math.NaN()), T(math.Inf(1)), T(math.Inf(-1)), 0, 0, math.SmallestNonzeroFloat32}[r.IntN(6)]
				}
			}
		}
		return all, ld
	}
	if x.A, x.LDA = draw(m, k); transA {
		x.A, x.LDA = draw(k, m)
	}
	if x.B, x.LDB = draw(k, n); transB {
		x.B, x.LDB = draw(n, k)
	}
	return product[T]{x}
}

// reference returns the product in float64, and the sums of the sizes of terms.
func (p product[T]) reference() (want, magnitude []float64) {
	rows := func(x []T, n, ld int64, trans bool) []float64 { // n rows of K terms
		out := make([]float64, 0, n*p.K)
		for i := range n {
			for l := range p.K {
				at := i*ld + l
				if trans {
					at = l*ld + i
				}
				out = append(out, float64(x[at]))
			}
		}
		return out
	}
	a, b := rows(p.A, p.M, p.LDA, p.TransA), rows(p.B, p.N, p.LDB, !p.TransB)
	for i := range p.M {
		for j := range p.N {
			var sum, size float64
			other := b[j*p.K : (j+1)*p.K]
			for l, v := range a[i*p.K : (i+1)*p.K] {
				v *= other[l]
				sum += v
				size += math.Abs(v)
			}
			want, magnitude = append(want, sum), append(magnitude, size)
		}
	}
	return want, magnitude
}

// run computes the product with operands a number of elements behind a multiple of 64
// bytes, the result poisoned and guarded. It returns false where the library has no such
// product.
func (p product[T]) run(t *testing.T, l *hostblas.Library, places int) ([]T, bool) {
	t.Helper()
	const guard = -7
	place := func(x []T) []T {
		all := make([]T, len(x)+places+64)
		skip := int(-uintptr(unsafe.Pointer(&all[0]))%64/unsafe.Sizeof(all[0])) + places
		copy(all[skip:], x)
		return all[skip : skip+len(x) : skip+len(x)]
	}
	x := p.Matrices
	x.A, x.B = place(x.A), place(x.B)
	out := place(make([]T, 8+x.M*x.N+8))
	for i := range out {
		if out[i] = guard; i >= 8 && i < len(out)-8 {
			out[i] = T(math.NaN())
		}
	}
	x.C = out[8 : len(out)-8]
	done := false
	switch x := any(x).(type) {
	case kernels.Matrices[float32]:
		done = l.Multiply32(x)
	case kernels.Matrices[float64]:
		done = l.Multiply64(x)
	}
	for i, v := range out {
		if (i < 8 || i >= len(out)-8) && v != guard {
			t.Fatalf("%s: element %d, outside the result, was written", p, i-8)
		}
	}
	return x.C, done
}

func (p product[T]) String() string {
	return fmt.Sprintf("%dx%d * %dx%d of %T, transposed %v and %v", p.M, p.K, p.K, p.N, p.A, p.TransA, p.TransB)
}

// check compares a result with the reference: each term costs a rounding of T at most,
// and another one of the reference.
func (p product[T]) check(t *testing.T, got []T, want, magnitude []float64) {
	t.Helper()
	epsilon := 0x1p-24
	if unsafe.Sizeof(T(0)) == 8 {
		epsilon = 0x1p-52
	}
	for i, want := range want {
		v := float64(got[i])
		if math.IsNaN(want) != math.IsNaN(v) || math.IsInf(want, 0) && v != want ||
			!math.IsNaN(want) && !math.IsInf(want, 0) && !(math.Abs(v-want) <= float64(p.K+1)*epsilon*magnitude[i]+math.SmallestNonzeroFloat32) {
			t.Fatalf("%s: element %d is %v, want %v", p, i, v, want)
		}
	}
}

// sizes are of one and of several tiles or strips, with one row, column or term.
var sizes = [][3]int64{{40, 33, 25}, {1, 40, 2000}, {40, 2, 300}, {70, 70, 1}, {513, 1, 700}, {4099, 1, 70}, {3, 1, 4000}}

// Products by a library are right, NaN and Inf among the operands or not, and stay inside
// the result.
func TestProducts(t *testing.T) {
	r := testutil.Random(t)
	single, double := testProducts[float32](r), testProducts[float64](r)
	for _, l := range hostblastest.Libraries(t) {
		t.Run(l.String(), func(t *testing.T) {
			for _, test := range slices.Concat(single, double) {
				test(t, l)
			}
		})
	}
}

// testProducts returns tests of products of a type: of some sizes in all forms, and of tiles
// in one.
func testProducts[T kernels.Float](r *rand.Rand) (tests []func(*testing.T, *hostblas.Library)) {
	add := func(m, n, k int64, form int, special bool) {
		p := newProduct[T](r, m, n, k, form >= 2, form%2 == 1, special)
		want, magnitude := p.reference()
		tests = append(tests, func(t *testing.T, l *hostblas.Library) {
			got, ok := p.run(t, l, r.IntN(16))
			switch {
			case ok:
				p.check(t, got, want, magnitude)
			case n > 1:
				t.Fatalf("%s: the library has no such product", p)
			default: // a library's products with a vector stay with gonum where they break a promise, as on some processors
				t.Logf("%s: the library has no such product", p)
			}
		})
	}
	for form := range 4 {
		for _, s := range append(sizes, [3]int64{16 + r.Int64N(100), 16 + r.Int64N(100), 16 + r.Int64N(100)}) {
			add(s[0], s[1], s[2], form, r.IntN(2) == 0)
		}
	}
	add(300, 530, 120, r.IntN(4), false)
	add(260, 1030, 65, r.IntN(4), true)
	return tests
}

// A product has the same bits in every run, on any number of cores, at any address of its
// operands and during any concurrent work.
func TestSameBits(t *testing.T) {
	r := testutil.Random(t)
	single, double := testSameBits[float32](r), testSameBits[float64](r)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, l := range hostblastest.Libraries(t) {
		t.Run(l.String(), func(t *testing.T) {
			for _, test := range slices.Concat(single, double) {
				test(t, l)
			}
		})
	}
}

// testSameBits returns tests of the bits of products of a type.
func testSameBits[T kernels.Float](r *rand.Rand) (tests []func(*testing.T, *hostblas.Library)) {
	add := func(m, n, k int64, form int) {
		p := newProduct[T](r, m, n, k, form >= 2, form%2 == 1, false)
		tests = append(tests, func(t *testing.T, l *hostblas.Library) {
			want, ok := p.run(t, l, 0)
			if !ok && n == 1 {
				t.Logf("%s: the library has no such product", p)
				return
			}
			same := func(how string, places int) {
				t.Helper()
				if got, _ := p.run(t, l, places); !slices.Equal(got, want) {
					t.Errorf("%s gave other bits %s", p, how)
				}
			}
			for places := 1; places < 16; places++ {
				same(fmt.Sprintf("%d elements further", places), places)
			}
			for _, cores := range []int{1, 2, 7} {
				runtime.GOMAXPROCS(cores)
				same(fmt.Sprintf("on %d cores", cores), 0)
			}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() { same("beside others", i) })
			}
			wg.Wait()
		})
	}
	for form := range 4 {
		add(16+r.Int64N(50), 16+r.Int64N(50), 64+r.Int64N(99), form)
		add(32+r.Int64N(300), 1, 64+r.Int64N(500), form)
	}
	add(257, 530, 124, r.IntN(4)) // two tiles
	add(2049, 1, 257, 0)          // several strips, of rows and of columns
	add(2049, 1, 257, 2)
	return tests
}
