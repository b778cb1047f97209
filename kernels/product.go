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
// elements c with operands x and y.
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
	if p.epilogue.form != formNone {
		name += " " + p.epilogue.f.Text(formNames...)
	}
	return name
}

// With returns the product with f done to its elements: f's first operand is an
// element, the others are read at the same matrix, row and column, by their strides. They
// are the plan's inputs 2, 3, and so on, in order. It returns false if the kernels that
// compute the product on the device cannot do it.
func (p Product) With(dev Device, f expr.Func, operands ...View) (Product, bool) {
	e, ok := newEpilogue(f, operands)
	if !ok || p.dot() || !hasEpilogues(dev) || f.Outputs()[0] != p.Dtype {
		return p, false
	}
	for _, d := range f.Operands() {
		ok = ok && d == p.Dtype
	}
	for _, v := range operands {
		ok = ok && v.check([]int{int(p.Batch), int(p.M), int(p.N)}) == nil
	}
	p.epilogue = e
	return p, ok
}

// hasEpilogues reports whether the product kernels of a device have epilogues.
func hasEpilogues(dev Device) bool { return dev.Major == 0 }

// dot reports whether the product is that of two vectors.
func (p Product) dot() bool { return p.Batch == 1 && p.M == 1 && p.N == 1 }

// Plan implements [Planner].
func (p Product) Plan(dev Device) (*Plan, error) {
	if p.dot() {
		return Dot(dev, p.Dtype, 1, p.K), nil
	}
	plan := MatMul(dev, p.Dtype, p.Batch, p.M, p.N, p.K, p.TransA, p.TransB)
	plan.finish(p.epilogue, p.Dtype, p.Batch, p.M, p.N)
	return plan, nil
}
