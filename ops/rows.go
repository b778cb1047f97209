package ops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rowFunc is a function of rows: a Rowwise primitive whose gradient is derived from the function.
type rowFunc struct {
	name  string
	f     expr.Func
	shape tensor.Shape // of the elements
	axes  []int        // of a row, rising
	out   rowOut
	iotas [][]int // operands of f after those of the inputs: see Rows
}

// rowOut is the shape of the output of a rowFunc.
type rowOut uint8

const (
	ofElements rowOut = iota // the shape of the elements
	ofRows                   // the shape without the axes
	ofRowsKept               // the shape with axes of one element instead
)

// newRowFunc returns the function of rows that an expression of a, b, c, ... describes, in the language of expr.ParseRows.
func newRowFunc(name, expression string, operands int, dt kernels.Dtype, shape tensor.Shape, axes []int, out rowOut) (rowFunc, error) {
	f, err := expr.ParseRows(expression, dt, strings.Split(letters[:operands], "")...)
	return rowFunc{name: name, f: f, shape: shape, axes: axes, out: out}, err
}

func (r rowFunc) String() string {
	if len(r.axes) == len(r.shape) {
		return r.name
	}
	return fmt.Sprintf("%s%v", r.name, r.axes)
}

func (r rowFunc) Infer(in ...Type) (Type, error) {
	types := r.f.Operands()
	if want := len(types) - len(r.iotas); len(in) != want {
		return Type{}, fmt.Errorf("got %d inputs, want %d", len(in), want)
	}
	for i, t := range in {
		if t.Dtype != types[i] {
			return Type{}, fmt.Errorf("input %d: got %v, want %v", i, values.Tensor(t.Dtype), values.Tensor(types[i]))
		}
	}
	t := Type{r.f.Outputs()[0], r.shape}
	switch r.out {
	case ofRows:
		t.Shape = without(r.shape, r.axes)
	case ofRowsKept:
		t.Shape = kept(r.shape, r.axes)
	}
	return t, nil
}

func (r rowFunc) Rows(...Type) (Rows, error) {
	return Rows{Func: r.f, Shape: r.shape, Axes: r.axes, PerRow: r.out != ofElements, Iotas: r.iotas}, nil
}

func (r rowFunc) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planRows(r, dev, in)
}

func (r rowFunc) Adjoints(b *Backward) []Term {
	types := r.f.Operands()
	in := make([]Term, len(types)-len(r.iotas))
	repeats := make([]bool, len(types)) // by operand: whether all elements of a row read the same one
	for i := range types {
		var strides []int
		if k := i - len(in); k >= 0 {
			strides = r.iotas[k]
		} else {
			in[i] = b.In(i)
			v, _ := broadcastView(in[i].Type().Shape, r.shape)
			strides = v.Strides
		}
		repeats[i] = !slices.ContainsFunc(r.axes, func(a int) bool { return r.shape[a] != 1 && strides[a] != 0 })
	}
	grad := b.Grad()
	if r.out == ofRows {
		grad = b.reshape(grad, kept(r.shape, r.axes))
	}
	terms := make([]Term, len(in))
	for i := range in {
		if !types[i].IsFloat() || !r.f.Outputs()[0].IsFloat() {
			continue
		}
		f, err := r.f.RowGradient(i, r.out != ofElements, repeats)
		if err == nil {
			f, err = iotasLast(f, len(r.iotas))
		}
		if err != nil {
			return []Term{b.fail("%w", err)}
		}
		out := ofElements
		if repeats[i] {
			out = ofRowsKept
		}
		terms[i] = r.derivative(b, f, out, append(slices.Clone(in), grad), in[i].Type())
	}
	return terms
}

