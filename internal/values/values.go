// Package values moves between Gorgonia's values and plain memory.
package values

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Dtype is Gorgonia's element type as the kernels know it; ok is false for
// types that no kernel takes.
func Dtype(t tensor.Dtype) (dt kernels.Dtype, ok bool) {
	switch t {
	case tensor.Float32:
		return kernels.Float32, true
	case tensor.Float64:
		return kernels.Float64, true
	}
	return 0, false
}

// Tensor is dt as package tensor knows it.
func Tensor(dt kernels.Dtype) tensor.Dtype {
	if dt == kernels.Float32 {
		return tensor.Float32
	}
	return tensor.Float64
}

// Bytes is the memory of a float32 or float64 value in row-major order.
// A dense contiguous tensor and a scalar give their own memory, which must not
// be written unless the caller owns the value; views, slices, transposed and
// column-major tensors give a copy.
func Bytes(v gorgonia.Value) ([]byte, error) {
	switch v := v.(type) {
	case *gorgonia.F32:
		return unsafe.Slice((*byte)(unsafe.Pointer(v)), 4), nil
	case *gorgonia.F64:
		return unsafe.Slice((*byte)(unsafe.Pointer(v)), 8), nil
	case *tensor.Dense:
		if elements(v.Shape()) == 0 {
			return nil, fmt.Errorf("a tensor of shape %v: want at least one element", v.Shape())
		}
		if v.IsMasked() {
			return nil, fmt.Errorf("a masked tensor of shape %v: masks are not supported", v.Shape())
		}
		if !Contiguous(v) {
			return compact(v)
		}
		return raw(v)
	case nil:
		return nil, fmt.Errorf("no value")
	}
	return nil, fmt.Errorf("a %T: want a *tensor.Dense or a scalar of float32 or float64", v)
}

// Compact gives a value of float32 or float64 elements in row-major order: v
// itself if it is so, else a copy. Other values, and masked tensors, it gives
// back as they are.
//
// Ops of Gorgonia that reshape would move the elements of a transposed tensor,
// in place.
func Compact(v gorgonia.Value) gorgonia.Value {
	d, ok := v.(*tensor.Dense)
	if !ok || Contiguous(d) {
		return v
	}
	mem, err := Bytes(d)
	if err != nil {
		return v
	}
	dt, _ := Dtype(d.Dtype())
	out, to := New(dt, d.Shape())
	copy(to, mem)
	return out
}

// Contiguous reports whether the tensor's memory is its elements in row-major
// order.
func Contiguous(t *tensor.Dense) bool {
	if t.Shape().IsScalar() || t.Shape().TotalSize() <= 1 {
		return true
	}
	if t.DataOrder().IsColMajor() || t.IsMasked() {
		return false
	}
	shape, strides := t.Shape(), t.Strides()
	if len(strides) != len(shape) {
		return len(shape) == 1 && len(strides) == 1 // a vector
	}
	want := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != want {
			return false
		}
		want *= shape[i]
	}
	return true
}

// raw is the memory of a contiguous tensor.
func raw(t *tensor.Dense) ([]byte, error) {
	n := elements(t.Shape())
	switch t.Dtype() {
	case tensor.Float32:
		return kernels.Bytes(t.Float32s()[:n]), nil
	case tensor.Float64:
		return kernels.Bytes(t.Float64s()[:n]), nil
	}
	return nil, fmt.Errorf("a tensor of %v: want float32 or float64", t.Dtype())
}

// compact copies a tensor of any strides into row-major order.
func compact(t *tensor.Dense) ([]byte, error) {
	switch t.Dtype() {
	case tensor.Float32:
		return gather(t.Float32s(), t.Shape(), t.Strides()), nil
	case tensor.Float64:
		return gather(t.Float64s(), t.Shape(), t.Strides()), nil
	}
	return nil, fmt.Errorf("a tensor of %v: want float32 or float64", t.Dtype())
}

func gather[T kernels.Float](src []T, shape, strides []int) []byte {
	// A view of package tensor may have dropped the strides of axes of extent 1.
	if len(strides) != len(shape) {
		all := make([]int, len(shape))
		k := 0
		for i, d := range shape {
			if d != 1 && k < len(strides) {
				all[i] = strides[k]
				k++
			}
		}
		strides = all
	}
	dst := make([]T, 0, elements(shape))
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis == len(shape) {
			dst = append(dst, src[at])
			return
		}
		for i := range shape[axis] {
			walk(axis+1, at+i*strides[axis])
		}
	}
	walk(0, 0)
	return kernels.Bytes(dst)
}

// New is a new zero value of the given shape and its memory. A scalar shape
// gives Gorgonia's scalar type.
func New(dt kernels.Dtype, shape tensor.Shape) (gorgonia.Value, []byte) {
	if shape.IsScalar() {
		if dt == kernels.Float32 {
			v := gorgonia.NewF32(0)
			return v, unsafe.Slice((*byte)(unsafe.Pointer(v)), 4)
		}
		v := gorgonia.NewF64(0)
		return v, unsafe.Slice((*byte)(unsafe.Pointer(v)), 8)
	}
	n := elements(shape)
	if dt == kernels.Float32 {
		s := make([]float32, n)
		return tensor.New(tensor.WithShape(shape.Clone()...), tensor.WithBacking(s)), kernels.Bytes(s)
	}
	s := make([]float64, n)
	return tensor.New(tensor.WithShape(shape.Clone()...), tensor.WithBacking(s)), kernels.Bytes(s)
}

// Own is the memory of a value that may be written in place: a scalar or a
// contiguous tensor of the wanted type and shape. ok is false otherwise.
func Own(v gorgonia.Value, dt kernels.Dtype, shape tensor.Shape) (b []byte, ok bool) {
	if v == nil || v.Dtype() != Tensor(dt) || !slices.Equal(v.Shape(), shape) {
		return nil, false
	}
	if t, dense := v.(*tensor.Dense); dense && !Contiguous(t) {
		return nil, false
	}
	b, err := Bytes(v)
	return b, err == nil
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
