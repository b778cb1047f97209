package exprtest

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// MixedTypes are the types of operands and values of [DrawMixed].
var MixedTypes = []expr.Dtype{expr.Float32, expr.Float64, expr.Uint8, expr.Int32, expr.Int64, expr.Int, expr.Bool}

var (
	mixedIntegers = []expr.Op{expr.Neg, expr.Abs, expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max, expr.Square, expr.Cube, expr.Select}
	mixedFloats   = []expr.Op{expr.Neg, expr.Abs, expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max, expr.Select}
	mixedBools    = []expr.Op{expr.And, expr.Or, expr.Not, expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge, expr.Select}
)

// DrawMixed draws a term of type d over operands of those types, of up to size operations of integers, Bool and floating-point numbers,
// with conversions between any two types.
func DrawMixed(t *rapid.T, operands []expr.Dtype, d expr.Dtype, size int) *Term {
	if size == 0 {
		return mixedLeaf(t, operands, d)
	}
	if rapid.IntRange(0, 4).Draw(t, "conversion") == 0 {
		return converted(DrawMixed(t, operands, rapid.SampledFrom(MixedTypes).Draw(t, "from"), size-1), d)
	}
	ops := mixedIntegers
	if d == expr.Bool {
		ops = mixedBools
	} else if d.IsFloat() {
		ops = mixedFloats
	}
	op := rapid.SampledFrom(ops).Draw(t, "op")
	term, of, rest := &Term{Kind: Operation, Dtype: d, Op: op}, d, size-1
	switch op {
	case expr.Eq, expr.Ne:
		of = rapid.SampledFrom(MixedTypes).Draw(t, "compared")
	case expr.Lt, expr.Le, expr.Gt, expr.Ge:
		of = rapid.SampledFrom(MixedTypes[:6]).Draw(t, "compared")
	}
	for i := range op.Arity() {
		part, argument := rest/(op.Arity()-i), of
		if rest -= part; op == expr.Select && i == 0 {
			argument = expr.Bool
		}
		term.Args = append(term.Args, DrawMixed(t, operands, argument, part))
	}
	return term
}

func mixedLeaf(t *rapid.T, operands []expr.Dtype, d expr.Dtype) *Term {
	i := rapid.IntRange(-1, len(operands)-1).Draw(t, "operand")
	if i >= 0 {
		return converted(&Term{Kind: Operand, Dtype: operands[i], Index: i}, d)
	}
	v := rapid.SampledFrom([]float64{0, 1, -1, 2, 7, -100, 200, 1e6}).Draw(t, "number")
	if d == expr.Bool || d == expr.Uint8 {
		return converted(&Term{Kind: Number, Dtype: expr.Int32, Value: v}, d)
	}
	return &Term{Kind: Number, Dtype: d, Value: v}
}

// Bits draws the memory of an element of a type, often an edge.
func Bits(t *rapid.T, d expr.Dtype) uint64 {
	if d.IsFloat() {
		edges := append([]float64{127.5, 255, 255.5, 256, -0.99, 2147483647, 2147483648, -2147483648, -2147483904, 0x1p63, 0x1p63 - 1024, -0x1p63, -0x1p64}, Edges...)
		return bitsOf(d, rapid.OneOf(rapid.SampledFrom(edges), rapid.Float64Range(-300, 300), rapid.Float64Range(-1e10, 1e10)).Draw(t, "float"))
	}
	if d == expr.Bool {
		return uint64(rapid.IntRange(0, 1).Draw(t, "bool"))
	}
	v := rapid.OneOf(rapid.SampledFrom([]int64{0, 1, -1, 2, math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32, 1<<53 + 1, 1<<24 + 1, 255}), rapid.Int64Range(-200, 200), rapid.Int64()).Draw(t, "integer")
	return wrapped(d, big.NewInt(v))
}

