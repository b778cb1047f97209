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

func compareBlock[T float](op Op, out []bool, x, y []T) {
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

func selectBlock[T float](out []T, c []bool, x, y []T) {
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
	switch from {
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
	case Int:
		convertElements(out, block[int](x, len(out)))
	}
}

func convertElements[T float, From float | uint8 | int32 | int64 | int](out []T, x []From) {
	for i, v := range x {
		out[i] = T(v)
	}
}

// truncateBlock rounds toward 0, as PTX does: numbers beyond int64 to the nearest, and NaN to the
// least.
func truncateBlock[T float](out []int64, x []T) {
	for i, v := range x {
		switch {
		case v >= 0x1p63:
			out[i] = math.MaxInt64
		case v >= -0x1p63:
			out[i] = int64(v)
		default:
			out[i] = math.MinInt64
		}
	}
}
