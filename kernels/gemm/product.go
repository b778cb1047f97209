package gemm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Form is how the elements of an operand are stored.
type Form uint8

// The forms; see [Prepare].
const (
	Plain     Form = iota // elements of the product's type
	TF32                  // float32 rounded to TF32
	BF16                  // float32 rounded to BF16
	F16                   // float32 rounded to F16
	BF16Split             // float32 as three BF16 matrices that add up to it
)

// String names the form.
func (f Form) String() string {
	if f == BF16Split {
		return "planes"
	}
	return kernels.Precision(f).String()
}

// half returns the type of 16 bits in which a form has its elements; ok is false for the other forms.
func (f Form) half() (d kernels.Dtype, ok bool) { return kernels.Precision(f).Half() }

// Operand describes a batch of matrices in memory.
type Operand struct {
	Trans       bool  // the transposes are stored
	Row, Matrix int64 // elements from row to row and from matrix to matrix; 0: dense
	Shared      bool  // one matrix is multiplied by all of the other operand
	Form        Form
	Ranges      int64 // not 0: the form is BF16Split, and a generated kernel has stored the splits with so many ranges, see [codegen.MapSplit]
}

// strides returns the elements from row to row and from matrix to matrix.
func (o Operand) strides(rows, cols int64) (row, matrix int64) {
	if o.Trans {
		rows, cols = cols, rows
	}
	if row = cmp.Or(o.Row, cols); o.Shared {
		return row, 0
	}
	return row, cmp.Or(o.Matrix, rows*row)
}

// extent returns the elements from the first of an operand to its last.
func (o Operand) extent(batch, rows, cols int64) int64 {
	if min(batch, rows, cols) == 0 {
		return 0
	}
	row, matrix := o.strides(rows, cols)
	if o.Trans {
		rows, cols = cols, rows
	}
	return (batch-1)*matrix + (rows-1)*row + cols
}

// Product plans C = op(A) op(B) for each matrix of a batch, row-major:
//
//	c[i][j] = sum over l of opA[i][l] * opB[l][j]
//
// C is M x N, op(A) is M x K and op(B) is K x N. With K = 0, C is zero. A vector is a matrix of one column or one row. Round says to what
// operands of float32 may be rounded; on the host all of them are, on a GPU none of a product that a float32 kernel computes about as fast.
// The plan's inputs are A and B, the operands of the function that [Product.With] has added, and operands in the form BF16Split, whose
// matrices are inputs 0 and 1 as well; on a device without kernels for splits the plan does not read them. Splits with Ranges are input 0 or 1 themselves.
type Product struct {
	Dtype          kernels.Dtype
	Batch, M, N, K int64
	A, B           Operand
	Round          kernels.Precision
	Also           Form // of a second output with the elements of C, see [Product.AlsoIn]; Plain: there is none
	C              Form // BF16 or F16: C is stored so, see [Product.Stored]
	epilogue       epilogue
}

