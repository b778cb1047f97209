package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MatMulOption is an option of [MatMul].
type MatMulOption struct{ transA, transB bool }

// TransA makes MatMul use the transpose of a's last two axes, without copying a.
func TransA() MatMulOption { return MatMulOption{transA: true} }

// TransB makes MatMul use the transpose of b's last two axes, without copying b.
func TransB() MatMulOption { return MatMulOption{transB: true} }

// MatMul is the product of matrices and vectors:
//
//	out[i][j] = sum over l of a[i][l] * b[l][j]
//
//	a            b            out
//	(M, K)       (K, N)       (M, N)
//	(..., M, K)  (..., K, N)  (..., M, N)  one product for each leading index
//	(..., M, K)  (K, N)       (..., M, N)
//	(..., M, K)  (K)          (..., M)
//	(K)          (..., K, N)  (..., N)
//	(M, K)       (K)          (M)
//	(K)          (K, N)       (N)
//	(K)          (K)          scalar, by the kernel of [Dot]
//
// With [TransA] a is stored (K, M), with [TransB] b is stored (N, K). Leading axes broadcast by numpy's rule;
// axes of extent 1 are kept. The products with one matrix b are one product of the rows of all matrices a, unless these are transposed.
// It is an error to transpose a vector. float32 products are summed in float32, those of two vectors in double precision. Large products on GPUs of compute capability
// 8.0 and 9.0 are made of six BF16 products on the tensor cores, which use all bits of the operands and
// have smaller errors than sums in float32. The option cudaops.Precision rounds the operands of float32 products.
func MatMul(a, b *gorgonia.Node, opts ...MatMulOption) (*gorgonia.Node, error) {
	var o matMul
	for _, opt := range opts {
		o.transA, o.transB = o.transA || opt.transA, o.transB || opt.transB
	}
	return o.apply(a, b)
}

// apply applies the product to nodes. Leading axes that differ broadcast first, unless b is one matrix.
func (o matMul) apply(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	inputs, in, err := inputsOf(a, b)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	a, b = inputs[0], inputs[1]
	ra, rb := len(in[0].Shape), len(in[1].Shape)
	leadA, leadB := in[0].Shape[:max(ra-2, 0)], in[1].Shape[:max(rb-2, 0)]
	if ra == 0 || rb == 0 || sameShape(leadA, leadB) || rb == 2 && !o.transA || ra == 1 && o.transA || rb == 1 && o.transB {
		return Apply(o, a, b)
	}
	lead, err := broadcastShape(leadA, leadB)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: got shapes %v and %v, want leading axes that broadcast", o, in[0].Shape, in[1].Shape)
	}
	matA, matB := in[0].Shape[len(leadA):], in[1].Shape[len(leadB):]
	one, err := o.product(matA, matB)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	if ra == 1 {
		matA = tensor.Shape{1, one.k}
	}
	if rb == 1 {
		matB = tensor.Shape{one.k, 1}
	}
	leadOfB := lead
	if rb == 1 && !o.transA { // one column for the rows of all matrices
		leadOfB = nil
	} else if a, err = spread(a, leadA, lead, matA); err != nil {
		return nil, err
	}
	if b, err = spread(b, leadB, leadOfB, matB); err != nil {
		return nil, err
	}
	product, err := Apply(o, a, b)
	if err != nil {
		return nil, err
	}
	return reshaped(product, append(lead, one.out...))
}

// spread broadcasts the leading axes of matrices.
func spread(x *gorgonia.Node, from, to, matrix tensor.Shape) (*gorgonia.Node, error) {
	x, err := reshaped(x, append(slices.Clone(from), matrix...))
	if err != nil || sameShape(from, to) {
		return x, err
	}
	return Apply(viewing{expand{append(slices.Clone(to), matrix...)}}, x)
}

// matMul is the product of two operands, each stored as it is or transposed. outer is the product
// of a column and a row, x[i] * y[j], from two vectors: the derivative of matrix x vector by the
// matrix.
type matMul struct {
	transA, transB, outer bool
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
	return name
}

// product is a matMul on given shapes as a batch of matrix products, m x k times k x n. out is the
// output's shape.
type product struct {
	batch, m, n, k int
	out            tensor.Shape
}

// product checks the shapes.
func (o matMul) product(a, b tensor.Shape) (p product, err error) {
	ra, rb := len(a), len(b)
	switch {
	case o.outer && ra == 1 && rb == 1:
		return product{1, a[0], b[0], 1, tensor.Shape{a[0], b[0]}}, nil
	case o.outer:
		return p, fmt.Errorf("got shapes %v and %v, want two vectors", a, b)
	case ra > 2 && rb == 2 && !o.transA: // the rows of all matrices
		if p, err = o.product(flat(a), b); err != nil {
			return p, fmt.Errorf("got a of shape %v: %w", a, err)
		}
		p.out = append(slices.Clone(a[:ra-1]), p.n)
		return p, nil
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

func (o matMul) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	p, err := o.product(in[0].Shape, in[1].Shape)
	return Type{in[0].Dtype, p.out}, err
}

func (o matMul) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	p, err := o.Product(in...)
	if err != nil {
		return nil, err
	}
	return p.Plan(dev)
}

// flat returns the shape of the rows of all matrices.
func flat(shape tensor.Shape) tensor.Shape {
	last := shape[len(shape)-1]
	return tensor.Shape{shape.TotalSize() / last, last}
}

// Product returns the product to be planned.
func (o matMul) Product(in ...Type) (gemm.Product, error) {
	p, err := o.product(in[0].Shape, in[1].Shape)
	return gemm.Product{Dtype: in[0].Dtype, Batch: int64(p.batch), M: int64(p.m), N: int64(p.n), K: int64(p.k), A: gemm.Operand{Trans: o.transA}, B: gemm.Operand{Trans: o.transB}}, err
}

// Adjoints are matMuls again. For C = A B they are dA = G B^T and dB = A^T G; if A is stored
// transposed, so is its derivative, dA = B G^T, and so on.
func (o matMul) Adjoints(back *Backward) []Term {
	a, b, g := back.In(0), back.In(1), back.Grad()
	product := func(o matMul, x, y Term) Term { return back.Apply(o, x, y) }
	outer := func(transposed bool, x, y Term) Term {
		if transposed {
			x, y = y, x
		}
		return back.Apply(matMul{outer: true}, x, y)
	}
	ra, rb := len(a.Type().Shape), len(b.Type().Shape)
	switch {
	case ra > 2 && rb == 2 && !o.transA:
		x, y := back.reshape(a, flat(a.Type().Shape)), back.reshape(g, flat(g.Type().Shape))
		if o.transB {
			x, y = y, x
		}
		return []Term{product(matMul{transB: !o.transB}, g, b), product(matMul{transA: true}, x, y)}
	case o.outer: // C = a b^T
		return []Term{product(matMul{}, g, b), product(matMul{transA: true}, g, a)}
	case ra == 1 && rb == 1:
		return dot{}.Adjoints(back)
	case rb == 1: // c = op(A) b
		return []Term{outer(o.transA, g, b), product(matMul{transA: !o.transA}, a, g)}
	case ra == 1: // c = a op(B), that is op(B)^T a
		return []Term{product(matMul{transA: o.transB}, b, g), outer(o.transB, a, g)}
	}
	da := product(matMul{transB: !o.transB}, g, b)
	if o.transA {
		da = product(matMul{transA: o.transB, transB: true}, b, g)
	}
	db := product(matMul{transA: !o.transA}, a, g)
	if o.transB {
		db = product(matMul{transA: true, transB: o.transA}, g, a)
	}
	return []Term{da, db}
}
