package expr

import (
	"math"
	"unsafe"
)

// The operations on blocks, each a loop of its own: on some processors a product and a sum in one loop could be contracted.

type float interface{ float32 | float64 }

// Exponentials sets out to the exponentials of x, as the Go bodies of functions compute them.
func Exponentials[T float](out, x []T) { floatBlock(Exp, out, x, x) }

// arithmetic computes an operation that floating-point numbers and integers have in common. It returns false for any other.
func arithmetic[T float | integer](op Op, out, x, y []T) bool {
	out, y = out[:len(x)], y[:len(x)]
	switch op {
	case Neg:
		for i, v := range x {
			out[i] = -v
		}
	case Add:
		for i, v := range x {
			out[i] = v + y[i]
		}
	case Sub:
		for i, v := range x {
			out[i] = v - y[i]
		}
	case Mul:
		for i, v := range x {
			out[i] = v * y[i]
		}
	case Min:
		for i, v := range x {
			out[i] = min(v, y[i])
		}
	case Max:
		for i, v := range x {
			out[i] = max(v, y[i])
		}
	default:
		return false
	}
	return true
}

// floatBlock is an operation on floating-point numbers.
func floatBlock[T float](op Op, out, x, y []T) {
	out, y = out[:len(x)], y[:len(x)]
	if arithmetic(op, out, x, y) {
		return
	}
	switch op {
	case Abs:
		for i, v := range x {
			out[i] = T(math.Abs(float64(v)))
		}
	case Sign:
		for i, v := range x {
			switch {
			case v < 0:
				v = -1
			case v > 0:
				v = 1
			}
			out[i] = v
		}
	case Ceil:
		for i, v := range x {
			out[i] = T(math.Ceil(float64(v)))
		}
	case Floor:
		for i, v := range x {
			out[i] = T(math.Floor(float64(v)))
		}
	case Sqrt: // of a float32 via double, which rounds to the same result
		for i, v := range x {
			out[i] = T(math.Sqrt(float64(v)))
		}
	case Div:
		for i, v := range x {
			out[i] = v / y[i]
		}
	case Pow:
		for i, v := range x {
			out[i] = T(ops[op].binary(float64(v), float64(y[i])))
		}
	default:
		if x, single := any(x).([]float32); single && ops[op].single != nil {
			ops[op].single(any(out).([]float32), x)
			return
		}
		for i, v := range x { // in double, rounded once
			out[i] = T(ops[op].body(float64(v)))
		}
	}
}

// integerBlock is an operation on integers, which wraps.
func integerBlock[T integer](op Op, out, x, y []T) {
	if arithmetic(op, out, x, y) {
		return
	}
	for i, v := range x { // Abs
		if out[i] = v; v < 0 {
			out[i] = -v
		}
	}
}

func compareBlock[T float | integer](op Op, out []bool, x, y []T) {
	out, y = out[:len(x)], y[:len(x)]
	switch op {
	case Eq:
		for i, v := range x {
			out[i] = v == y[i]
		}
	case Ne:
		for i, v := range x {
			out[i] = v != y[i]
		}
	case Lt:
		for i, v := range x {
			out[i] = v < y[i]
		}
	case Le:
		for i, v := range x {
			out[i] = v <= y[i]
		}
	}
}

func selectBlock[T any](out []T, c []bool, x, y []T) {
	out, x, y = out[:len(c)], x[:len(c)], y[:len(c)]
	for i, first := range c {
		if first {
			out[i] = x[i]
		} else {
			out[i] = y[i]
		}
	}
}

// mapBlock is out = f(x).
func mapBlock[T, From any](out []T, x []From, f func(From) T) {
	for i, v := range x {
		out[i] = f(v)
	}
}

// convertFrom converts n elements of type T.
func convertFrom[T float | integer](to Dtype, n int, out, x unsafe.Pointer) {
	switch from := block[T](x, n); to.fixed() {
	case Float32:
		convertElements(block[float32](out, n), from)
	case Float64:
		convertElements(block[float64](out, n), from)
	case Uint8:
		convertIntegers(block[uint8](out, n), to, from)
	case Int32:
		convertIntegers(block[int32](out, n), to, from)
	case Int64:
		convertIntegers(block[int64](out, n), to, from)
	case BF16:
		mapBlock(block[uint16](out, n), from, func(v T) uint16 { return toBF16(float32(v)) })
	case F16:
		mapBlock(block[uint16](out, n), from, func(v T) uint16 { return toF16(float32(v)) })
	}
}

func convertElements[T, From float | integer](out []T, x []From) {
	for i, v := range x {
		out[i] = T(v)
	}
}

// convertIntegers converts to integers of type to.
func convertIntegers[T integer, From float | integer](out []T, to Dtype, x []From) {
	if half := From(1) / 2; half == 0 { // of integers
		convertElements(out, x)
		return
	}
	for i, v := range x {
		out[i] = T(truncate(float64(v), to))
	}
}

// truncate rounds toward 0. Numbers beyond an integer type become its nearest, and NaN becomes 0.
func truncate(v float64, to Dtype) int64 {
	least, most := to.Limits()
	switch {
	case v != v:
		return 0
	case v >= 0x1p63:
		return most
	case v < -0x1p63:
		return least
	}
	return min(max(int64(v), least), most)
}

// integer are the types that integers have in memory.
type integer interface{ uint8 | int32 | int64 }

// fixed returns d, and for Int the type of its size.
func (d Dtype) fixed() Dtype {
	switch {
	case d != Int:
		return d
	case Int.Size() == Int64.Size():
		return Int64
	}
	return Int32
}

// logicBlock is an operation on Bool.
func logicBlock(op Op, out, x, y []bool) {
	out = out[:len(x)]
	switch op {
	case And:
		for i, v := range x {
			out[i] = v && y[i]
		}
	case Or:
		for i, v := range x {
			out[i] = v || y[i]
		}
	case Ne:
		for i, v := range x {
			out[i] = v != y[i]
		}
	case Not:
		for i, v := range x {
			out[i] = !v
		}
	}
}
