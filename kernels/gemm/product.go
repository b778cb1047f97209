package gemm

import (
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// Product is the plan of [MatMul] as a [Planner]: a batch of products of an M x K and a K x N
// matrix, either stored transposed, in a [Precision] if it is of float32. A function of its elements can be part
// of it, see [Product.With].
type Product struct {
	Dtype          kernels.Dtype
	Batch, M, N, K int64
	TransA, TransB bool
	Precision      kernels.Precision
	epilogue       Epilogue
}

// String names the product with the operands that are stored transposed, its precision if it is not full, and the
// function of its elements c with operands x0 and x1.
func (p Product) String() string {
	name := "product"
	var notes []string
	if p.TransA {
		notes = append(notes, "TransA")
	}
	if p.TransB {
		notes = append(notes, "TransB")
	}
	if p.Precision != kernels.FullPrecision {
		notes = append(notes, p.Precision.String())
	}
	if len(notes) > 0 {
		name += "[" + strings.Join(notes, " ") + "]"
	}
	if p.epilogue.chain != 0 {
		name += " " + p.epilogue.String()
	}
	return name
}

// With returns the product with f applied to its elements: f's first operand is an element, the
// others are read at the same matrix, row and column, by their strides. They are the plan's inputs
// 2 and 3. It returns false if the kernels of products do not have these steps.
func (p Product) With(f expr.Func, operands ...codegen.View) (Product, bool) {
	if p.dot() {
		return p, false
	}
	for _, v := range operands {
		if v.Bounds.To != 0 || v.Check([]int{int(p.Batch), int(p.M), int(p.N)}) != nil {
			return p, false
		}
	}
	e, ok := newEpilogue(p.Dtype, f, operands)
	if ok {
		p.epilogue = e
	}
	return p, ok
}

// HasEpilogue reports whether the product was made by [Product.With].
func (p Product) HasEpilogue() bool { return p.epilogue.chain != 0 }

// dot reports whether this is the product of two vectors.
func (p Product) dot() bool { return p.Batch == 1 && p.M == 1 && p.N == 1 }

// Plan implements [Planner].
func (p Product) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if p.dot() {
		return reduce.Dot(dev, p.Dtype, 1, p.K), nil
	}
	return MatMulIn(dev, p.Precision, p.Dtype, p.Batch, p.M, p.N, p.K, p.TransA, p.TransB, p.epilogue), nil
}