// String names the product with the operands that are stored transposed, its precision if it is not full, and the
// function of its elements c with operands x0 and x1.
func (p Product) String() string {
	name := "product"
	var notes []string
	if p.A.Trans {
		notes = append(notes, "TransA")
	}
	if p.B.Trans {
		notes = append(notes, "TransB")
	}
	if p.Round != kernels.FullPrecision {
		notes = append(notes, p.Round.String())
	}
	if len(notes) > 0 {
		name += "[" + strings.Join(notes, " ") + "]"
	}
	if p.HasEpilogue() {
		name += " " + p.epilogue.String()
	}
	switch {
	case p.split():
		name += " of planes"
	case p.rounded():
		name += " of rounded"
	}
	if p.Also != Plain {
		name += ", and rounded"
	}
	if p.C != Plain {
		name += " to " + p.C.String()
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

// split and rounded report whether operands are in such a form.
func (p Product) split() bool   { return p.A.Form == BF16Split || p.B.Form == BF16Split }
func (p Product) rounded() bool { return !p.split() && (p.A.Form != Plain || p.B.Form != Plain) }

func (p Product) strided() bool { return p.A.Row|p.A.Matrix|p.B.Row|p.B.Matrix != 0 }
func (p Product) shared() bool  { return p.A.Shared || p.B.Shared }

func (p Product) problem(dev kernels.Device) problem {
	if p.K == 0 { // operands without elements
		p.A.Row, p.A.Matrix, p.B.Row, p.B.Matrix = 0, 0, 0, 0
	}
	return problem{Product: p, dev: dev, a: kernels.In(0), b: kernels.In(1), c: out}
}

// splitsSave reports whether a product takes at most four fifths of its predicted time if its operands are there as splits. A Map stores them, or other products read them too.
//
// 256 x 4096 x 1024, A^T, H200: 32.4 us of splits, 44.3 by the model of tall_hopper128_f32
func (p Product) splitsSave(dev kernels.Device) bool {
	const most = 0.8
	split := p
	split.A.Form, split.B.Form = BF16Split, BF16Split
	us := split.Predicted(dev)
	return us > 0 && us < most*p.Predicted(dev)
}

// Wants returns the forms in which kernels of a device read the operands of a product, Plain if they read them as they are. A larger
// operand that is in BF16 already makes BF16 worth it for fewer rows or columns.
func (p Product) Wants(dev kernels.Device) (a, b Form) {
	x := p.problem(dev)
	if p.dot() || min(p.Batch, p.M, p.N, p.K) < 1 {
		return Plain, Plain
	}
	if x.predictable() && !p.rounded() { // programs store operands in 16 bits by the limits
		switch c, _, _ := x.fastest(Plain); {
		case c == nil:
			return Plain, Plain
		case c.form == Plain && p.splitsSave(dev):
			return BF16Split, BF16Split
		default:
			return c.form, c.form
		}
	}
	var as problem // one for all candidates, whose functions let it escape
	for _, group := range table {
		for i := range group {
			c := group[i]
			as = c.oriented(x)
			if c.form != Plain && (c.form == BF16Split) == (p.Round == kernels.FullPrecision) && c.can(&as) && c.pays(&as) {
				if d, _ := c.cut(c, &as); c.launchable(&as, d) {
					return c.form, c.form
				}
			}
		}
	}
	return Plain, Plain
}

// ReadsStrides reports whether the kernel that a device runs for operands in row-major order reads operands with strides, too.
func (p Product) ReadsStrides(dev kernels.Device) bool {
	if min(p.Batch, p.M, p.N, p.K) < 1 {
		return false
	}
	c, _, _ := choose(p.problem(dev))
	return c != nil && c.strided
}

// AlsoIn returns a product of rounded operands with a second output: C as [Prepare] writes it. It returns false if the kernel cannot
// write that on a device: in TF32, if rows are not a multiple of 8 elements, and if another launch adds splits of K up.
func (p Product) AlsoIn(f Form, dev kernels.Device) (Product, bool) {
	if _, half := f.half(); !half || p.C != Plain || !p.rounded() || f != Form(p.Round) || p.N%8 != 0 {
		return p, false
	}
	if c, _, d := choose(p.problem(dev)); c == nil || c.able.plain || d.partials > 1 {
		return p, false
	}
	p.Also = f
	return p, true
}

// splits returns how many splits of K the kernel for a product has by the limits, which fill the device; 0 without a kernel.
func (p Product) splits(dev kernels.Device) int64 {
	c, _, d := p.problem(dev).first()
	if c == nil || c.able.plain {
		return 0
	}
	return max(d.partials, 1)
}

// maxUnsplit is the most splits of K that a product would have on its own for which it has none because C or an operand of its epilogue is
// in 16 bits. Where clusters add up parts of K it is maxJoined.
const maxUnsplit, maxJoined = 2, 16

// Stored returns a product of operands in BF16 or F16 that stores C as float32 or in the operands' type, and whose epilogue reads operands
// stored in these types. It returns false if no kernel of a device does: C in 16 bits has rows of a multiple of 8 elements, and K must not need more splits
// than the kernel itself adds up.
func (p Product) Stored(c kernels.Dtype, operands []kernels.Dtype, dev kernels.Device) (Product, bool) {
	p.C, p.epilogue.types = Plain, nil
	half, ok := p.Round.Half()
	if c == kernels.Float32 && !slices.ContainsFunc(operands, isHalf) {
		return p, true
	}
	n, most := p.splits(dev), int64(maxUnsplit)
	if isHopper(dev) {
		most = maxJoined
	}
	if !ok || !p.rounded() || p.Also != Plain || c != kernels.Float32 && (c != half || p.N%8 != 0) || n == 0 || n > most ||
		slices.ContainsFunc(operands, func(d kernels.Dtype) bool { return d != half && d != kernels.Float32 }) {
		return p, false
	}
	if c == half {
		p.C = Form(p.Round)
	}
	p.epilogue.types = operands
	return p, true
}

func isHalf(d kernels.Dtype) bool { return d == expr.BF16 || d == expr.F16 }

// halves reports whether C or an operand of the epilogue is in 16 bits.
func (p Product) halves() bool { return p.C != Plain || slices.ContainsFunc(p.epilogue.types, isHalf) }

// check returns an error if there are no such operands.
func (p Product) check(dev kernels.Device) error {
	for i, o := range [2]Operand{p.A, p.B} {
		cols := []int64{p.K, p.N}[i]
		if o.Trans {
			cols = []int64{p.M, p.K}[i]
		}
		switch {
		case o.Row != 0 && o.Row < cols || o.Matrix < 0:
			return fmt.Errorf("%v: operand %d: got rows %d and matrices %d elements apart, want at least %d and 0", p, i, o.Row, o.Matrix, cols)
		case o.Form != Plain && (p.Dtype != kernels.Float32 || min(p.Batch, p.M, p.N, p.K) < 1 || p.strided() || p.shared()):
			return fmt.Errorf("%v: operand %d: got the form %v for %d matrices of %d x %d x %d of %v, want float32, 1 or more of each and no strides", p, i, o.Form, p.Batch, p.M, p.K, p.N, p.Dtype)
		case o.Ranges != 0 && (o.Form != BF16Split || p.Batch != 1 || cols%8 != 0):
			return fmt.Errorf("%v: operand %d: got %d ranges of the form %v for %d matrices of %d columns, want splits of one matrix and a multiple of 8", p, i, o.Ranges, o.Form, p.Batch, cols)
		case p.rounded() && o.Form != Form(p.Round):
			return fmt.Errorf("%v: operand %d: got the form %v, want %v, as it rounds both", p, i, o.Form, p.Round)
		}
	}
	if p.halves() {
		c := kernels.Float32
		if p.C != Plain {
			c, _ = p.C.half()
		}
		alone := p
		alone.Also = Plain
		if _, ok := alone.Stored(c, p.epilogue.types, dev); !ok || p.C != Plain && p.C != Form(p.Round) {
			return fmt.Errorf("%v cannot store its result in %v with operands of its epilogue in %v", p, p.C, p.epilogue.types)
		}
	}
	if p.Also != Plain {
		if _, ok := p.AlsoIn(p.Also, dev); !ok {
			return fmt.Errorf("%v cannot write its result in %v", p, p.Also)
		}
	}
	return nil
}

// Plan implements [kernels.Planner].
func (p Product) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if err := p.check(dev); err != nil {
		return nil, err
	}
	plan := newPlan(p)
	if p.Also != Plain {
		plan.Parts, plan.Out = arith.LayOut([]int64{plan.Out, plan.Out / 2})
	}
	if plan.Out > 0 {
		x := p.problem(dev)
		c, as, d := choose(x)
		if c == nil && p.split() {
			x.joinSplits(plan)
			c, as, d = choose(x)
		}
		if c != nil {
			c.emit(plan, &as, d)
		} else if c = x.emitInParts(plan); c == nil {
			return nil, fmt.Errorf("%v: no kernel for %s multiplies %d matrices of %d x %d x %d of %v in launches of at most %d blocks", p, dev.Name, p.Batch, p.M, p.K, p.N, p.Dtype, math.MaxInt32)
		}
		if c.rounds {
			plan.Op, plan.Precision = plan.Op+" in "+p.Round.String(), p.Round
		}
	}
	p.finish(plan)
	return plan, nil
}

// emitInParts appends the launches of parts of a batch, of which one launch would have too many blocks: the fewest that kernels compute. It returns the candidate, nil if there is none.
func (x problem) emitInParts(plan *kernels.Plan) *candidate {
	const maxParts = 64
	if x.A.Form != Plain || x.B.Form != Plain || x.Also != Plain || x.halves() {
		return nil
	}
	for parts := int64(2); parts <= maxParts && parts < x.Batch; parts *= 2 {
		each := kernels.CeilDiv(x.Batch, parts)
		if c, _, _ := choose(x.part(0, each)); c != nil {
			x.emitParts(plan, each)
			return c
		}
	}
	return nil
}

// emitParts appends the launches of parts of a batch of so many matrices.
func (x problem) emitParts(plan *kernels.Plan, each int64) {
	for from := int64(0); from < x.Batch; from += each {
		c, as, d := choose(x.part(from, min(each, x.Batch-from)))
		c.emit(plan, &as, d)
	}
}

// part returns the problem of n matrices of a batch.
func (x problem) part(from, n int64) problem {
	_, a := x.A.strides(x.M, x.K)
	_, b := x.B.strides(x.K, x.N)
	x.a.Offset, x.b.Offset, x.c.Offset = x.a.Offset+from*a*x.size(), x.b.Offset+from*b*x.size(), x.c.Offset+from*x.M*x.N*x.size()
	x.Batch, x.epilogue.operands = n, slices.Clone(x.epilogue.operands)
	for i := range x.epilogue.operands {
		x.epilogue.operands[i].Offset += from * int64(x.epilogue.operands[i].Strides[0])
	}
	return x
}

// newPlan returns the plan of a product without its launches.
func newPlan(p Product) *kernels.Plan {
	op, size := "", p.Dtype.Size()
	if p.Batch != 1 {
		op = fmt.Sprintf("%d x ", p.Batch)
	}
	plan := &kernels.Plan{
		Op:     fmt.Sprintf("matmul_%v(%s%dx%d * %dx%d)", p.Dtype, op, p.M, p.K, p.K, p.N),
		Inputs: []int64{p.A.extent(p.Batch, p.M, p.K) * size, p.B.extent(p.Batch, p.K, p.N) * size},
		Out:    p.Batch * p.M * p.N * size,
		Flops:  2 * p.Batch * p.M * p.N * p.K,
	}
	if p.C != Plain {
		plan.Out /= 2
	}
	if p.rounded() {
		for i, x := range p.Prepares(Form(p.Round)) {
			plan.Inputs[i] = x.bytes()
		}
	}
	for i, o := range [2]Operand{p.A, p.B} {
		if o.Ranges > 0 {
			plan.Inputs[i] = codegen.SplitBytes(plan.Inputs[i] / size)
		}
	}
	return plan
}

// finish makes the epilogue, splits of operands and the second output part of a plan.
func (p Product) finish(plan *kernels.Plan) {
	var follow []func(func(kernels.Call)) func(kernels.Call) // Go bodies of what the last launch does to C
	if p.HasEpilogue() {
		plan.Op += " " + p.epilogue.String()
		plan.Flops += p.Batch * p.M * p.N * int64(p.epilogue.f.Operations())
		for i, v := range p.epilogue.operands {
			plan.Inputs = append(plan.Inputs, v.Elements*p.epilogue.dtype(i, p.Dtype).Size())
		}
		follow = append(follow, p.epilogueBody)
	}
	for i, o := range [2]Operand{p.A, p.B} {
		if o.Form == BF16Split && o.Ranges == 0 {
			plan.Inputs = append(plan.Inputs, p.Prepares(BF16Split)[i].allBytes())
		}
	}
	if p.Also != Plain {
		follow = append(follow, p.alsoBody)
	}
	if p.C != Plain {
		follow = append(follow, p.storedBody)
	}
	for _, f := range follow {
		if n := len(plan.Launches); n > 0 {
			last := plan.Launches[n-1].Kernel
			plan.Launches[n-1].Kernel = &kernels.Kernel{Image: last.Image, Entry: last.Entry, Body: f(last.Body)}
		}
	}
}
