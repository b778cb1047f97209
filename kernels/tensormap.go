package kernels

import (
	"fmt"
	"slices"
)

// TensorMap is an argument of a [Launch] that describes a tensor to TMA, the engine of compute capability 9.0 and newer that copies boxes of tensors
// to shared memory. Elements outside of the tensor are copied as zeros. The kernel takes it as a const __grid_constant__ struct of 128 bytes, aligned
// to 64, which a CUDA backend encodes when it binds the plan.
type TensorMap struct {
	Ref     Ref           // the first element, 16-byte aligned
	Element TensorElement // the type of the elements
	Extents []int64       // elements along 1 to 5 axes, the contiguous one first
	Strides []int64       // bytes from one element to the next along the axes after the first, multiples of 16
	Box     []int64       // elements along each axis that one copy takes, 256 at most
	Swizzle int64         // bytes of a row of the box whose 16-byte pieces are permuted: 0 for none, 32, 64 or 128
	Windows *TensorWindows
}

// TensorWindows makes copies of a [TensorMap] take elements of windows of images (TMA's im2col mode). The tensor is (channels, columns, rows, images), or without
// rows, and Box has the channels and the pixels of a copy. The pixels are those after a first one, along the columns, then rows, then images, of the places of the windows'
// first elements; a copy adds an offset of at least 0 to all of them.
type TensorWindows struct {
	Lower []int64 // of columns, rows: the first place, at most 0 without an image's edge left out
	Upper []int64 // and the last one at stride 1, less the last element of the image
	Steps []int64 // elements from one place to the next
}

// TensorElement is the type of the elements of a [TensorMap].
type TensorElement uint8

// The element types. TensorBF16 stands for F16, too: copies are of 16 bits. TensorTF32 is float32 in memory, which copies round to 11
// significant bits.
const (
	TensorBF16 TensorElement = iota
	TensorFloat32
	TensorTF32
)

// Size returns the size of an element in bytes.
func (e TensorElement) Size() int64 {
	if e == TensorBF16 {
		return 2
	}
	return 4
}

// String returns the name of the element type.
func (e TensorElement) String() string {
	if e > TensorTF32 {
		return fmt.Sprintf("TensorElement(%d)", e)
	}
	return [...]string{"bf16", "f32", "tf32"}[e]
}

// String prints map(ref, element, extents, strides, box, swizzle).
func (t TensorMap) String() string {
	windows := ""
	if w := t.Windows; w != nil {
		windows = fmt.Sprintf(", windows from %v to %v by %v", w.Lower, w.Upper, w.Steps)
	}
	return fmt.Sprintf("map(%v, %v, extents %v, strides %v, box %v, swizzle %d%s)", t.Ref, t.Element, t.Extents, t.Strides, t.Box, t.Swizzle, windows)
}

// Bytes returns the bytes from the first element to the end of the last.
func (t TensorMap) Bytes() int64 {
	n := t.Element.Size()
	for axis, extent := range t.Extents {
		stride := t.Element.Size()
		if axis > 0 {
			stride = t.Strides[axis-1]
		}
		n += (extent - 1) * stride
	}
	return n
}

// Check returns an error if TMA cannot take the map.
func (t TensorMap) Check() error {
	rank, axes := len(t.Extents), len(t.Extents)
	if t.Windows != nil {
		if err := t.Windows.check(rank - 2); err != nil {
			return err
		}
		axes = 2
	}
	if rank < 1 || rank > 5 || len(t.Strides) != rank-1 || len(t.Box) != axes {
		return fmt.Errorf("tensor map: got %d extents, %d strides and a box of %d axes, want 1 to 5 extents, one stride less and as many axes of the box, or 2 of windows",
			rank, len(t.Strides), len(t.Box))
	}
	if t.Element > TensorTF32 {
		return fmt.Errorf("tensor map: got element type %d, want at most %d", t.Element, TensorTF32)
	}
	if t.Ref.Offset%16 != 0 {
		return fmt.Errorf("tensor map: got a tensor at byte %d, want a multiple of 16", t.Ref.Offset)
	}
	for axis, n := range t.Extents {
		if n < 1 || n > 1<<32 {
			return fmt.Errorf("tensor map: got extent %d along axis %d, want 1 to 2^32", n, axis)
		}
	}
	for axis, b := range t.Box {
		if b < 1 || b > 256 {
			return fmt.Errorf("tensor map: got a box of %d elements along axis %d, want 1 to 256", b, axis)
		}
	}
	for i, n := range t.Strides {
		if n < 0 || n >= 1<<40 || n%16 != 0 {
			return fmt.Errorf("tensor map: got stride %d along axis %d, want a multiple of 16 below 2^40", n, i+1)
		}
	}
	if !slices.Contains([]int64{0, 32, 64, 128}, t.Swizzle) {
		return fmt.Errorf("tensor map: got swizzle %d, want 0, 32, 64 or 128", t.Swizzle)
	}
	if row := t.Box[0] * t.Element.Size(); row%16 != 0 || t.Swizzle > 0 && row > t.Swizzle {
		return fmt.Errorf("tensor map: got rows of %d bytes in the box, want a multiple of 16, at most the swizzle's %d", row, t.Swizzle)
	}
	return nil
}

// check returns an error unless TMA takes windows of so many axes.
func (w TensorWindows) check(axes int) error {
	if axes < 1 || axes > 2 || len(w.Lower) != axes || len(w.Upper) != axes || len(w.Steps) != axes {
		return fmt.Errorf("tensor map: got windows from %v to %v by %v, want a number for each of 1 or 2 axes between channels and images", w.Lower, w.Upper, w.Steps)
	}
	most := int64(1) << (16/axes - 1)
	for i := range axes {
		if min(w.Lower[i], w.Upper[i]) < -most || max(w.Lower[i], w.Upper[i]) >= most || w.Steps[i] < 1 || w.Steps[i] > 8 {
			return fmt.Errorf("tensor map: got windows from %v to %v by %v, want corners from %d to %d and steps from 1 to 8", w.Lower, w.Upper, w.Steps, -most, most-1)
		}
	}
	return nil
}
