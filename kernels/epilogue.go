package kernels

import (
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Form is a function that product kernels apply to each sum c before they write it, of
// up to two further operands x and y. Its upper digit is how many it has. Kernels are
// compiled, so there are few.
type Form int32

// The forms, as matmul_epilogue.cuh numbers them.
const (
	formNone      Form = 0x00
	formRectified Form = 0x01
	formTanh      Form = 0x02
	formSigmoid   Form = 0x03

	formPlus          Form = 0x10
	formPlusRectified Form = 0x11
	formPlusTanh      Form = 0x12
	formPlusSigmoid   Form = 0x13
	formTimes         Form = 0x14
	formTimesStep     Form = 0x15
	formTimesTanh     Form = 0x16

	formPlusPlus          Form = 0x20
	formPlusPlusRectified Form = 0x21
	formPlusPlusTanh      Form = 0x22
	formPlusPlusSigmoid   Form = 0x23
	formTimesSigmoid      Form = 0x24
)

// formTexts are what the forms compute, in the language of [expr.Parse], whose
// arithmetic is theirs: every operation rounds, none is contracted.
//
// A rectifier is (t + 0) * (0 <= t), as Gorgonia makes it but for t = -0, which becomes
// +0. So a result tells whether t was below zero: it is -0 then, and its derivative is
// 0 <= 1 / x for the result x.
var formTexts = map[Form]string{
	formRectified: "(c + 0) * (0 <= c)",
	formTanh:      "tanh(c)",
	formSigmoid:   "sigmoid(c)",

	formPlus:          "c + x",
	formPlusRectified: "(c + x + 0) * (0 <= c + x)",
	formPlusTanh:      "tanh(c + x)",
	formPlusSigmoid:   "sigmoid(c + x)",
	formTimes:         "c * x",
	formTimesStep:     "c * (0 <= 1 / x)",
	formTimesTanh:     "c * (1 - x * x)",

	formPlusPlus:          "c + x + y",
	formPlusPlusRectified: "(c + x + y + 0) * (0 <= c + x + y)",
	formPlusPlusTanh:      "tanh(c + x + y)",
	formPlusPlusSigmoid:   "sigmoid(c + x + y)",
	formTimesSigmoid:      "c * (x * sigmoid(-y))",
}

// operands returns how many operands the form has beside c.
func (f Form) operands() int { return int(f >> 4) }

// formNames are the operands' names in formTexts.
var formNames = []string{"c", "x", "y"}

// forms are the forms by their functions, whose sums and products are sorted.
var forms = sync.OnceValue(func() map[expr.Func]Form {
	list := map[expr.Func]Form{}
	for form, text := range formTexts {
		for _, dt := range []Dtype{Float32, Float64} {
			f, err := expr.Parse(text, dt, formNames[:form.operands()+1]...)
			if err != nil {
				panic("kernels: " + text + ": " + err.Error()) // TestForms reads them all
			}
			list[f.Sorted()] = form
		}
	}
	return list
})

// Epilogue is a function of the elements of a product and of operands, of one of the
// forms that product kernels have. The zero Epilogue is none.
type Epilogue struct {
	form     Form
	f        expr.Func // of the element, then the operands
	operands []View    // strided by matrix, row and column: inputs 2 and 3 of the plan
	slots    []int     // the operand that is x, the one that is y
}

// newEpilogue returns the epilogue that is f, whose first operand is the product's
// element, or false if no form computes it. Forms take the operands of sums and products
// in any order.
func newEpilogue(f expr.Func, operands []View) (Epilogue, bool) {
	types, outputs := f.Operands(), f.Outputs()
	if len(types) != len(operands)+1 || len(types) > len(formNames) || len(outputs) != 1 || f.Operations() > mostFormOperations {
		return Epilogue{}, false
	}
	orders := [][]int{{}, {0}, {0, 1}}[len(operands):][:1]
	if len(operands) == 2 {
		orders = append(orders, []int{1, 0})
	}
	for _, slots := range orders {
		b := expr.NewBuilder(types...)
		args := []expr.Value{b.Operand(0)}
		for i := range operands {
			args = append(args, b.Operand(slices.Index(slots, i)+1))
		}
		named, err := b.Func(b.Inline(f, args...)...)
		if form, known := forms()[named.Sorted()]; err == nil && known {
			return Epilogue{form, f, operands, slots}, true
		}
	}
	return Epilogue{}, false
}

// mostFormOperations is the most operations of a form.
const mostFormOperations = 8

// transposed returns the epilogue for C written transposed.
func (e Epilogue) transposed() Epilogue {
	operands := make([]View, len(e.operands))
	for i, v := range e.operands {
		operands[i] = v
		operands[i].Strides = []int{v.Strides[0], v.Strides[2], v.Strides[1]}
	}
	e.operands = operands
	return e
}

// arguments returns those that a product kernel takes last: the form; then, for x and
// y, where it begins and its strides from matrix to matrix, row to row and column to
// column, in elements. Where there is no x or y, a pointer that is not read.
func (e Epilogue) arguments(dt Dtype) []any {
	args := []any{int32(e.form)}
	for slot := range len(formNames) - 1 {
		at, strides := Ref{0, 0}, []int{0, 0, 0}
		if slot < len(e.slots) {
			v := e.operands[e.slots[slot]]
			at, strides = Ref{Operand(2 + e.slots[slot]), v.Offset * dt.Size()}, v.Strides
		}
		args = append(args, at, int64(strides[0]), int64(strides[1]), int64(strides[2]))
	}
	return args
}

// finish makes the epilogue part of the plan of a product whose last launch writes C:
// batch matrices of m x n elements.
func (p *Plan) finish(e Epilogue, dt Dtype, batch, m, n int64) {
	if e.form == formNone {
		return
	}
	p.Op += " " + e.f.Text(formNames...)
	p.Flops += batch * m * n * int64(e.f.Operations())
	for _, v := range e.operands {
		p.Inputs = append(p.Inputs, v.Elements*dt.Size())
	}
	if len(p.Launches) == 0 {
		return
	}
	last := &p.Launches[len(p.Launches)-1]
	last.Args = append(slices.Clip(last.Args), e.arguments(dt)...)
	last.Kernel = &Kernel{last.Kernel.Image, last.Kernel.Entry, e.body(last.Kernel.Body, batch, m, n)}
}

// body is the Go body of a product with the epilogue: the product's, then that of a Map,
// which writes over what it reads.
func (e Epilogue) body(product func(Call), batch, m, n int64) func(Call) {
	shape := []int{int(batch), int(m), int(n)}
	mapped := newMapping(HostDevice(), e.f, shape, append([]View{Dense(shape)}, e.operands...))
	args := mapped.arguments()
	args[0] = Ref{Out, 0}
	for i := range e.operands {
		r := args[1+i].(Ref)
		args[1+i] = Ref{Operand(2 + i), r.Offset}
	}
	launch := &Launch{Args: args}
	return func(c Call) {
		product(c)
		c.Launch = launch
		mapped.body(c)
	}
}
