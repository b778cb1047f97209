package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// Rounded is the plan of an operand of a product in TF32 or BF16 as a [Planner]: it brings a batch of float32 matrices to the type and
// the layout that [RoundedProduct] reads. One operand can be rounded for several products.
//
// BF16 is written as the matrices lie, its rows a multiple of 8 elements apart. TF32 stays float32 in memory, rows a multiple of 4
// apart, and transposed with Trans; on devices of compute capability 9.0 the bits beyond TF32's are cut where products read it.
type Rounded struct {
	Precision         kernels.Precision
	Batch, Rows, Cols int64
	Trans             bool // of TF32 alone
}

// String names the precision.
func (x Rounded) String() string {
	if x.Trans {
		return fmt.Sprintf("rounded[%v Trans]", x.Precision)
	}
	return fmt.Sprintf("rounded[%v]", x.Precision)
}

// Result returns the type and the shape of the rounded matrices: rows of bytes in BF16.
func (x Rounded) Result() (kernels.Dtype, []int) {
	lines, _ := x.extents()
	if x.Precision == kernels.BF16 {
		return kernels.Uint8, []int{int(x.Batch * lines), int(2 * x.pitch())}
	}
	return kernels.Float32, []int{int(x.Batch * lines), int(x.pitch())}
}

// Plan implements [Planner].
func (x Rounded) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if x.Precision != kernels.TF32 && x.Precision != kernels.BF16 || x.Trans && x.Precision != kernels.TF32 || min(x.Batch, x.Rows, x.Cols) < 1 {
		return nil, fmt.Errorf("got %v of %d x %d x %d elements, want TF32 or BF16 of 1 or more", x, x.Batch, x.Rows, x.Cols)
	}
	p := &kernels.Plan{
		Op:     fmt.Sprintf("%v(%d x %dx%d)", x, x.Batch, x.Rows, x.Cols),
		Inputs: []int64{x.Batch * x.Rows * x.Cols * kernels.Float32.Size()},
		Out:    x.bytes(), Precision: x.Precision,
	}
	appendRound(p, dev, x.Precision, []rounding{{x, kernels.In(0), out}})
	return p, nil
}

// extents returns the rows and columns of a matrix that is written.
func (x Rounded) extents() (rows, cols int64) {
	if x.Trans {
		return x.Cols, x.Rows
	}
	return x.Rows, x.Cols
}

// size returns the size of an element in bytes.
func (x Rounded) size() int64 {
	if x.Precision == kernels.BF16 {
		return 2
	}
	return 4
}

// pitch returns how many elements rows are apart: they start 16-byte aligned, as TMA wants.
func (x Rounded) pitch() int64 {
	_, cols := x.extents()
	width := 16 / x.size()
	return kernels.CeilDiv(cols, width) * width
}

func (x Rounded) bytes() int64 {
	rows, _ := x.extents()
	return x.Batch * rows * x.pitch() * x.size()
}

// lies reports whether the matrices already are what would be written: TMA rounds to TF32 as it copies, while kernels of other
// devices want rounded numbers.
func (x Rounded) lies(dev kernels.Device) bool {
	return x.Precision == kernels.TF32 && !x.Trans && x.pitch() == x.Cols && tensorCoresOf(dev) == hopperCores
}

// tensorMap returns the map from which a block copies pieces of that many lines, a multiple of 64, by 128 bytes
// along k. along reports whether rows run along k.
func (x Rounded) tensorMap(at kernels.Ref, along bool, lines int64) kernels.TensorMap {
	element, terms := kernels.TensorBF16, 128/x.size()
	if x.Precision == kernels.TF32 {
		element = kernels.TensorTF32
	}
	box := []int64{64, terms, 1, 1}
	if along {
		box = []int64{terms, lines, 1, 1}
	}
	rows, cols := x.extents()
	row, matrix := x.pitch()*x.size(), rows*x.pitch()*x.size()
	return kernels.TensorMap{Ref: at, Element: element, Extents: []int64{cols, rows, 1, x.Batch}, Strides: []int64{row, matrix, matrix}, Box: box, Swizzle: 128}
}

