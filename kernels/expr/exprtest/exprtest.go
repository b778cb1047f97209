// Package exprtest draws random expressions for tests, and evaluates them one
// operation at a time.
package exprtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// Term is an expression as a tree: an operand, a number, a conversion or an
// operation.
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

// Exact are the operations with one right result, Inexact those that backends may round
// differently.
var (
	Exact, Inexact = expr.Ops()
	compare        = []expr.Op{expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge}
)

// Draw draws a term of a floating-point type over operands of those types, of up to
// size operations.
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

// Unfused evaluates the term one operation at a time: exact operations here, element by element and
// without code of package expr, the others by apply.
func (t *Term) Unfused(n int, operands [][]float64, apply Apply) ([]float64, error) {
	switch t.Kind {
	case Operand:
		return operands[t.Index], nil
	case Number:
		out := make([]float64, n)
		for i := range out {
			out[i] = t.Value
		}
		return out, nil
	}
	args, types := make([][]float64, len(t.Args)), make([]expr.Dtype, len(t.Args))
	for i, a := range t.Args {
		v, err := a.Unfused(n, operands, apply)
		if err != nil {
			return nil, err
		}
		args[i], types[i] = v, a.Dtype
	}
	out := make([]float64, n)
	if _, exact := exactly(t.Op, make([]float64, 3)); t.Kind == Conversion || exact {
		x := make([]float64, len(args))
		for i := range out {
			for k := range args {
				x[k] = args[k][i]
			}
			out[i] = x[0]
			if t.Kind == Operation {
				out[i], _ = exactly(t.Op, x)
			}
			if t.Dtype == expr.Float32 {
				out[i] = float64(float32(out[i])) // two roundings equal one: 53 >= 2*24 + 2
			}
		}
		return out, nil
	}
	b := expr.NewBuilder(types...)
	values := make([]expr.Value, len(args))
	for i := range args {
		values[i] = b.Operand(i)
	}
	f, err := b.Func(b.Apply(t.Op, values...))
	if err != nil {
		return nil, err
	}
	return apply(f, args...)
}

// exactly computes an exact operation in double, and reports whether op is one.
func exactly(op expr.Op, x []float64) (float64, bool) {
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	switch op {
	case expr.Neg:
		return -x[0], true
	case expr.Abs:
		return math.Abs(x[0]), true
	case expr.Sign:
		if x[0] == 0 || math.IsNaN(x[0]) {
			return x[0], true
		}
		return math.Copysign(1, x[0]), true
	case expr.Ceil:
		return math.Ceil(x[0]), true
	case expr.Floor:
		return math.Floor(x[0]), true
	case expr.Sqrt:
		return math.Sqrt(x[0]), true
	case expr.Add:
		return x[0] + x[1], true
	case expr.Sub:
		return x[0] - x[1], true
	case expr.Mul:
		return x[0] * x[1], true
	case expr.Div:
		return x[0] / x[1], true
	case expr.Min, expr.Max:
		switch {
		case math.IsNaN(x[0]) || math.IsNaN(x[1]):
			return math.NaN(), true
		case op == expr.Min:
			return math.Min(x[0], x[1]), true
		}
		return math.Max(x[0], x[1]), true
	case expr.Eq:
		return truth(x[0] == x[1]), true
	case expr.Ne:
		return truth(x[0] != x[1]), true
	case expr.Lt:
		return truth(x[0] < x[1]), true
	case expr.Le:
		return truth(x[0] <= x[1]), true
	case expr.Gt:
		return truth(x[0] > x[1]), true
	case expr.Ge:
		return truth(x[0] >= x[1]), true
	case expr.Select:
		if x[0] != 0 {
			return x[1], true
		}
		return x[2], true
	}
	return 0, false
}

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

// Pack returns the memory of elements of a type.
func Pack(d expr.Dtype, values []float64) []byte {
	b := Memory(int64(len(values)) * d.Size())
	le := binary.LittleEndian
	for i, v := range values {
		switch at := b[int64(i)*d.Size():]; d {
		case expr.Float32:
			le.PutUint32(at, math.Float32bits(float32(v)))
		case expr.Float64:
			le.PutUint64(at, math.Float64bits(v))
		case expr.Int32:
			le.PutUint32(at, uint32(int32(v)))
		case expr.Int64, expr.Int:
			le.PutUint64(at, uint64(int64(v)))
		case expr.BF16:
			le.PutUint16(at, uint16(math.Float32bits(float32(v))>>16)) // of a number that BF16 has
		case expr.F16:
			le.PutUint16(at, halves()[v]) // of a number that F16 has
		default:
			at[0] = uint8(v)
		}
	}
	return b
}

// Unpack returns the elements in memory of a type.
func Unpack(d expr.Dtype, b []byte) []float64 {
	values := make([]float64, int64(len(b))/d.Size())
	le := binary.LittleEndian
	for i := range values {
		switch at := b[int64(i)*d.Size():]; d {
		case expr.Float32:
			values[i] = float64(math.Float32frombits(le.Uint32(at)))
		case expr.Float64:
			values[i] = math.Float64frombits(le.Uint64(at))
		case expr.Int32:
			values[i] = float64(int32(le.Uint32(at)))
		case expr.Int64, expr.Int:
			values[i] = float64(int64(le.Uint64(at)))
		case expr.BF16:
			values[i] = float64(math.Float32frombits(uint32(le.Uint16(at)) << 16))
		case expr.F16:
			values[i] = halfValue(le.Uint16(at))
		default:
			values[i] = float64(at[0])
		}
	}
	return values
}

// halfValue is the number that F16 has for some bits.
func halfValue(bits uint16) float64 {
	v := math.Ldexp(float64(bits&0x3ff)+1024, int(bits>>10&31)-25)
	switch bits >> 10 & 31 {
	case 0:
		v = math.Ldexp(float64(bits&0x3ff), -24)
	case 31:
		if v = math.Inf(1); bits&0x3ff != 0 {
			v = math.NaN()
		}
	}
	if bits>>15 == 1 {
		return -v
	}
	return v
}

// halves maps the numbers of F16 to their bits.
var halves = sync.OnceValue(func() map[float64]uint16 {
	bits := map[float64]uint16{}
	for b := range uint32(1 << 16) {
		bits[halfValue(uint16(b))] = uint16(b)
	}
	return bits
})

// Memory returns that many bytes, aligned for every type.
func Memory(bytes int64) []byte {
	words := make([]uint64, bytes/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes)
}

// Same reports whether two elements are the same to the bit; all NaN are.
func Same(x, y float64) bool {
	return math.Float64bits(x) == math.Float64bits(y) || math.IsNaN(x) && math.IsNaN(y)
}
