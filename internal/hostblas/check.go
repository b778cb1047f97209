package hostblas

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// check returns an error if a library's products of matrices break a promise of the package. If
// only the products with a vector are not, these stay with gonum.
func (l *Library) check() error {
	if err := checkProducts(matrices, func(x kernels.Matrices[float32]) { gemm(l, l.single.gemm, x, 0, 0, x.M, x.N) }); err != nil {
		return fmt.Errorf("sgemm: %w", err)
	}
	if err := checkProducts(matrices, func(x kernels.Matrices[float64]) { gemm(l, l.double.gemm, x, 0, 0, x.M, x.N) }); err != nil {
		return fmt.Errorf("dgemm: %w", err)
	}
	single := func(x kernels.Matrices[float32]) { gemv(l, l.single.gemv, x, 0, x.M) }
	double := func(x kernels.Matrices[float64]) { gemv(l, l.double.gemv, x, 0, x.M) }
	l.single.rows, l.single.columns = checkProducts(rows, single) == nil, checkProducts(columns, single) == nil
	l.double.rows, l.double.columns = checkProducts(rows, double) == nil, checkProducts(columns, double) == nil
	return nil
}

// A form is which operands are transposed, and whether B is a vector.
type form struct{ transA, transB, vector bool }

var (
	matrices = []form{{}, {transB: true}, {transA: true}, {transA: true, transB: true}}
	rows     = []form{{vector: true}}
	columns  = []form{{transA: true, vector: true}}
)

// checkProducts returns an error if a function does not compute products of these forms as
// promised.
func checkProducts[T kernels.Float](forms []form, multiply func(kernels.Matrices[T])) error {
	for _, f := range forms {
		c := checker[T]{f, multiply, new(uint32)}
		for _, test := range []struct {
			of  string
			run func() error
		}{
			{"integers", func() error { return c.exactly(1, false) }},
			{"NaN and Inf", func() error { return c.exactly(1, true) }},
			{"rounding", c.rounds},
			{"denormal numbers", func() error { return c.exactly(smallest[T](), false) }},
			{"operands at several places", c.repeats},
			{"calls from several threads", c.sharesTime},
			{"matrices beyond those of caches", c.large},
		} {
			if err := test.run(); err != nil {
				return fmt.Errorf("%s, transposed %v and %v: %w", test.of, f.transA, f.transB, err)
			}
		}
	}
	return nil
}

// smallest is the least positive number of a type.
func smallest[T kernels.Float]() T {
	if unsafe.Sizeof(T(0)) == 4 {
		return math.SmallestNonzeroFloat32
	}
	return T(math.Float64frombits(1))
}

// checker checks a function of products of a form.
type checker[T kernels.Float] struct {
	form
	multiply func(kernels.Matrices[T])
	state    *uint32 // number of drawn numbers
}

// operands returns matrices of numbers drawn by next, in rows with gaps that hold NaN.
func (c checker[T]) operands(m, n, k int64, next func() T) kernels.Matrices[T] {
	if c.vector {
		n = 1
	}
	matrix := func(rows, cols, ld int64) []T {
		x := make([]T, rows*ld)
		for row := range rows {
			line := x[row*ld : (row+1)*ld]
			for i := range line[:cols] {
				line[i] = next()
			}
			fill(line[cols:], T(math.NaN()))
		}
		return x
	}
	x := kernels.Matrices[T]{TransA: c.transA, TransB: c.transB, M: m, N: n, K: k, LDA: k + 3, LDB: n + 5}
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if c.transA {
		rowsA, colsA, x.LDA = k, m, m+3
	}
	if c.transB {
		rowsB, colsB, x.LDB = n, k, k+5
	}
	x.A, x.B = matrix(rowsA, colsA, x.LDA), matrix(rowsB, colsB, x.LDB)
	return x
}

// at returns op(A)[i][l] and op(B)[l][j].
func at[T kernels.Float](x kernels.Matrices[T], i, j, l int64) (a, b *T) {
	inA, inB := i*x.LDA+l, l*x.LDB+j
	if x.TransA {
		inA = l*x.LDA + i
	}
	if x.TransB {
		inB = j*x.LDB + l
	}
	return &x.A[inA], &x.B[inB]
}

// run computes C with all operands shifted by a number of elements from a multiple of 64 bytes. C
// is NaN before, and the numbers after it must not change.
func (c checker[T]) run(x kernels.Matrices[T], places int) ([]T, error) {
	const mark, marks = 12345, 8
	place := func(n int, from []T) []T {
		all := make([]T, n+places+64)
		skip := places + int(-uintptr(unsafe.Pointer(&all[0]))%64/unsafe.Sizeof(all[0]))
		copy(all[skip:], from)
		fill(all[skip+n:skip+n+marks], mark)
		return all[skip : skip+n : skip+n+marks]
	}
	x.A, x.B, x.C = place(len(x.A), x.A), place(len(x.B), x.B), place(int(x.M*x.N), nil)
	fill(x.C, T(math.NaN()))
	c.multiply(x)
	for _, v := range x.C[len(x.C):cap(x.C)] {
		if v != mark {
			return nil, fmt.Errorf("it writes beyond the result")
		}
	}
	return x.C, nil
}

