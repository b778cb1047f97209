package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MatMulOption is an option of [MatMul].
type MatMulOption func(*matMul)

// TransA makes MatMul use the transpose of a's last two axes; a is not moved.
func TransA() MatMulOption { return func(o *matMul) { o.transA = true } }

// TransB makes MatMul use the transpose of b's last two axes; b is not moved.
func TransB() MatMulOption { return func(o *matMul) { o.transB = true } }

// MatMul is the product of matrices and vectors:
//
//	out[i][j] = sum over l of a[i][l] * b[l][j]
//
//	a            b            out
//	(M, K)       (K, N)       (M, N)
//	(..., M, K)  (..., K, N)  (..., M, N)  one product for each leading index
//	(M, K)       (K)          (M)
//	(K)          (K, N)       (N)
//	(K)          (K)          scalar, by the kernel of [Dot]
//
// With [TransA] a is stored (K, M), with [TransB] b is stored (N, K). Leading
// axes must be equal; axes of extent 1 are kept. It is an error to transpose a
// vector. float32 sums in float32, but for two vectors in double, and large
// products on GPUs of compute capability 9, where it runs version 7: see its
// VersionDoc.
func MatMul(a, b *gorgonia.Node, opts ...MatMulOption) (*gorgonia.Node, error) {
	return Version(0).MatMul(a, b, opts...)
}

// MatMul is [MatMul] by a numbered version of the kernel, to which a vector is a
// matrix of one row or column. The Spec's Versions say how each sums.
func (v Version) MatMul(a, b *gorgonia.Node, opts ...MatMulOption) (*gorgonia.Node, error) {
	if err := v.check("MatMul", len(matMulVersions)); err != nil {
		return nil, err
	}
	o := matMul{version: v}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("ops: %v: got a nil option", o)
		}
		opt(&o)
	}
	return apply(o, a, b)
}

// matMul is the product of two operands with what is stored transposed. outer is
// the product of a column and a row, x[i] * y[j], out of two vectors: the
// derivative of matrix x vector by the matrix.
type matMul struct {
	transA, transB, outer bool
	version               Version
}

func (o matMul) String() string {
	name := "MatMul"
	if o.outer {
		name = "Outer"
	}
	switch {
	case o.transA && o.transB:
		name += "[TransA TransB]"
	case o.transA:
		name += "[TransA]"
	case o.transB:
		name += "[TransB]"
	}
	return name + o.version.String()
}

// product is a matMul on given shapes, as the batch of matrix products that it is:
// m x k times k x n. out is the output's shape.
type product struct {
	batch, m, n, k int
	out            tensor.Shape
}

// product checks the shapes.
func (o matMul) product(in []tensor.Shape) (p product, err error) {
	a, b := in[0], in[1]
	ra, rb := len(a), len(b)
	switch {
	case o.outer && ra == 1 && rb == 1:
		return product{1, a[0], b[0], 1, tensor.Shape{a[0], b[0]}}, nil
	case o.outer:
		return p, fmt.Errorf("got shapes %v and %v, want two vectors", a, b)
	case ra == 1 && o.transA:
		return p, fmt.Errorf("got a of shape %v, want a matrix for TransA: a vector has no transpose", a)
	case rb == 1 && o.transB:
		return p, fmt.Errorf("got b of shape %v, want a matrix for TransB: a vector has no transpose", b)
	case ra == 0 || rb == 0 || ra != rb && (ra > 2 || rb > 2):
		return p, fmt.Errorf("got shapes %v and %v, want matrices or vectors, or tensors of one rank with equal leading axes", a, b)
	}
	p.batch, p.m, p.n, p.out = 1, 1, 1, tensor.ScalarShape()
	if ra > 2 {
		for i := range a[:ra-2] {
			if a[i] != b[i] {
				return p, fmt.Errorf("got shapes %v and %v, want equal axes %d", a, b, i)
			}
			p.batch *= a[i]
		}
		p.out = append(p.out, a[:ra-2]...)
	}
	kb := b[0] // of a vector
	if p.k = a[0]; ra > 1 {
		p.m, p.k = a[ra-2], a[ra-1]
		if o.transA {
			p.m, p.k = p.k, p.m
		}
		p.out = append(p.out, p.m)
	}
	if rb > 1 {
		kb, p.n = b[rb-2], b[rb-1]
		if o.transB {
			kb, p.n = p.n, kb
		}
		p.out = append(p.out, p.n)
	}
	if p.k != kb {
		return p, fmt.Errorf("got shapes %v and %v, want equal inner sizes: a has %d, b has %d", a, b, p.k, kb)
	}
	return p, nil
}

func (o matMul) infer(in []tensor.Shape) (tensor.Shape, error) {
	p, err := o.product(in)
	if err == nil && o.version > 0 && p.out.IsScalar() {
		err = fmt.Errorf("got shapes %v and %v, want at least one matrix: two vectors have the versions of Dot", in[0], in[1])
	}
	return p.out, err
}

