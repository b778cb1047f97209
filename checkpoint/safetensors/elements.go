package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Element is a type that [Elements] converts to.
type Element interface {
	float32 | float64 | int | int64 | int32 | int16 | int8 | uint8
}

// decoders decode an element of the types that [Elements] converts from, by float or by integer.
var decoders = map[string]struct {
	float   func(b []byte) float64
	integer func(b []byte) int64
}{
	"F64": {float: func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }},
	"F32": {float: func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }},
	"F16": {float: func(b []byte) float64 { return half(binary.LittleEndian.Uint16(b)) }},
	"BF16": {float: func(b []byte) float64 {
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	}},
	"I64":  {integer: func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }},
	"I32":  {integer: func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) }},
	"I16":  {integer: func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) }},
	"I8":   {integer: func(b []byte) int64 { return int64(int8(b[0])) }},
	"U8":   {integer: func(b []byte) int64 { return int64(b[0]) }},
	"BOOL": {integer: func(b []byte) int64 { return int64(min(b[0], 1)) }},
}

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
	d, known := decoders[t.Dtype]
	floats := T(1)/T(2) != 0
	if !known || d.integer == nil && !floats {
		return fmt.Errorf("tensor %q: got elements of %s, which do not convert to %T", t.Name, t.Dtype, *new(T))
	}
	size := int(dtypeBits[t.Dtype] / 8)
	if t.elements == nil || from < 0 || len(into) > int(t.elements.Size())/size-from {
		return fmt.Errorf("tensor %q: got %d elements from %d on, want elements of a tensor of shape %v in a File", t.Name, len(into), from, t.Shape)
	}
	buffer := make([]byte, min(1<<16, len(into)*size))
	for at := 0; at < len(into); {
		n := min(len(buffer)/size, len(into)-at)
		raw, part := buffer[:n*size], into[at:at+n]
		if err := t.readAt(raw, int64(from+at)*int64(size)); err != nil {
			return err
		}
		if same[T](t.Dtype) {
			if _, err := binary.Decode(raw, binary.LittleEndian, part); err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		} else if i := convert(d.float, d.integer, size, raw, part); i < n {
			return fmt.Errorf("tensor %q: got element %d of %s, % x, want a number of %T", t.Name, from+at+i, t.Dtype, raw[i*size:][:size], *new(T))
		}
		at += n
	}
	return nil
}

// same reports whether T is the type of elements.
func same[T Element](dtype string) bool {
	switch any(*new(T)).(type) {
	case float32:
		return dtype == "F32"
	case float64:
		return dtype == "F64"
	}
	return false // convert keeps the bits of integers
}

// convert converts elements and returns the index of the first that T cannot represent, or their number.
func convert[T Element](float func([]byte) float64, integer func([]byte) int64, size int, raw []byte, into []T) int {
	floats := T(1)/T(2) != 0
	for i := range into {
		b := raw[i*size:]
		if float != nil {
			x := float(b)
			into[i] = T(x)
			if math.IsInf(float64(into[i]), 0) && !math.IsInf(x, 0) {
				return i
			}
			continue
		}
		n := integer(b)
		into[i] = T(n)
		if !floats && int64(into[i]) != n {
			return i
		}
	}
	return len(into)
}
