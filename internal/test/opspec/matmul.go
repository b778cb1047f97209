package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:    "MatMul",
	Formula: "out[i,j] = Σ_l a[i,l] b[l,j]",
	Doc:     "Product of matrices, matrix and vector, or batches of matrices, either operand transposed.",
	// The bound of a sum of K terms in the type itself is K/2; K is at most 257
	// but where the device cuts it into shorter sums.
	Tolerance: 129,
	Cases: slices.Concat(matMulForms(), matMulVersionCases(), matMulBroadcasts(), []Case{
		matMulCase(transposes{}, tensor.Shape{1, 1}, tensor.Shape{1, 1}),
		matMulCase(transposes{}, tensor.Shape{1, 31}, tensor.Shape{31, 1}),
		matMulCase(transposes{}, tensor.Shape{31, 1}, tensor.Shape{1, 17}),
		matMulCase(transposes{}, tensor.Shape{7, 1031}, tensor.Shape{1031, 5}),
		matMulCase(transposes{}, tensor.Shape{129, 257}, tensor.Shape{257, 131}),
		matMulCase(transposes{}, tensor.Shape{128, 64}, tensor.Shape{64, 128}),
		matMulCase(transposes{}, tensor.Shape{3, 4099}, tensor.Shape{4099}),
		matMulCase(transposes{a: true}, tensor.Shape{1031, 131}, tensor.Shape{1031}),
		matMulCase(transposes{}, tensor.Shape{17}, tensor.Shape{17}),
		matMulCase(transposes{}, tensor.Shape{1}, tensor.Shape{1, 1}),
		matMulCase(transposes{}, tensor.Shape{1, 1, 1}, tensor.Shape{1, 1, 1}),
		matMulOf(transposes{b: true}, 1, 1, 251, 1, 13),
		matMulOf(transposes{a: true}, 127, 1, 3, 7),
		matMulOf(transposes{}, 3, 301, 70, 70),
		matMulOf(transposes{a: true}, 301, 7, 70, 70),
		matMulOf(transposes{}, 9, 11, 16, 70, 70),
		large(matMulCase(transposes{}, tensor.Shape{1<<15 + 1, 1<<14 + 1}, tensor.Shape{1<<14 + 1}), kernels.Float32),
		large(matMulOf(transposes{}, 32, 3, 17, 1<<20+1), kernels.Float32),
		timed("1024", matMulCase(transposes{}, tensor.Shape{1024, 1024}, tensor.Shape{1024, 1024})),
		timed("4096", matMulCase(transposes{}, tensor.Shape{4096, 4096}, tensor.Shape{4096, 4096}), inBoth...),
		timed("8192", matMulCase(transposes{}, tensor.Shape{8192, 8192}, tensor.Shape{8192, 8192})),
		timed("4097", matMulCase(transposes{}, tensor.Shape{4097, 4097}, tensor.Shape{4097, 4097})),
		timed("matrix x vector 16384", matMulCase(transposes{}, tensor.Shape{1 << 14, 1 << 14}, tensor.Shape{1 << 14})),
		against("128 x 128", matMulOf(transposes{}, 128, 128, 128), binary(gorgonia.Mul)),
		against("512 x 512", matMulOf(transposes{}, 512, 512, 512), binary(gorgonia.Mul)),
		against("1024 x 1024", matMulOf(transposes{}, 1024, 1024, 1024), binary(gorgonia.Mul)),
		against("2048 x 2048 by vector", matMulCase(transposes{}, tensor.Shape{2048, 2048}, tensor.Shape{2048}), binary(gorgonia.Mul)),
		against("batch 64 of 64", matMulOf(transposes{}, 64, 64, 64, 64), binary(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(a, b) })),
	}),
	Bad: []Bad{
		badMatMul("inner sizes", "a has 4, b has 5", tensor.Shape{3, 4}, tensor.Shape{5, 2}),
		badMatMul("inner sizes, transposed", "a has 4, b has 2", tensor.Shape{3, 4}, tensor.Shape{4, 2}, ops.TransB()),
		badMatMul("leading sizes", "want leading axes that broadcast", tensor.Shape{2, 3, 4}, tensor.Shape{3, 4, 5}),
		badMatMul("two vectors", "a has 3, b has 4", tensor.Shape{3}, tensor.Shape{4}),
		badMatMul("transpose of a vector", "a vector has no transpose", tensor.Shape{3}, tensor.Shape{3}, ops.TransA()),
		badMatMul("more elements than memory can hold", "too many elements", tensor.Shape{1 << 40, 1}, tensor.Shape{1, 1 << 40}),
		badMatMul("matrix and a column's length", "a has 4, b has 3", tensor.Shape{3, 4}, tensor.Shape{3}),
		badMatMul("scalars", "want matrices or vectors", tensor.Shape{}, tensor.Shape{}),
		bad("version too large", binary(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return versions.Version(15).MatMul(a, b) }), "got version 15, want 0 to 14", tensor.Shape{3, 3}, tensor.Shape{3, 3}),
		bad("two vectors by a version", binary(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return versions.Version(7).MatMul(a, b) }), "MatMul version 7: got shapes (3) and (3), want at least one matrix", tensor.Shape{3}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 5, 5)
		o := transposes{a: r.IntN(2) == 1, b: r.IntN(2) == 1}
		return matMulOf(o, s[0], s[1], s[2], s[3:3+r.IntN(3)]...)
	},
	Wide: wideMatMul,
	Peers: `
def peers(c, d):
    a, b = c["shapes"]
    turn = lambda t, turned: t.mT if turned else t
    f = lambda a, b, *o: torch.matmul(turn(a, c.get("trans_a")), turn(b, c.get("trans_b")), **({"out": o[0]} if o else {}))
    m, k = a[-2:] if not c.get("trans_a") else a[:-3:-1]
    out = a[:-2] + [m] if len(b) == 1 else a[:-2] + [m, b[-2] if c.get("trans_b") else b[-1]]
    name = ("S" if d == torch.float32 else "D") + ("GEMV" if len(b) == 1 else "GEMM")
    yield f"cuBLAS {name} ({TORCH} matmul)", lambda: (drawn(d, a), drawn(d, b), empty(d, out)), f
`,
})

