package exprtest

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/big"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Pack returns the memory of elements of a type, numbers that it has.
func Pack(d expr.Dtype, values []float64) []byte {
	elements := make([]uint64, len(values))
	for i, v := range values {
		elements[i] = bitsOf(d, v)
	}
	return PackBits(d, elements)
}

// Unpack returns the elements in memory of a type.
func Unpack(d expr.Dtype, b []byte) []float64 {
	elements := UnpackBits(d, b)
	values := make([]float64, len(elements))
	for i, bits := range elements {
		values[i] = valueOf(d, bits)
	}
	return values
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

// bitsOf returns the memory of a number.
func bitsOf(d expr.Dtype, v float64) uint64 {
	switch d {
	case expr.Float32:
		return uint64(math.Float32bits(float32(v)))
	case expr.Float64:
		return math.Float64bits(v)
	case expr.BF16:
		return uint64(math.Float32bits(float32(v)) >> 16)
	case expr.F16:
		return uint64(halves()[v])
	}
	return uint64(int64(v)) & (uint64(1)<<(8*d.Size()) - 1)
}

// valueOf returns the number with some memory.
func valueOf(d expr.Dtype, bits uint64) float64 {
	switch d {
	case expr.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case expr.Float64:
		return math.Float64frombits(bits)
	case expr.BF16:
		return float64(math.Float32frombits(uint32(bits) << 16))
	case expr.F16:
		return halfValue(uint16(bits))
	}
	unused := 64 - 8*d.Size()
	if shifted := bits << unused; d.IsInteger() && d != expr.Uint8 {
		return float64(int64(shifted) >> unused)
	}
	return float64(bits)
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
	return x == y || d.IsFloat() && math.IsNaN(valueOf(d, x)) && math.IsNaN(valueOf(d, y))
}

// exact computes an exact operation or a conversion of elements, given by their memory, without code of package expr: integers by package big.
func (t *Term) exact(args []uint64) uint64 {
	of := t.Args[len(args)-1].Dtype
	switch {
	case t.Kind == Conversion:
		return convertBits(of, t.Dtype, args[0])
	case t.Op == expr.Select:
		return args[2-args[0]]
	case t.Op >= expr.Eq && t.Op <= expr.Ge:
		return compared(t.Op, of, args)
	case of.IsFloat():
		x := make([]float64, len(args))
		for i := range x {
			x[i] = valueOf(of, args[i])
		}
		return bitsOf(t.Dtype, exactly(t.Op, x)) // two roundings to float32 equal one: 53 >= 2*24 + 2
	}
	return integrally(t.Op, t.Dtype, of, args)
}

// compared compares two elements.
func compared(op expr.Op, of expr.Dtype, args []uint64) uint64 {
	order, known := 0, true
	if of.IsFloat() {
		x, y := valueOf(of, args[0]), valueOf(of, args[1])
		order, known = cmp.Compare(x, y), x == x && y == y
	} else {
		order = integerOf(of, args[0]).Cmp(integerOf(of, args[1]))
	}
	is := map[expr.Op]bool{expr.Eq: order == 0, expr.Ne: order != 0, expr.Lt: order < 0, expr.Le: order <= 0, expr.Gt: order > 0, expr.Ge: order >= 0}[op]
	if known && is || !known && op == expr.Ne {
		return 1
	}
	return 0
}

// exactly computes an exact operation in double.
func exactly(op expr.Op, x []float64) float64 {
	switch op {
	case expr.Neg:
		return -x[0]
	case expr.Abs:
		return math.Abs(x[0])
	case expr.Sign:
		if x[0] == 0 || math.IsNaN(x[0]) {
			return x[0]
		}
		return math.Copysign(1, x[0])
	case expr.Ceil:
		return math.Ceil(x[0])
	case expr.Floor:
		return math.Floor(x[0])
	case expr.Sqrt:
		return math.Sqrt(x[0])
	case expr.Add:
		return x[0] + x[1]
	case expr.Sub:
		return x[0] - x[1]
	case expr.Mul:
		return x[0] * x[1]
	case expr.Div:
		return x[0] / x[1]
	case expr.Min, expr.Max:
		switch {
		case math.IsNaN(x[0]) || math.IsNaN(x[1]):
			return math.NaN()
		case op == expr.Min:
			return math.Min(x[0], x[1])
		}
		return math.Max(x[0], x[1])
	}
	panic(op.String() + " has several right results")
}

// integrally computes an operation on integers or Bool.
func integrally(op expr.Op, d, of expr.Dtype, args []uint64) uint64 {
	x, y, v := integerOf(of, args[0]), integerOf(of, args[len(args)-1]), new(big.Int)
	switch op {
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
		return bitsOf(to, valueOf(from, bits))
	case to == expr.Float32:
		v, _ := new(big.Float).SetInt(integerOf(from, bits)).Float32()
		return bitsOf(to, float64(v))
	case to.IsFloat():
		v, _ := new(big.Float).SetInt(integerOf(from, bits)).Float64()
		return bitsOf(to, v)
	case !from.IsFloat():
		return wrapped(to, integerOf(from, bits))
	}
	v := valueOf(from, bits)
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
