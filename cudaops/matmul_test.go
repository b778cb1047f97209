package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// nans are NaN of several payloads. GPUs make the first, x86 the second; a rounding that
// adds to the bits carries those from 0x7ffff000 on into the sign.
var nans = []uint32{0x7fffffff, 0xffc00000, 0xffffffff, 0x7ffff000, 0xfffff000, 0x7fffefff, 0x7fc00000, 0x7f800001, 0xff800001, 0x7fa12345}

// A spot is an element of op(A) or op(B) that is not finite, and its bits.
type spot struct {
	inB      bool
	row, col int
	bits     uint32
}

// spots places each of the NaN once, in turn in A, m x k, and in B, k x n: in rows of A
// and columns of B from the first to the last, at all depths.
func spots(m, n, k int) (all []spot) {
	for i, bits := range nans {
		l := i * (k - 1) / (len(nans) - 1)
		if i%2 == 0 {
			all = append(all, spot{false, i * (m - 1) / (len(nans) - 2), l, bits})
		} else {
			all = append(all, spot{true, l, (i - 1) * (n - 1) / (len(nans) - 2), bits})
		}
	}
	return all
}

// wantNaN fails unless the rows with a NaN in A and the columns with one in B are NaN,
// and all other elements close to those of the product of a and b, which are finite.
func wantNaN(t *testing.T, out []float64, a, b []float32, m, n, k int, all []spot) {
	t.Helper()
	rows, cols := make([]bool, m), make([]bool, n)
	for _, s := range all {
		if s.inB {
			cols[s.col] = true
		} else {
			rows[s.row] = true
		}
	}
	for i := range m {
		for j := range n {
			got := out[i*n+j]
			if rows[i] || cols[j] {
				if got == got {
					t.Fatalf("element (%d, %d) is %v, want NaN", i, j, got)
				}
				continue
			}
			sum, magnitude := 0.0, 0.0
			for l := range k {
				x := float64(a[i*k+l]) * float64(b[l*n+j])
				sum, magnitude = sum+x, magnitude+math.Abs(x)
			}
			if !(math.Abs(got-sum) <= 0x1p-20*magnitude) {
				t.Fatalf("element (%d, %d) is %v, want %v", i, j, got, sum)
			}
		}
	}
}

// transposed returns the transpose of a rows x cols matrix.
func transposed(x []float32, rows, cols int) []float32 {
	out := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

// Products of these sizes run on the tensor cores on compute capability 9.0, with operands split into BF16. A NaN of any payload must
// survive the split.
func TestMatMulKeepsNaN(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, s := range [][3]int{{1280, 640, 48}, {1283, 645, 37}} {
			for form := range 4 {
				m, n, k, transA, transB := s[0], s[1], s[2], form >= 2, form%2 == 1
				t.Run(fmt.Sprintf("%dx%dx%d transposed %v %v", m, n, k, transA, transB), func(t *testing.T) {
					r := rand.New(rand.NewPCG(3, uint64(form)))
					a, b := draw(r, tensor.Float32, m*k).Float32s(), draw(r, tensor.Float32, k*n).Float32s()
					pa, pb := append([]float32(nil), a...), append([]float32(nil), b...)
					all := spots(m, n, k)
					for _, s := range all {
						if s.inB {
							pb[s.row*n+s.col] = math.Float32frombits(s.bits)
						} else {
							pa[s.row*k+s.col] = math.Float32frombits(s.bits)
						}
					}
					g := G.NewGraph()
					matrix := func(name string, x []float32, rows, cols int, trans bool) *G.Node {
						if trans {
							x, rows, cols = transposed(x, rows, cols), cols, rows
						}
						return G.NewMatrix(g, tensor.Float32, G.WithName(name), G.WithShape(rows, cols),
							G.WithValue(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(x))))
					}
					var opts []ops.MatMulOption
					if transA {
						opts = append(opts, ops.TransA())
					}
					if transB {
						opts = append(opts, ops.TransB())
					}
					out := testutil.Get[*G.Node](t)(ops.MatMul(matrix("a", pa, m, k, transA), matrix("b", pb, k, n, transB), opts...))
					testutil.Do(t, machine(t, g, on).RunAll())
					wantNaN(t, floats(t, out.Value()), a, b, m, n, k, all)
				})
			}
		}
	})
}

// The NaN of Inf - Inf is made by an op before the product, on its device.
func TestMatMulKeepsNaNOfDevice(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const m, n, k = 1280, 640, 48
		r := rand.New(rand.NewPCG(5, 6))
		a, b := draw(r, tensor.Float32, m*k).Float32s(), draw(r, tensor.Float32, k*n).Float32s()
		all := spots(m, n, k)
		g := G.NewGraph()
		// a and b are each the sum of two matrices, exactly.
		sum := func(name string, x []float32, rows, cols int, inB bool) *G.Node {
			var parts [2]*G.Node
			for i, inf := range []float64{math.Inf(1), math.Inf(-1)} {
				half := make([]float32, len(x))
				for e := range x {
					half[e] = x[e] / 2
				}
				for _, s := range all {
					if s.inB == inB {
						half[s.row*cols+s.col] = float32(inf)
					}
				}
				parts[i] = G.NewMatrix(g, tensor.Float32, G.WithName(fmt.Sprint(name, i)), G.WithShape(rows, cols),
					G.WithValue(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(half))))
			}
			return testutil.Get[*G.Node](t)(ops.Add(parts[0], parts[1]))
		}
		out := testutil.Get[*G.Node](t)(ops.MatMul(sum("a", a, m, k, false), sum("b", b, k, n, true)))
		testutil.Do(t, machine(t, g, on).RunAll())
		wantNaN(t, floats(t, out.Value()), a, b, m, n, k, all)
	})
}

// An Inf in A makes its row Inf, and NaN where it meets 0; other rows stay finite.
func TestMatMulKeepsInf(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const m, n, k, row, zero = 1280, 640, 48, 700, 600
		r := rand.New(rand.NewPCG(7, 8))
		a, b := draw(r, tensor.Float32, m, k), draw(r, tensor.Float32, k, n)
		a.Float32s()[row*k+k-1] = float32(math.Inf(-1))
		b.Float32s()[(k-1)*n+zero] = 0
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithName("a"), G.WithShape(m, k), G.WithValue(a))
		y := G.NewMatrix(g, tensor.Float32, G.WithName("b"), G.WithShape(k, n), G.WithValue(b))
		out := testutil.Get[*G.Node](t)(ops.MatMul(x, y))
		testutil.Do(t, machine(t, g, on).RunAll())
		for e, got := range floats(t, out.Value()) {
			i, j := e/n, e%n
			want := math.Inf(-1) * float64(b.Float32s()[(k-1)*n+j])
			switch {
			case i != row && (math.IsNaN(got) || math.IsInf(got, 0)):
				t.Fatalf("element (%d, %d) is %v, want a finite number", i, j, got)
			case i == row && got != want && (got == got || want == want):
				t.Fatalf("element (%d, %d) is %v, want %v", i, j, got, want)
			}
		}
	})
}