func (o matMul) plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	p, err := o.product(in)
	if err != nil {
		return nil, err
	}
	if o.version > 0 {
		return versions.MatMul(dt, int(o.version), int64(p.batch), int64(p.m), int64(p.n), int64(p.k), o.transA, o.transB)
	}
	if p.out.IsScalar() { // of two vectors
		return kernels.Dot(dev, dt, 1, int64(p.k)), nil
	}
	return kernels.MatMul(dev, dt, int64(p.batch), int64(p.m), int64(p.n), int64(p.k), o.transA, o.transB), nil
}

// adjoints are matMuls again. For C = A B they are dA = G B^T, dB = A^T G; where
// A is stored transposed, so is its derivative, dA = B G^T, and so on.
func (o matMul) adjoints(in []tensor.Shape) []adjoint {
	const a, b = 0, 1
	ra, rb := len(in[0]), len(in[1])
	outer := func(transposed bool, x, y int) adjoint {
		if transposed {
			x, y = y, x
		}
		return adjoint{matMul{outer: true}, []int{x, y}}
	}
	switch {
	case o.outer: // C = a b^T
		return []adjoint{
			{matMul{}, []int{gradient, b}},
			{matMul{transA: true}, []int{gradient, a}},
		}
	case ra == 1 && rb == 1:
		return dot{}.adjoints(in)
	case rb == 1: // c = op(A) b
		return []adjoint{
			outer(o.transA, gradient, b),
			{matMul{transA: !o.transA}, []int{a, gradient}},
		}
	case ra == 1: // c = a op(B), that is op(B)^T a
		return []adjoint{
			{matMul{transA: o.transB}, []int{b, gradient}},
			outer(o.transB, a, gradient),
		}
	}
	da := adjoint{matMul{transB: !o.transB}, []int{gradient, b}}
	if o.transA {
		da = adjoint{matMul{transA: o.transB, transB: true}, []int{b, gradient}}
	}
	db := adjoint{matMul{transA: !o.transA}, []int{a, gradient}}
	if o.transB {
		db = adjoint{matMul{transA: true, transB: o.transA}, []int{gradient, a}}
	}
	return []adjoint{da, db}
}

var _ = register(Spec{
	Name:    "MatMul",
	Formula: "out[i,j] = Σ_l a[i,l] b[l,j]",
	Doc:     "Product of matrices, matrix and vector, or batches of matrices, either operand transposed.",
	// The bound of a sum of K terms in the type itself is K/2; K is at most 257
	// but where the device cuts it into shorter sums.
	Tolerance: 129,
	Cases: slices.Concat(matMulForms(), matMulVersionCases(), []Case{
		matMulCase(matMul{}, tensor.Shape{1, 1}, tensor.Shape{1, 1}),
		matMulCase(matMul{}, tensor.Shape{1, 31}, tensor.Shape{31, 1}),
		matMulCase(matMul{}, tensor.Shape{31, 1}, tensor.Shape{1, 17}),
		matMulCase(matMul{}, tensor.Shape{7, 1031}, tensor.Shape{1031, 5}),
		matMulCase(matMul{}, tensor.Shape{129, 257}, tensor.Shape{257, 131}),
		matMulCase(matMul{}, tensor.Shape{128, 64}, tensor.Shape{64, 128}),
		matMulCase(matMul{}, tensor.Shape{3, 4099}, tensor.Shape{4099}),
		matMulCase(matMul{transA: true}, tensor.Shape{1031, 131}, tensor.Shape{1031}),
		matMulCase(matMul{}, tensor.Shape{17}, tensor.Shape{17}),
		bench("1024", matMulCase(matMul{}, tensor.Shape{1024, 1024}, tensor.Shape{1024, 1024})),
		inBoth(bench("4096", matMulCase(matMul{}, tensor.Shape{4096, 4096}, tensor.Shape{4096, 4096}))),
		bench("8192", matMulCase(matMul{}, tensor.Shape{8192, 8192}, tensor.Shape{8192, 8192})),
		bench("4097", matMulCase(matMul{}, tensor.Shape{4097, 4097}, tensor.Shape{4097, 4097})),
		bench("matrix x vector 16384", matMulCase(matMul{}, tensor.Shape{1 << 14, 1 << 14}, tensor.Shape{1 << 14})),
	}),
	Versions: matMulVersions,
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 5, 5)
		o := matMul{transA: r.IntN(2) == 1, transB: r.IntN(2) == 1}
		return matMulOf(o, s[0], s[1], s[2], s[3:3+r.IntN(3)]...)
	},
})

