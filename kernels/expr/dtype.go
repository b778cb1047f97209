package expr

import "strconv"

// Dtype is the element type of an operand.
type Dtype uint8

// The element types. Kernels compute in the floating-point ones and convert from integers, which
// also count; Bool is the type of comparisons, a byte of 0 or 1 in memory. Int is Go's int. BF16 and F16 are storage types: only
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
}{{4, "f32"}, {8, "f64"}, {1, "u8"}, {4, "i32"}, {8, "i64"}, {strconv.IntSize / 8, "int"}, {1, "bool"}, {2, "bf16"}, {2, "f16"}}

// Size returns the size of one element in bytes.
func (d Dtype) Size() int64 { return dtypes[d].size }

// String returns the suffix of kernel entry points, such as "f32".
func (d Dtype) String() string { return dtypes[d].name }

// isWide reports whether d is an integer of 64 bits.
func (d Dtype) isWide() bool { return d == Int64 || d == Int && Int.Size() == Int64.Size() }

// IsFloat reports whether d is Float32 or Float64.
func (d Dtype) IsFloat() bool { return d <= Float64 }

// isHalf reports whether d is a storage type of 16 bits.
func (d Dtype) isHalf() bool { return d == BF16 || d == F16 }
