// Package align copies vectors to the alignment that dot products depend on.
package align

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// vectorBytes is the width of the vectors of gonum's dot products of float32. They
// take elements one by one until the second operand is at a multiple of it, so the
// order of additions depends on where that operand lies; those of float64 don't.
const vectorBytes = 16

// Vector returns x, or a copy if a dot product's result would depend on its address.
func Vector[T kernels.Float](x []T) []T {
	var buffer []T
	return Part(x, 0, int64(len(x)), &buffer)
}

// Part returns x[lo:hi] for a dot product. If x is not aligned it is a copy in buffer, which
// grows as needed, at the address modulo vectorBytes that it would have in an aligned x.
func Part[T kernels.Float](x []T, lo, hi int64, buffer *[]T) []T {
	size := int64(unsafe.Sizeof(*new(T)))
	if size == 8 || uintptr(unsafe.Pointer(unsafe.SliceData(x)))%vectorBytes == 0 {
		return x[lo:hi]
	}
	first := lo % (vectorBytes / size)
	last := first + hi - lo
	if int64(len(*buffer)) < last {
		*buffer = Make[T](last + vectorBytes/size)
	}
	copy((*buffer)[first:last], x[lo:hi])
	return (*buffer)[first:last]
}

// Make returns n elements, the first at a multiple of vectorBytes.
//
//go:noinline
func Make[T kernels.Float](n int64) []T {
	size := int64(unsafe.Sizeof(*new(T)))
	x := make([]T, n+vectorBytes/size)
	skip := int64(-uintptr(unsafe.Pointer(unsafe.SliceData(x)))%vectorBytes) / size
	return x[skip : skip+n : skip+n]
}
