package expr

import (
	"math"
	"strconv"
)

// Dtype is the element type of an operand.
type Dtype uint8

// The element types. Bool is the type of comparisons, a byte of 0 or 1 in memory. Int is Go's int. BF16 and F16 are storage types: only
// Convert takes them, from and to Float32.
const (
	Float32 Dtype = iota
	Float64
	Uint8
	Int32
	Int64
	Int
	Bool
	BF16
	F16
	dtypeCount
)

var dtypes = [...]struct {
	size int64
	name string
}{{4, "f32"}, {8, "f64"}, {1, "u8"}, {4, "i32"}, {8, "i64"}, {strconv.IntSize / 8, "int"}, {1, "bool"}, {2, "bf16"}, {2, "f16"}, dtypeCount: {0, "no type"}}

// Size returns the size of one element in bytes, 0 of a number that is none of the types.
//
//go:noinline
func (d Dtype) Size() int64 { return dtypes[min(d, dtypeCount)].size }

// String returns the suffix of kernel entry points, such as "f32".
func (d Dtype) String() string { return dtypes[min(d, dtypeCount)].name }

// IsFloat reports whether d is Float32 or Float64.
func (d Dtype) IsFloat() bool { return d <= Float64 }

// IsInteger reports whether d is an integer type, which Bool is not.
func (d Dtype) IsInteger() bool { return d >= Uint8 && d <= Int }

// Limits returns the least and the greatest number of an integer type.
func (d Dtype) Limits() (least, most int64) {
	if d == Uint8 {
		return 0, math.MaxUint8
	}
	bits := 8 * d.Size()
	return -1 << (bits - 1), 1<<(bits-1) - 1
}

// wrap returns the number of an integer type that is v modulo a power of two.
func (d Dtype) wrap(v int64) int64 {
	switch {
	case d == Uint8:
		return int64(uint8(v))
	case d.Size() == 4:
		return int64(int32(v))
	}
	return v
}

// PTX returns the type of PTX's arithmetic on elements of a number type: f32, f64, s32 or s64. Registers of Uint8 are zero-extended.
func (d Dtype) PTX() string {
	switch {
	case d.IsFloat():
		return d.String()
	case d.Size() == 8:
		return "s64"
	}
	return "s32"
}

// isHalf reports whether d is a storage type of 16 bits.
func (d Dtype) isHalf() bool { return d == BF16 || d == F16 }
