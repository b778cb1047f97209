package expr

import (
	"math"
	"unsafe"
)

// The operations on blocks, each a loop of its own: on some processors a product and a sum in one
// loop could be contracted.

type float interface{ float32 | float64 }

// apply is out = f(x) with f in double, rounded once.
func apply[T float](out, x []T, f func(float64) float64) {
	for i, v := range x {
		out[i] = T(f(float64(v)))
	}
}

// Exponentials sets out to the exponentials of x, as the Go bodies of functions compute them.
func Exponentials[T float](out, x []T) { unaryBlock(Exp, out, x) }

func unaryBlock[T float](op Op, out, x []T) {
	out = out[:len(x)]
	switch op {
	case Neg:
		for i, v := range x {
			out[i] = -v
		}
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
	default:
		if x, single := any(x).([]float32); single && ops[op].single != nil {
			ops[op].single(any(out).([]float32), x)
			return
		}
		apply(out, x, ops[op].body)
	}
}

func binaryBlock[T float](op Op, out, x, y []T) {
	out, y = out[:len(x)], y[:len(x)]
	switch op {
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
	case Div:
		for i, v := range x {
			out[i] = v / y[i]
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
		for i, v := range x {
			out[i] = T(ops[op].binary(float64(v), float64(y[i])))
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

// convertBlock converts elements of type from, one for each of out.
func convertBlock[T float](out []T, from Dtype, x unsafe.Pointer) {
	switch from.fixed() {
	case Float32:
		convertElements(out, block[float32](x, len(out)))
	case Float64:
		convertElements(out, block[float64](x, len(out)))
	case Uint8, Bool:
		convertElements(out, block[uint8](x, len(out)))
	case Int32:
		convertElements(out, block[int32](x, len(out)))
	case Int64:
		convertElements(out, block[int64](x, len(out)))
	}
}

// convertIntegers is convertBlock to integers of type to.
func convertIntegers[T integer](out []T, to, from Dtype, x unsafe.Pointer) {
	switch from.fixed() {
	case Float32:
		truncateBlock(out, to, block[float32](x, len(out)))
	case Float64:
		truncateBlock(out, to, block[float64](x, len(out)))
	case Uint8, Bool:
		convertElements(out, block[uint8](x, len(out)))
	case Int32:
		convertElements(out, block[int32](x, len(out)))
	case Int64:
		convertElements(out, block[int64](x, len(out)))
	}
}

func convertElements[T, From float | integer](out []T, x []From) {
	for i, v := range x {
		out[i] = T(v)
	}
}

func truncateBlock[T integer, F float](out []T, to Dtype, x []F) {
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

// integerBlock is an operation on integers, which wraps.
func integerBlock[T integer](op Op, out, x, y []T) {
	out = out[:len(x)]
	switch op {
	case Neg:
		for i, v := range x {
			out[i] = -v
		}
	case Abs:
		for i, v := range x {
			out[i] = v
			if v < 0 {
				out[i] = -v
			}
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
	}
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
