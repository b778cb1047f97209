package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// Element is a type that [Elements] converts to.
type Element interface {
	float32 | float64 | int | int64 | int32 | int16 | int8 | uint8
}

// floats and integers are the types of elements that [Elements] converts from; integers decode one.
var (
	floats   = []string{"F64", "F32", "F16", "BF16"}
	integers = map[string]func(b []byte) int64{
		"I64":  func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) },
		"I32":  func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) },
		"I16":  func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) },
		"I8":   func(b []byte) int64 { return int64(int8(b[0])) },
		"U8":   func(b []byte) int64 { return int64(b[0]) },
		"BOOL": func(b []byte) int64 { return int64(min(b[0], 1)) },
	}
)

// half returns the value of an IEEE 754 number of 16 bits.
func half(u uint16) float64 {
	const fraction = 10 // bits
	sign, exponent, m := uint64(u>>15)<<63, uint64(u>>fraction&31), uint64(u&(1<<fraction-1))
	switch exponent {
	case 0: // zero and subnormal numbers
		return math.Copysign(math.Ldexp(float64(m), -24), math.Float64frombits(sign))
	case 31: // infinity and NaN
		exponent = 2047
	default:
		exponent += 1023 - 15
	}
	return math.Float64frombits(sign | exponent<<52 | m<<(52-fraction))
}

// Elements reads elements of a tensor of a [File], in row-major order, from the one of that index on, as many as into has, and
// converts them to T.
//
// It converts F64, F32, F16 and BF16 to floating-point types, rounded to nearest, and I64, I32, I16, I8, U8 and BOOL (0 or 1) to
// all types. Elements of T's own type keep their bits. An element that T cannot represent is an error: an integer out of its
// range, or a finite number that would become infinite.
func Elements[T Element](t *Tensor, from int, into []T) error {
	if t == nil {
		return errors.New("got a nil tensor")
	}
	toFloats := T(1)/T(2) != 0
	if integers[t.Dtype] == nil && !(toFloats && slices.Contains(floats, t.Dtype)) {
		return fmt.Errorf("tensor %q: got elements of %s, which do not convert to %T", t.Name, t.Dtype, *new(T))
	}
	size := int(dtypeBits[t.Dtype] / 8)
	if t.elements == nil || from < 0 || len(into) > int(t.elements.Size())/size-from {
		return fmt.Errorf("tensor %q: got %d elements from %d on, want elements of a tensor of shape %v in a File", t.Name, len(into), from, t.Shape)
	}
	if m := bytesOf(into, t.Dtype); m != nil {
		return t.readAt(m, int64(from)*int64(size))
	}
	buffer := make([]byte, min(1<<16, len(into)*size))
	for at := 0; at < len(into); {
		n := min(len(buffer)/size, len(into)-at)
		raw := buffer[:n*size]
		if err := t.readAt(raw, int64(from+at)*int64(size)); err != nil {
			return err
		}
		if i := convert(t.Dtype, raw, into[at:at+n]); i < n {
			return fmt.Errorf("tensor %q: got element %d of %s, % x, want a number of %T", t.Name, from+at+i, t.Dtype, raw[i*size:][:size], *new(T))
		}
		at += n
	}
	return nil
}

// bytesOf returns the memory of elements of a type that the machine stores as the file does, or nil.
func bytesOf[T Element](s []T, dtype string) []byte {
	var of string
	switch any(s).(type) {
	case []float32:
		of = "F32"
	case []float64:
		of = "F64"
	}
	if of != dtype || len(s) == 0 || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// convert converts elements and returns the index of the first that T cannot represent, or their number.
func convert[T Element](dtype string, raw []byte, into []T) int {
	switch dtype {
	case "F64":
		for i := range into {
			x := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
			if into[i] = T(x); math.IsInf(float64(into[i]), 0) && !math.IsInf(x, 0) {
				return i
			}
		}
	case "F32":
		for i := range into {
			into[i] = T(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	case "F16":
		for i := range into {
			into[i] = T(half(binary.LittleEndian.Uint16(raw[2*i:])))
		}
	case "BF16":
		for i := range into {
			into[i] = T(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16))
		}
	default:
		integer, size, toFloats := integers[dtype], len(raw)/len(into), T(1)/T(2) != 0
		for i := range into {
			n := integer(raw[i*size:])
			if into[i] = T(n); !toFloats && int64(into[i]) != n {
				return i
			}
		}
	}
	return len(into)
}