// bitsOf returns the memory of a number of a floating-point type.
func bitsOf(d expr.Dtype, v float64) uint64 {
	if d == expr.Float32 {
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(v)
}

// floatOf returns the number of a floating-point type with some memory.
func floatOf(d expr.Dtype, bits uint64) float64 {
	if d == expr.Float32 {
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// wrapped returns the memory of an integer of a type, modulo a power of 2.
func wrapped(d expr.Dtype, v *big.Int) uint64 {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*d.Size()))
	return new(big.Int).Mod(v, modulus).Uint64()
}

// integerOf returns the integer of a type, or 0 or 1 of Bool, with some memory.
func integerOf(d expr.Dtype, bits uint64) *big.Int {
	v := new(big.Int).SetUint64(bits)
	if half := new(big.Int).Lsh(big.NewInt(1), uint(8*d.Size()-1)); d.IsInteger() && d != expr.Uint8 && v.Cmp(half) >= 0 {
		v.Sub(v, half.Lsh(half, 1))
	}
	return v
}

// SameBits reports whether two elements of a type have the same memory; all NaN have.
func SameBits(d expr.Dtype, x, y uint64) bool {
	return x == y || d.IsFloat() && math.IsNaN(floatOf(d, x)) && math.IsNaN(floatOf(d, y))
}

// Element evaluates the term for one element of each operand, given by their memory, without code of package expr: integers by
// package big.
func (t *Term) Element(operands []uint64) uint64 {
	args := make([]uint64, len(t.Args))
	for i, a := range t.Args {
		args[i] = a.Element(operands)
	}
	switch {
	case t.Kind == Operand:
		return operands[t.Index]
	case t.Kind == Number:
		return convertBits(expr.Float64, t.Dtype, math.Float64bits(t.Value))
	case t.Kind == Conversion:
		return convertBits(t.Args[0].Dtype, t.Dtype, args[0])
	}
	switch of := t.Args[len(args)-1].Dtype; {
	case t.Op == expr.Select:
		return args[2-args[0]]
	case of.IsFloat():
		x := make([]float64, len(args))
		for i := range x {
			x[i] = floatOf(of, args[i])
		}
		v, _ := exactly(t.Op, x)
		if t.Dtype == expr.Bool {
			return uint64(v)
		}
		return bitsOf(t.Dtype, v)
	default:
		return integrally(t.Op, t.Dtype, of, args)
	}
}

// integrally computes an operation on integers or Bool.
func integrally(op expr.Op, d, of expr.Dtype, args []uint64) uint64 {
	x, y := integerOf(of, args[0]), integerOf(of, args[len(args)-1])
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	v := new(big.Int)
	switch op {
	case expr.Eq:
		return truth(x.Cmp(y) == 0)
	case expr.Ne:
		return truth(x.Cmp(y) != 0)
	case expr.Lt:
		return truth(x.Cmp(y) < 0)
	case expr.Le:
		return truth(x.Cmp(y) <= 0)
	case expr.Gt:
		return truth(x.Cmp(y) > 0)
	case expr.Ge:
		return truth(x.Cmp(y) >= 0)
	case expr.And:
		return args[0] & args[1]
	case expr.Or:
		return args[0] | args[1]
	case expr.Not:
		return 1 - args[0]
	case expr.Neg:
		v.Neg(x)
	case expr.Abs:
		v.Abs(x)
	case expr.Add:
		v.Add(x, y)
	case expr.Sub:
		v.Sub(x, y)
	case expr.Mul:
		v.Mul(x, y)
	case expr.Square:
		v.Mul(x, x)
	case expr.Cube:
		v.Mul(x, v.Mul(x, x))
	case expr.Min, expr.Max:
		if v = x; (x.Cmp(y) < 0) == (op == expr.Max) {
			v = y
		}
	}
	return wrapped(d, v)
}

// convertBits converts an element: to integers toward 0 and to the nearest of the type, NaN to 0.
func convertBits(from, to expr.Dtype, bits uint64) uint64 {
	switch {
	case to == expr.Bool && from.IsFloat():
		return min(bits<<(64-8*from.Size()+1), 1) // but for the sign
	case to == expr.Bool:
		return min(bits, 1)
	case to.IsFloat() && from.IsFloat():
		return bitsOf(to, floatOf(from, bits))
	case to == expr.Float32:
		v, _ := new(big.Float).SetInt(integerOf(from, bits)).Float32()
		return bitsOf(to, float64(v))
	case to.IsFloat():
		v, _ := new(big.Float).SetInt(integerOf(from, bits)).Float64()
		return bitsOf(to, v)
	case !from.IsFloat():
		return wrapped(to, integerOf(from, bits))
	}
	v := floatOf(from, bits)
	if math.IsNaN(v) {
		return 0
	}
	whole, _ := big.NewFloat(min(max(v, -1e30), 1e30)).Int(nil)
	most := new(big.Int).Lsh(big.NewInt(1), uint(8*to.Size()-1))
	least := new(big.Int).Neg(most)
	if to == expr.Uint8 {
		least, most = new(big.Int), big.NewInt(256)
	}
	most.Sub(most, big.NewInt(1))
	if whole.Cmp(least) < 0 {
		whole = least
	} else if whole.Cmp(most) > 0 {
		whole = most
	}
	return wrapped(to, whole)
}

// PackBits returns the memory of elements.
func PackBits(d expr.Dtype, elements []uint64) []byte {
	b, size := Memory(int64(len(elements))*d.Size()), d.Size()
	for i, v := range elements {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], v)
		copy(b[int64(i)*size:], word[:size])
	}
	return b
}

// UnpackBits returns the elements in memory.
func UnpackBits(d expr.Dtype, b []byte) []uint64 {
	elements, size := make([]uint64, int64(len(b))/d.Size()), d.Size()
	for i := range elements {
		var word [8]byte
		copy(word[:size], b[int64(i)*size:])
		elements[i] = binary.LittleEndian.Uint64(word[:])
	}
	return elements
}