func fill[T kernels.Float](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}

// draw returns numbers without a visible pattern, the same in every process.
func (c checker[T]) draw() uint32 {
	*c.state = *c.state*1664525 + 1013904223
	return *c.state >> 8
}

func (c checker[T]) integer() T { return T(int32(c.draw()%17) - 8) }

// number returns a number from -1 to 1 with all bits used, so that products and sums are rounded.
func (c checker[T]) number() T { return T(int32(c.draw())-1<<23) / (1 << 23) * T(0.987654321) }

// exactly checks products of integers times a scale, whose sums are not rounded; if special, some
// are NaN and infinite.
func (c checker[T]) exactly(scale T, special bool) error {
	x := c.operands(19, 21, 40, c.integer)
	if special {
		a, b := at(x, 5, x.N/2, 7)
		*a = T(math.NaN())
		*b = T(math.Inf(1)) // op(A) has zeros in column 7
		a, _ = at(x, 11, 0, 3)
		*a = T(math.Inf(-1))
		a, _ = at(x, 18, 0, 7)
		*a = 0
	}
	for i := range x.A {
		x.A[i] *= scale
	}
	got, err := c.run(x, 0)
	if err != nil {
		return err
	}
	for i := range x.M {
		for j := range x.N {
			want, _ := sum(x, i, j)
			if v := float64(got[i*x.N+j]); v != want && (v == v || want == want) {
				return fmt.Errorf("element (%d, %d) is %v, want %v", i, j, v, want)
			}
		}
	}
	return nil
}

// sum returns an element of C, and the sum of the magnitudes of its terms.
func sum[T kernels.Float](x kernels.Matrices[T], i, j int64) (sum, magnitude float64) {
	for l := range x.K {
		a, b := at(x, i, j, l)
		term := float64(*a) * float64(*b)
		sum, magnitude = sum+term, magnitude+math.Abs(term)
	}
	return sum, magnitude
}

// rounds checks that the error is at most one rounding of the type for each term.
func (c checker[T]) rounds() error {
	x := c.operands(19, 21, 40, c.number)
	got, err := c.run(x, 0)
	if err != nil {
		return err
	}
	epsilon := 0x1p-23
	if unsafe.Sizeof(T(0)) == 8 {
		epsilon = 0x1p-52
	}
	for i := range x.M {
		for j := range x.N {
			want, magnitude := sum(x, i, j)
			if v := float64(got[i*x.N+j]); !(math.Abs(v-want) <= float64(x.K+1)*epsilon*magnitude) {
				return fmt.Errorf("element (%d, %d) is %v, want %v", i, j, v, want)
			}
		}
	}
	return nil
}

// repeats checks that bits do not depend on where operands lie.
func (c checker[T]) repeats() error {
	x := c.operands(19, 21, 40, c.number)
	want, err := c.run(x, 0)
	for places := 1; places < 16 && err == nil; places += 2 {
		var got []T
		if got, err = c.run(x, places); err == nil && !equal(got, want) {
			err = fmt.Errorf("it computes other bits %d elements further", places)
		}
	}
	return err
}

// sharesTime checks that concurrent calls compute the bits of a single one.
func (c checker[T]) sharesTime() error {
	x := c.operands(37, 45, 130, c.number)
	want, err := c.run(x, 0)
	if err != nil {
		return err
	}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			got, err := c.run(x, 0)
			if errs[i] = err; err == nil && !equal(got, want) {
				errs[i] = fmt.Errorf("it computes other bits in one of %d calls", len(errs))
			}
		})
	}
	wg.Wait()
	for _, e := range errs {
		if err == nil {
			err = e
		}
	}
	return err
}

func equal[T kernels.Float](a, b []T) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// large checks a larger product of integers by a vector: C v = A (B v).
func (c checker[T]) large() error {
	x := c.operands(67, 83, 400, c.integer)
	got, err := c.run(x, 0)
	if err != nil {
		return err
	}
	v, bv := make([]float64, x.N), make([]float64, x.K)
	for j := range v {
		v[j] = float64(1 + c.draw()%16)
		for l := range x.K {
			_, b := at(x, 0, int64(j), l)
			bv[l] += float64(*b) * v[j]
		}
	}
	for i := range x.M {
		var sum, want float64
		for j := range x.N {
			sum += float64(got[i*x.N+j]) * v[j]
		}
		for l := range x.K {
			a, _ := at(x, i, 0, l)
			want += float64(*a) * bv[l]
		}
		if sum != want {
			return fmt.Errorf("an element of row %d is wrong", i)
		}
	}
	return nil
}