// wideMatMul draws products of matrices, or of a matrix and a vector, and batches of them.
func wideMatMul(s *Sizes) Case {
	const widest = 1_000_000
	o := transposes{s.IntN(2) == 1, s.IntN(2) == 1}
	m, n, k := s.LogInt(1, widest), s.LogInt(1, widest), s.LogInt(1, widest)
	switch s.IntN(6) {
	case 0, 1:
		return matMulOf(o, m, n, k, s.LogInt(1, 100_000))
	case 2:
		a := tensor.Shape{m, k}
		if o.a {
			a = tensor.Shape{k, m}
		}
		return matMulCase(transposes{a: o.a}, a, tensor.Shape{k})
	}
	return matMulOf(o, m, n, k)
}

// matMulForms are all transposes of all forms.
func matMulForms() (cases []Case) {
	for i := range 4 {
		o := transposes{a: i >= 2, b: i%2 == 1}
		cases = append(cases,
			matMulOf(o, 5, 3, 4), matMulOf(o, 67, 41, 101), matMulOf(o, 64, 72, 40),
			matMulOf(o, 3, 5, 7, 4), matMulOf(o, 33, 20, 65, 2, 3))
	}
	for _, trans := range []bool{false, true} {
		x := tensor.Shape{37, 53}
		cases = append(cases, matMulCase(transposes{a: trans}, x, tensor.Shape{pick(trans, 37, 53)}),
			matMulCase(transposes{b: trans}, tensor.Shape{pick(trans, 53, 37)}, x))
	}
	return cases
}

// matMulBroadcasts are products whose leading axes broadcast, or of a matrix with several.
func matMulBroadcasts() (cases []Case) {
	for _, s := range []struct {
		o    transposes
		a, b tensor.Shape
	}{
		{transposes{}, tensor.Shape{2, 3, 5}, tensor.Shape{5, 4}}, {transposes{b: true}, tensor.Shape{2, 1, 3, 5}, tensor.Shape{4, 5}}, {transposes{a: true}, tensor.Shape{2, 5, 3}, tensor.Shape{5, 4}},
		{transposes{}, tensor.Shape{3, 5}, tensor.Shape{2, 5, 4}}, {transposes{a: true, b: true}, tensor.Shape{1, 2, 5, 3}, tensor.Shape{3, 1, 4, 5}}, {transposes{}, tensor.Shape{1, 3, 5}, tensor.Shape{2, 5, 4}},
		{transposes{}, tensor.Shape{2, 3, 5}, tensor.Shape{5}}, {transposes{a: true}, tensor.Shape{2, 5, 3}, tensor.Shape{5}}, {transposes{}, tensor.Shape{5}, tensor.Shape{2, 3, 5, 4}}, {transposes{b: true}, tensor.Shape{5}, tensor.Shape{2, 4, 5}},
	} {
		cases = append(cases, broadcastMatMulCase(s.o, s.a, s.b))
	}
	return cases
}

