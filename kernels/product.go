package kernels

import "github.com/stheno-ml/stheno/kernels/expr"

// Product is what [MatMul] plans, as a [Planner]: a batch of products of an M x K and
// a K x N matrix, either stored transposed. What is done to the elements can be part of
// it, see [Product.With].
type Product struct {
	Dtype          Dtype
	Batch, M, N, K int64
	TransA, TransB bool
	epilogue       Epilogue
}

// String names the product with what is stored transposed, and what is done to its
// elements c with operands x0 and x1.
func (p Product) String() string {
	name := "product"
	switch {
	case p.TransA && p.TransB:
		name += "[TransA TransB]"
	case p.TransA:
		name += "[TransA]"
	case p.TransB:
		name += "[TransB]"
	}
	if p.epilogue.chain != 0 {
		name += " " + p.epilogue.String()
	}
	return name
}

// With returns the product with f done to its elements: f's first operand is an
// element, the others are read at the same matrix, row and column, by their strides. They
// are the plan's inputs 2 and 3. It returns false if the kernels of products have no such
// steps.
func (p Product) With(f expr.Func, operands ...View) (Product, bool) {
	if p.dot() {
		return p, false
	}
	for _, v := range operands {
		if v.Bounds.To != 0 || v.check([]int{int(p.Batch), int(p.M), int(p.N)}) != nil {
			return p, false
		}
	}
	e, ok := newEpilogue(p.Dtype, f, operands)
	if ok {
		p.epilogue = e
	}
	return p, ok
}

// HasEpilogue reports whether [Product.With] has made the product.
func (p Product) HasEpilogue() bool { return p.epilogue.chain != 0 }

// dot reports whether the product is that of two vectors.
func (p Product) dot() bool { return p.Batch == 1 && p.M == 1 && p.N == 1 }

// Plan implements [Planner].
func (p Product) Plan(dev Device) (*Plan, error) {
	if p.dot() {
		return Dot(dev, p.Dtype, 1, p.K), nil
	}
	return MatMulWith(dev, p.Dtype, p.Batch, p.M, p.N, p.K, p.TransA, p.TransB, p.epilogue), nil
}