// reducedOperands returns the operands of a product in a precision, and which of them its kernel takes transposed.
func reducedOperands(by kernels.Precision, batch, m, n, k int64, transA, transB bool) (operands [2]Rounded, takesA, takesB bool) {
	for i, x := range hopperOperands(batch, m, n, k, transA, transB) {
		operands[i] = Rounded{Precision: by, Batch: x.Batch, Rows: x.Rows, Cols: x.Cols}
	}
	if by == kernels.BF16 {
		return operands, transA, transB
	}
	operands[0].Trans, operands[1].Trans = transA, !transB // terms side by side
	return operands, false, true
}

// RoundedProduct is a [Product] of operands that [Rounded] has written, if its precision asks for it, as a [Planner]. With Halves
// it has a second output: the first one as Rounded would write it.
type RoundedProduct struct {
	Product
	Halves bool
}

// String names the product.
func (p RoundedProduct) String() string {
	if p.Halves {
		return p.Product.String() + " of rounded, and rounded"
	}
	return p.Product.String() + " of rounded"
}

// Plan implements [Planner].
func (p RoundedProduct) Plan(dev kernels.Device) (*kernels.Plan, error) {
	batch, m, n, k := p.Batch, p.M, p.N, p.K
	switch {
	case p.Precision != kernels.TF32 && p.Precision != kernels.BF16 || min(batch, m, n, k) < 1:
		return nil, fmt.Errorf("got %v of %d matrices of %d x %d x %d, want TF32 or BF16 of 1 or more of each", p, batch, m, k, n)
	case p.Halves && !p.canHalve(dev):
		return nil, fmt.Errorf("%v cannot write its result in BF16", p)
	}
	plan := newMatMul(kernels.Float32, batch, m, n, k)
	operands, transA, transB := reducedOperands(p.Precision, batch, m, n, k, p.TransA, p.TransB)
	plan.Inputs = []int64{operands[0].bytes(), operands[1].bytes()}
	half := out
	if p.Halves {
		plan.Parts, plan.Out = kernels.LayOut([]int64{plan.Out, plan.Out / 2})
		half.Offset = plan.Parts[1]
	}
	appendReducedProduct(plan, dev, result{kernels.Float32, batch, m, n, p.epilogue}, operands, [2]kernels.Ref{{Operand: 0, Offset: 0}, {Operand: 1, Offset: 0}}, k, transA, transB, half, p.Halves)
	appendEpilogue(plan, p.epilogue, kernels.Float32, batch, m, n)
	if p.Halves {
		last := &plan.Launches[len(plan.Launches)-1]
		last.Kernel = &kernels.Kernel{Image: last.Kernel.Image, Entry: last.Kernel.Entry, Body: halvesBody(last.Kernel.Body)}
	}
	return plan, nil
}

// Rounding returns the product with its result rounded as a second output. It returns false if its kernel cannot write that on a
// device: in TF32, if rows are not a multiple of 8 elements, and if splits of sums are added up in another launch.
func (p RoundedProduct) Rounding(dev kernels.Device) (RoundedProduct, bool) {
	if !p.canHalve(dev) {
		return p, false
	}
	p.Halves = true
	return p, true
}

func (p RoundedProduct) canHalve(dev kernels.Device) bool {
	if p.Precision != kernels.BF16 || p.N%8 != 0 {
		return false
	}
	f, splits := reducedPolicies.On(dev).form(dev, kernels.BF16, result{kernels.Float32, p.Batch, p.M, p.N, p.epilogue}, p.K)
	return max(splits.splits(dev, f.tiles(p.Batch, p.M, p.N), p.K), kernels.CeilDiv(p.K, mostTerms)) == 1
}

// Rounds returns the roundings of the two operands of a product on a device, nil for an operand that can be read as it
// lies, and reports whether the product is then a [RoundedProduct]: else the device computes it in full precision. With given the
// larger operand is written rounded in any case.
func (p Product) Rounds(dev kernels.Device, given bool) (operands [2]*Rounded, ok bool) {
	if p.dot() || p.Dtype != kernels.Float32 || !reducedFits(dev, p.Precision, p.Batch, p.M, p.N, p.K, given) {
		return operands, false
	}
	list, _, _ := reducedOperands(p.Precision, p.Batch, p.M, p.N, p.K, p.TransA, p.TransB)
	for i, x := range list {
		if !x.lies(dev) {
			operands[i] = &x
		}
	}
	return operands, true
}