// broadcastMatMulCase multiplies each pair of matrices by matMulCase. A vector is a row or a column.
func broadcastMatMulCase(o transposes, a, b tensor.Shape) Case {
	c := matMulCase(o, a, b)
	c.Composed = len(b) != 2 || o.a
	matA, matB := a, b
	if len(a) == 1 {
		matA = tensor.Shape{1, a[0]}
	}
	if len(b) == 1 {
		matB = tensor.Shape{b[0], 1}
	}
	leadA, leadB := matA[:len(matA)-2], matB[:len(matB)-2]
	matA, matB = matA[len(leadA):], matB[len(leadB):]
	one := matMulCase(o, matA, matB)
	c.Reference = func(in ...[]float64) (out, magnitude []float64) {
		number := func(lead tensor.Shape) (list []float64) { // of each matrix
			for i := range lead.TotalSize() {
				list = append(list, float64(i))
			}
			return list
		}
		first, second := elements("", nil, func(pair []float64) (a, b float64) { return pair[0], pair[1] }, leadA, leadB).Reference(number(leadA), number(leadB))
		matrix := func(x []float64, k float64, m tensor.Shape) []float64 {
			return x[int(k)*m.TotalSize():][:m.TotalSize()]
		}
		for i := range first {
			y, m := one.Reference(matrix(in[0], first[i], matA), matrix(in[1], second[i], matB))
			out, magnitude = append(out, y...), append(magnitude, m...)
		}
		return out, magnitude
	}
	return c
}

func pick(cond bool, yes, no int) int {
	if cond {
		return yes
	}
	return no
}

// matMulOf is op(A), m x k, times op(B), k x n, for each of the leading indexes.
func matMulOf(o transposes, m, n, k int, leading ...int) Case {
	a, b := append(tensor.Shape{}, leading...), append(tensor.Shape{}, leading...)
	if a = append(a, m, k); o.a {
		a = append(a[:len(leading)], k, m)
	}
	if b = append(b, k, n); o.b {
		b = append(b[:len(leading)], n, k)
	}
	return matMulCase(o, a, b)
}

func matMulCase(o transposes, a, b tensor.Shape) Case {
	return Case{
		Name:       fmt.Sprintf("%v %v x %v", o, []int(a), []int(b)),
		Shapes:     []tensor.Shape{a, b},
		Parameters: Parameters{TransA: o.a, TransB: o.b},
		Build:      func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(in[0], in[1], o.options()...) },
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			x, y := a, b
			if len(x) == 1 {
				x = tensor.Shape{1, x[0]}
			}
			if len(y) == 1 {
				y = tensor.Shape{y[0], 1}
			}
			r := len(x)
			m, k, n := x[r-2], x[r-1], y[r-1]
			rowA, colA, rowB, colB := k, 1, n, 1
			if o.a {
				m, k, rowA, colA = k, m, 1, x[r-1]
			}
			if o.b {
				n, rowB, colB = y[r-2], 1, y[r-1]
			}
			batch := 1
			for _, d := range x[:r-2] {
				batch *= d
			}
			sums, abs := make([]total, n), make([]float64, n)
			for z := range batch {
				for i := range m {
					clear(sums)
					clear(abs)
					for l := range k { // the sums of a row are independent of one another
						x, at := in[0][z*m*k+i*rowA+l*colA], z*k*n+l*rowB
						for j := range sums {
							y := in[1][at+j*colB]
							sums[j].addProduct(x, y)
							abs[j] += math.Abs(x * y)
						}
					}
					for j := range sums {
						out, magnitude = append(out, sums[j].value()), append(magnitude, abs[j])
					}
				}
			}
			return out, magnitude
		},
	}
}

// transposes holds which operands are stored transposed.
type transposes struct{ a, b bool }

func (o transposes) String() string {
	switch {
	case o.a && o.b:
		return "MatMul[TransA TransB]"
	case o.a:
		return "MatMul[TransA]"
	case o.b:
		return "MatMul[TransB]"
	}
	return "MatMul"
}

func badMatMul(name, want string, a, b tensor.Shape, opts ...ops.MatMulOption) Bad {
	return bad(name, binary(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(a, b, opts...) }), want, a, b)
}

// options are those that make o.
func (o transposes) options() (opts []ops.MatMulOption) {
	if o.a {
		opts = append(opts, ops.TransA())
	}
	if o.b {
		opts = append(opts, ops.TransB())
	}
	return opts
}
