// Package exprtest draws random expressions for tests, and evaluates them one operation at a time.
package exprtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// Term is an expression as a tree: an operand, a number, a conversion or an operation.
type Term struct {
	Kind  Kind
	Dtype expr.Dtype
	Op    expr.Op // of an Operation
	Index int     // of an Operand
	Value float64 // of a Number
	Args  []*Term
}

// Kind is the sort of a term.
type Kind int

// The sorts of terms.
const (
	Operand Kind = iota
	Number
	Conversion
	Operation
)

// Exact are the operations with one right result, Inexact those that backends may round differently.
var (
	Exact, Inexact = expr.Ops()
	compare        = []expr.Op{expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge}
)

// Draw draws a term of a floating-point type over operands of those types, of up to size operations.
func Draw(t *rapid.T, operands []expr.Dtype, d expr.Dtype, ops []expr.Op, size int) *Term {
	if size == 0 || rapid.IntRange(0, 9).Draw(t, "leaf") == 0 {
		return leaf(t, operands, d)
	}
	op := rapid.SampledFrom(ops).Draw(t, "op")
	term := &Term{Kind: Operation, Dtype: d, Op: op}
	rest := size - 1
	for i := range op.Arity() {
		part := rest / (op.Arity() - i)
		rest -= part
		if op == expr.Select && i == 0 {
			term.Args = append(term.Args, condition(t, operands, ops, part))
		} else {
			term.Args = append(term.Args, Draw(t, operands, d, ops, part))
		}
	}
	return term
}

// leaf draws an operand or a number, converted to d where it is of another type.
func leaf(t *rapid.T, operands []expr.Dtype, d expr.Dtype) *Term {
	i := rapid.IntRange(-1, len(operands)-1).Draw(t, "operand")
	if i < 0 {
		v := rapid.SampledFrom([]float64{0, 1, -1, 2, 0.5, -3.25, 1e-3, 1e30}).Draw(t, "number")
		if d == expr.Float32 {
			v = float64(float32(v))
		}
		return &Term{Kind: Number, Dtype: d, Value: v}
	}
	return converted(&Term{Kind: Operand, Dtype: operands[i], Index: i}, d)
}

// converted returns a term as one of type d.
func converted(x *Term, d expr.Dtype) *Term {
	if x.Dtype == d {
		return x
	}
	return &Term{Kind: Conversion, Dtype: d, Args: []*Term{x}}
}

// condition draws a term of Bool: a comparison, or an operand.
func condition(t *rapid.T, operands []expr.Dtype, ops []expr.Op, size int) *Term {
	if i := rapid.IntRange(0, len(operands)).Draw(t, "condition"); i < len(operands) && operands[i] == expr.Bool {
		return &Term{Kind: Operand, Dtype: expr.Bool, Index: i}
	}
	d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float64}).Draw(t, "dtype")
	return &Term{Kind: Operation, Dtype: expr.Bool, Op: rapid.SampledFrom(compare).Draw(t, "comparison"),
		Args: []*Term{Draw(t, operands, d, ops, size/2), Draw(t, operands, d, ops, size-size/2)}}
}

// Func returns the function of operands of those types whose outputs are the terms.
func Func(operands []expr.Dtype, outputs ...*Term) (expr.Func, error) {
	b := expr.NewBuilder(operands...)
	values := make([]expr.Value, len(outputs))
	for i, t := range outputs {
		values[i] = t.build(b)
	}
	return b.Func(values...)
}

func (t *Term) build(b *expr.Builder) expr.Value {
	args := make([]expr.Value, len(t.Args))
	for i, a := range t.Args {
		args[i] = a.build(b)
	}
	switch t.Kind {
	case Operand:
		return b.Operand(t.Index)
	case Number:
		return b.Constant(t.Dtype, t.Value)
	case Conversion:
		return b.Convert(args[0], t.Dtype)
	}
	return b.Apply(t.Op, args...)
}

// Apply runs one operation on whole operands, which hold the elements' values.
type Apply func(f expr.Func, operands ...[]float64) ([]float64, error)

// Unfused evaluates the term one operation at a time, on operands given by the memory of their elements: exact operations here, element by
// element and without code of package expr, the others by apply.
func (t *Term) Unfused(n int, operands [][]uint64, apply Apply) ([]uint64, error) {
	switch t.Kind {
	case Operand:
		return operands[t.Index], nil
	case Number:
		return slices.Repeat([]uint64{convertBits(expr.Float64, t.Dtype, math.Float64bits(t.Value))}, n), nil
	}
	args := make([][]uint64, len(t.Args))
	for i, a := range t.Args {
		var err error
		if args[i], err = a.Unfused(n, operands, apply); err != nil {
			return nil, err
		}
	}
	if t.Kind == Operation && (slices.Contains(Inexact, t.Op) || reduces(t.Op)) {
		return t.applied(args, apply)
	}
	out, x := make([]uint64, n), make([]uint64, len(args))
	for i := range out {
		for k := range args {
			x[k] = args[k][i]
		}
		out[i] = t.exact(x)
	}
	return out, nil
}

// applied runs the term's operation by apply.
func (t *Term) applied(args [][]uint64, apply Apply) ([]uint64, error) {
	types, values := make([]expr.Dtype, len(args)), make([][]float64, len(args))
	for i, a := range t.Args {
		types[i], values[i] = a.Dtype, Unpack(a.Dtype, PackBits(a.Dtype, args[i]))
	}
	b := expr.NewBuilder(types...)
	f, err := b.Func(b.Apply(t.Op, b.Inputs()...))
	if err != nil {
		return nil, err
	}
	out, err := apply(f, values...)
	if err != nil {
		return nil, err
	}
	return UnpackBits(t.Dtype, Pack(t.Dtype, out)), nil
}

// reduces reports whether an operation takes a whole row.
func reduces(op expr.Op) bool { return op == expr.RowSum || op == expr.RowMax || op == expr.RowMin }

// Edges are the special values of functions.
var Edges = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, 3, -3, math.Inf(1), math.Inf(-1), math.NaN(), math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126, 1e-310, 1e-40, math.MaxFloat32, -math.MaxFloat32, math.MaxFloat64, -math.MaxFloat64,
	1e-8, -1e-8, 88.7, -88.7, 103.9, -103.9, 709.7, -745.1, 0x1p31, -0x1p31, 0x1p53, 105615, 1e22, math.Pi, math.Nextafter(1, 2), math.Nextafter(1, 0), 8388609}

// Values draws n elements of a type, often edges.
func Values(t *rapid.T, d expr.Dtype, n int) []float64 {
	return rapid.SliceOfN(Value(d), n, n).Draw(t, fmt.Sprint(d))
}

// Value draws an element of a type.
func Value(d expr.Dtype) *rapid.Generator[float64] {
	switch d {
	case expr.Bool:
		return rapid.SampledFrom([]float64{0, 1})
	case expr.Uint8:
		return rapid.Map(rapid.Uint8(), func(v uint8) float64 { return float64(v) })
	case expr.Int32, expr.Int64, expr.Int:
		return rapid.Map(rapid.Int32(), func(v int32) float64 { return float64(v) })
	}
	return rapid.Custom(func(t *rapid.T) float64 {
		v := rapid.OneOf(rapid.SampledFrom(Edges), rapid.Float64Range(-10, 10), rapid.Float64()).Draw(t, "value")
		if d == expr.Float32 {
			v = float64(float32(v))
		}
		return v
	})
}