var matMulVersions = []VersionDoc{
	{"one thread per output", "A thread computes one element and loads both factors of every product from global memory: 2 N^3 loads."},
	{"register tile", "A thread computes V x V elements and uses what it loads V times: 2 N^3 / V loads from global memory."},
	{"shared tile", "256 threads fetch pieces for L x L elements together: 2 N^3 / L loads from global memory, 2 N^3 / V from shared memory. Rows are fetched with a stride, and banks conflict."},
	{"coalesced, no bank conflicts", "The same loads: fetched in the order of memory, stored and read from different banks."},
	{"double buffered", "The next pieces are on their way (cp.async) while these are multiplied: one barrier a step instead of two, and no wait for memory."},
	{"warp tiles", "A warp's elements lie in a square, and three stages of pieces are in flight. For float64 a thread has 8 x 8 elements, not 4 x 4, and half the loads from shared memory."},
	{"tensor cores", "float64: the tensor cores' own multiply-add. float32: each number in two parts of 11 bits, three TF32 products for one, 22 bits of 24; sums of 16 terms by the tensor cores, which cut off, those sums added in float32: errors were smaller than version 5's wherever measured. Numbers below 2^-114 keep fewer bits. Before sm_80: FMA in the elements' type."},
}

// matMulVersionCases have sizes inside one tile, of whole tiles and beyond,
// both operands transposed or not, batches, and vectors as matrices. Sums are at
// most 257 terms long, as in the Spec's tolerance.
func matMulVersionCases() (cases []Case) {
	for i := range matMulVersions {
		v := Version(i + 1)
		add := func(name string, o matMul, c Case) {
			if name != "" {
				c = bench(name, c)
			}
			cases = append(cases, versioned(v, c, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
				return v.MatMul(in[0], in[1], o.options()...)
			}))
		}
		for t := range 4 {
			o := matMul{transA: t >= 2, transB: t%2 == 1}
			add("", o, matMulOf(o, 5, 3, 4))
			add("", o, matMulOf(o, 67, 41, 101))
			add("", o, matMulOf(o, 131, 129, 257))
			add("", o, matMulOf(o, 33, 20, 65, 2, 3))
		}
		var o matMul
		add("", o, matMulCase(o, tensor.Shape{1, 1}, tensor.Shape{1, 1}))
		add("", o, matMulCase(o, tensor.Shape{256, 64}, tensor.Shape{64, 128}))
		add("", o, matMulCase(o, tensor.Shape{3, 250}, tensor.Shape{250}))
		add("", o, matMulCase(o, tensor.Shape{250}, tensor.Shape{250, 5}))
		for _, n := range []int{1024, 4096, 4097} {
			add(fmt.Sprint(n), o, matMulOf(o, n, n, n))
		}
	}
	return cases
}

// options are those that make o.
func (o matMul) options() (opts []MatMulOption) {
	if o.transA {
		opts = append(opts, TransA())
	}
	if o.transB {
		opts = append(opts, TransB())
	}
	return opts
}

// matMulForms are all transposes of all forms.
func matMulForms() (cases []Case) {
	for i := range 4 {
		o := matMul{transA: i >= 2, transB: i%2 == 1}
		cases = append(cases,
			matMulOf(o, 5, 3, 4), matMulOf(o, 67, 41, 101), matMulOf(o, 64, 72, 40),
			matMulOf(o, 3, 5, 7, 4), matMulOf(o, 33, 20, 65, 2, 3))
	}
	for _, trans := range []bool{false, true} {
		x := tensor.Shape{37, 53}
		cases = append(cases, matMulCase(matMul{transA: trans}, x, tensor.Shape{pick(trans, 37, 53)}),
			matMulCase(matMul{transB: trans}, tensor.Shape{pick(trans, 53, 37)}, x))
	}
	return cases
}

func pick(cond bool, yes, no int) int {
	if cond {
		return yes
	}
	return no
}

// matMulOf is op(A), m x k, times op(B), k x n, for each of the leading indexes.
func matMulOf(o matMul, m, n, k int, leading ...int) Case {
	a, b := append(tensor.Shape{}, leading...), append(tensor.Shape{}, leading...)
	if a = append(a, m, k); o.transA {
		a = append(a[:len(leading)], k, m)
	}
	if b = append(b, k, n); o.transB {
		b = append(b[:len(leading)], n, k)
	}
	return matMulCase(o, a, b)
}

func matMulCase(o matMul, a, b tensor.Shape) Case {
	return Case{
		Name:   fmt.Sprintf("%v %v x %v", o, []int(a), []int(b)),
		Shapes: []tensor.Shape{a, b},
		Build:  func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return MatMul(in[0], in[1], o.options()...) },
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
			if o.transA {
				m, k, rowA, colA = k, m, 1, x[r-1]
			}
			if o.transB {
				n, rowB, colB = y[r-2], 1, y[r-1]
			}
			batch := 1
			for _, d := range x[:r-2] {
				batch *= d
			}
			for z := range batch {
				for i := range m {
					for j := range n {
						var sum total
						abs := 0.0
						for l := range k {
							x, y := in[0][z*m*k+i*rowA+l*colA], in[1][z*k*n+l*rowB+j*colB]
							sum.addProduct(x, y)
							abs += math.Abs(x * y)
						}
						out, magnitude = append(out, sum.value()), append(magnitude, abs)
					}
				}
			}
			return out, magnitude
		},
	}
}