// iotasLast returns a function of operands, n iotas and one more operand with the iotas behind that.
func iotasLast(f expr.Func, n int) (expr.Func, error) {
	if n == 0 {
		return f, nil
	}
	types := f.Operands()
	last := len(types) - 1
	first := last - n // iota
	b := expr.NewBuilder(slices.Concat(types[:first], types[last:], types[first:last])...)
	operands := make([]expr.Value, len(types))
	for i := range types {
		switch {
		case i == last:
			operands[i] = b.Operand(first)
		case i >= first:
			operands[i] = b.Operand(i + 1)
		default:
			operands[i] = b.Operand(i)
		}
	}
	return b.Func(b.Inline(f, operands...)...)
}

// derivative applies the derivative by an input, a function of operands and of iotas.
func (r rowFunc) derivative(b *Backward, f expr.Func, out rowOut, operands []Term, of Type) Term {
	d := rowFunc{name: r.name + "Gradient", shape: r.shape, axes: r.axes, out: out}
	var used []int
	var in []Term
	d.f, used = f.Trim()
	for _, k := range used {
		if k < len(operands) {
			in = append(in, operands[k])
		} else {
			d.iotas = append(d.iotas, r.iotas[k-len(operands)])
		}
	}
	if f.Reductions() == 0 {
		if d.axes = nil; out == ofRowsKept {
			d.shape, d.out = kept(r.shape, r.axes), ofElements
		}
		if d.iotas == nil {
			return adjoint(b, mapping{f: f, shape: d.shape}, operands, of)
		}
	}
	return sumTo(b, b.Apply(d, in...), of.Shape)
}

// rows returns the function of rows that an expression of terms a, b, c, ... describes.
func (b *Backward) rows(name, expression string, shape tensor.Shape, axes []int, out rowOut, terms ...Term) Term {
	r, err := newRowFunc(name, expression, len(terms), terms[0].Type().Dtype, shape, axes, out)
	if err != nil {
		return b.fail("%s: %w", name, err)
	}
	return b.Apply(r, terms...)
}

// elements returns the function of elements that an expression of terms a, b, c, ... describes.
func (b *Backward) elements(expression string, terms ...Term) Term {
	f, err := expr.Parse(expression, b.grad.typ.Dtype, strings.Split(letters[:len(terms)], "")...)
	if err != nil {
		return b.fail("%q: %w", expression, err)
	}
	shapes := make([]tensor.Shape, len(terms))
	for i, t := range terms {
		shapes[i] = t.Type().Shape
	}
	shape, err := broadcastShape(shapes...)
	if err != nil {
		return b.fail("%q: %w", expression, err)
	}
	return b.Apply(mapping{f: f, shape: shape}, terms...)
}

// rowsAlong returns the function of the rows of x along some axes, all of them if none is given.
func rowsAlong(name, expression string, x *gorgonia.Node, along []int, out rowOut) (rowFunc, error) {
	t, axes, err := inputAlong(x, along)
	if err != nil {
		return rowFunc{}, fmt.Errorf("ops: %s%v: %w", name, along, err)
	}
	if t.Shape.IsScalar() { // a row of one element
		t.Shape, axes = tensor.Shape{1}, []int{0}
	}
	r, err := newRowFunc(name, expression, 1, t.Dtype, t.Shape, axes, out)
	if err != nil {
		return r, fmt.Errorf("ops: %s%v: %w", name, along, err)
	}
	return r, nil
}

// inputAlong returns the type of an input of floating-point numbers, and axes of its shape, counted from 0.
func inputAlong(x *gorgonia.Node, along []int) (t Type, axes []int, err error) {
	if t, axes, err = anyInputAlong(x, along); err == nil {
		err = CheckFloats([]Type{t}, 1)
	}
	return t, axes, err
}

// anyInputAlong is inputAlong of an input of any element type.
func anyInputAlong(x *gorgonia.Node, along []int) (t Type, axes []int, err error) {
	types, err := anyTypesOf([]*gorgonia.Node{x})
	if err != nil {
		return t, nil, err
	}
	t = types[0]
	axes, err = axesOf(along, t.Shape)
	return t, axes, err
}
