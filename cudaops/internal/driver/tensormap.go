package driver

import (
	"math/bits"
	"unsafe"
)

// TensorType is the type of a [Tensor]'s elements, a CUtensorMapDataType.
type TensorType uint32

// The types of elements. Copies round TFloat32, which is float32 in memory.
const (
	Float32  TensorType = 7
	BFloat16 TensorType = 9
	TFloat32 TensorType = 11
)

// Tensor describes a tensor in device memory, of which kernels copy boxes to shared
// memory. The contiguous axis comes first; elements outside are copied as zeros.
type Tensor struct {
	Address Ptr
	Type    TensorType
	Extents []int64 // elements along each axis
	Strides []int64 // bytes, of the axes after the first
	Box     []int64 // elements of a copy along each axis
	Swizzle int64   // bytes: 0 for none, 32, 64 or 128

	// Copies in im2col mode: the corners of the places of windows, relative to the first and the last element, of the axes between the first and the last, and
	// the steps between places. Box has the elements along the first axis, and the places. Steps is nil for boxes.
	Lower, Upper, Steps []int64
}

// Encode returns the tensor's map, a CUtensorMap: 128 bytes, aligned to 64, for a
// kernel to take by value. The driver refuses it on a thread that has no context.
func (c *Context) Encode(t Tensor) (unsafe.Pointer, error) {
	const size, align = 128, 64
	memory := make([]byte, size+align)
	at := unsafe.Pointer(unsafe.SliceData(memory))
	at = unsafe.Add(at, -uintptr(at)%align)
	extents, strides := make([]uint64, len(t.Extents)), make([]uint64, len(t.Extents)) // one stride is not read
	box, steps := make([]uint32, len(t.Extents)), make([]uint32, len(t.Extents))
	lower, upper := make([]int32, len(t.Extents)), make([]int32, len(t.Extents))
	for i := range t.Extents {
		extents[i], steps[i] = uint64(t.Extents[i]), 1
	}
	for i, n := range t.Strides {
		strides[i] = uint64(n)
	}
	for i, n := range t.Box {
		box[i] = uint32(n)
	}
	for i, n := range t.Steps {
		lower[i], upper[i], steps[1+i] = int32(t.Lower[i]), int32(t.Upper[i]), uint32(n)
	}
	const promoteTo128 = 2 // CUtensorMapL2promotion: copies bring lines of 128 bytes from memory into the level-2 cache
	swizzle := max(bits.Len64(uint64(t.Swizzle))-5, 0)
	kind, rank, address := uintptr(t.Type), uintptr(len(t.Extents)), uintptr(t.Address)
	var err error
	if t.Steps == nil {
		err = c.call(cuTensorMapEncodeTiled, uintptr(at), kind, rank, address, uintptr(unsafe.Pointer(&extents[0])), uintptr(unsafe.Pointer(&strides[0])),
			uintptr(unsafe.Pointer(&box[0])), uintptr(unsafe.Pointer(&steps[0])), 0, uintptr(swizzle), promoteTo128, 0)
	} else {
		err = c.call(cuTensorMapEncodeIm2col, uintptr(at), kind, rank, address, uintptr(unsafe.Pointer(&extents[0])), uintptr(unsafe.Pointer(&strides[0])),
			uintptr(unsafe.Pointer(&lower[0])), uintptr(unsafe.Pointer(&upper[0])), uintptr(box[0]), uintptr(box[1]), uintptr(unsafe.Pointer(&steps[0])), 0, uintptr(swizzle), promoteTo128, 0)
	}
	if err != nil {
		return nil, err
	}
	return at, nil
}
