// Package values moves between Gorgonia's values and plain memory.
package values

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// types are Gorgonia's element types in the order of the kernels' ones. Elements stored in 16 bits, which no value of a graph has, are the
// bits in a Uint16.
var types = [...]tensor.Dtype{
	kernels.Float32: tensor.Float32,
	kernels.Float64: tensor.Float64,
	kernels.Uint8:   tensor.Byte,
	kernels.Int32:   tensor.Int32,
	kernels.Int64:   tensor.Int64,
	kernels.Int:     tensor.Int,
	kernels.Bool:    tensor.Bool,
	expr.BF16:       tensor.Uint16,
	expr.F16:        tensor.Uint16,
}

// Dtype returns the kernels' element type for one of Gorgonia's; ok is false for types that no
// kernel takes; of those with 16 bits it is false, since a value does not tell which one it is.
func Dtype(t tensor.Dtype) (dt kernels.Dtype, ok bool) {
	i := slices.Index(types[:], t)
	return kernels.Dtype(max(i, 0)), i >= 0 && t != tensor.Uint16
}

// Tensor returns package tensor's element type for dt.
func Tensor(dt kernels.Dtype) tensor.Dtype { return types[dt] }

// Bytes returns the memory of a value of one of the kernels' types in row-major
// order. Of a dense contiguous tensor and of a scalar it is their own memory, which
// must not be written unless the caller owns the value; of views, slices,
// transposed and column-major tensors it is a copy.
func Bytes(v gorgonia.Value) ([]byte, error) {
	m, err := Memory(v)
	if err != nil {
		return nil, err
	}
	n := bytesOf(v)
	if t, dense := v.(*tensor.Dense); dense && !Contiguous(t) {
		out := kernels.Bytes(make([]float64, kernels.CeilDiv(n, 8)))[:n] // aligned for every type
		reorder(t, out, m, false)
		return out, nil
	}
	return m[:n], nil
}

// Set copies m, elements of v's type in row-major order, into the memory of v, whatever the order of
// its own elements.
func Set(v gorgonia.Value, m []byte) error {
	to, err := Memory(v)
	if err != nil {
		return err
	}
	if n := bytesOf(v); int64(len(m)) != n {
		return fmt.Errorf("a value of %v and shape %v: got %d bytes for it, want %d", v.Dtype(), v.Shape(), len(m), n)
	}
	if t, dense := v.(*tensor.Dense); dense && !Contiguous(t) {
		reorder(t, m, to, true)
		return nil
	}
	copy(to, m)
	return nil
}

// bytesOf returns the bytes of a value's elements.
func bytesOf(v gorgonia.Value) int64 {
	return kernels.Count(v.Shape()) * int64(v.Dtype().Size())
}

// reorder copies the elements of a tensor of any strides from its own memory into row-major order, or back.
func reorder(t *tensor.Dense, rowMajor, own []byte, back bool) {
	switch t.Dtype().Size() {
	case 1:
		reorderElements(t, rowMajor, own, back)
	case 2:
		reorderElements(t, kernels.Elements[uint16](rowMajor), kernels.Elements[uint16](own), back)
	case 4:
		reorderElements(t, kernels.Elements[int32](rowMajor), kernels.Elements[int32](own), back)
	default:
		reorderElements(t, kernels.Elements[int64](rowMajor), kernels.Elements[int64](own), back)
	}
}

func reorderElements[T any](t *tensor.Dense, rowMajor, own []T, back bool) {
	shape, strides := t.Shape(), stridesOf(t)
	last := len(shape) - 1
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis < last {
			for i := range shape[axis] {
				walk(axis+1, at+i*strides[axis])
			}
			return
		}
		row := rowMajor[:shape[last]]
		rowMajor = rowMajor[len(row):]
		for i := range row {
			if x := &own[at+i*strides[last]]; back {
				*x = row[i]
			} else {
				row[i] = *x
			}
		}
	}
	walk(0, 0)
}

// Memory returns the memory of a value of one of the kernels' types: that of its elements in any
// order, and what is between them.
func Memory(v gorgonia.Value) ([]byte, error) {
	if guard.IsNil(v) {
		return nil, errors.New("no value")
	}
	switch v := v.(type) {
	case *gorgonia.F32:
		return scalar(v), nil
	case *gorgonia.F64:
		return scalar(v), nil
	case *gorgonia.U8:
		return scalar(v), nil
	case *gorgonia.I32:
		return scalar(v), nil
	case *gorgonia.I64:
		return scalar(v), nil
	case *gorgonia.I:
		return scalar(v), nil
	case *gorgonia.B:
		return scalar(v), nil
	case *tensor.Dense:
		if kernels.Count(v.Shape()) == 0 {
			return nil, fmt.Errorf("a tensor of shape %v: want at least one element", v.Shape())
		}
		if v.Dtype() == (tensor.Dtype{}) {
			return nil, errors.New("a tensor that is a zero value: want one of tensor.New")
		}
		if v.IsMasked() {
			return nil, fmt.Errorf("a masked tensor of shape %v: masks are not supported", v.Shape())
		}
		switch v.Dtype() {
		case tensor.Float32:
			return memory(v.Float32s()), nil
		case tensor.Float64:
			return memory(v.Float64s()), nil
		case tensor.Byte:
			return memory(v.Uint8s()), nil
		case tensor.Int32:
			return memory(v.Int32s()), nil
		case tensor.Int64:
			return memory(v.Int64s()), nil
		case tensor.Int:
			return memory(v.Ints()), nil
		case tensor.Bool:
			return memory(v.Bools()), nil
		case tensor.Uint16:
			return memory(v.Uint16s()), nil
		}
		return nil, fmt.Errorf("a tensor of %v: want one of %v", v.Dtype(), types)
	}
	return nil, fmt.Errorf("a %T: want a *tensor.Dense or a scalar of one of %v", v, types)
}

// Extent is a piece of memory, by its addresses.
type Extent struct{ Start, End uintptr }

// Overlaps reports whether two extents have an address in common.
func (e Extent) Overlaps(f Extent) bool { return e.Start < f.End && f.Start < e.End }

// ExtentOf returns the extent of a value's memory, which is empty for a value without.
func ExtentOf(v gorgonia.Value) Extent {
	m, err := Memory(v)
	if err != nil {
		return Extent{}
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	return Extent{start, start + uintptr(len(m))}
}

// scalar is the memory of one of Gorgonia's scalars.
func scalar[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// element is the constraint of the elements of tensors. A bool is a byte of 0 or 1.
type element interface{ kernels.Element | bool }

// memory returns the memory of a slice.
func memory[T element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}

// bools returns memory as a slice of bools.
func bools(m []byte) []bool {
	return unsafe.Slice((*bool)(unsafe.Pointer(unsafe.SliceData(m))), len(m))
}

// Compact returns a value with its elements in row-major order: v itself if they are, else a copy.
// Other values, and masked tensors, are returned as they are.
//
// Ops of Gorgonia that reshape would move the elements of a transposed tensor,
// in place.
func Compact(v gorgonia.Value) gorgonia.Value {
	d, ok := v.(*tensor.Dense)
	if !ok || d == nil || Contiguous(d) {
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

// Clone is gorgonia.CloneValue, with an error where that panics.
func Clone(v gorgonia.Value) (c gorgonia.Value, err error) {
	err = guard.Recover("a copy of the value", func() (err error) { c, err = gorgonia.CloneValue(v); return err })
	return c, err
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

// stridesOf returns the strides of a tensor, one for each axis. A view of package tensor may have
// dropped those of axes of extent 1.
func stridesOf(t *tensor.Dense) []int {
	shape, strides := t.Shape(), t.Strides()
	if len(strides) == len(shape) {
		return strides
	}
	all, k := make([]int, len(shape)), 0
	for i, d := range shape {
		if d != 1 && k < len(strides) {
			all[i] = strides[k]
			k++
		}
	}
	return all
}

// Number returns a scalar of the given type.
func Number(dt kernels.Dtype, x float64) gorgonia.Value {
	v, m := New(dt, tensor.ScalarShape())
	switch dt {
	case kernels.Float64:
		kernels.Elements[float64](m)[0] = x
	case kernels.Uint8:
		m[0] = uint8(x)
	case kernels.Int32:
		kernels.Elements[int32](m)[0] = int32(x)
	case kernels.Int64:
		kernels.Elements[int64](m)[0] = int64(x)
	case kernels.Int:
		kernels.Elements[int](m)[0] = int(x)
	case kernels.Bool:
		bools(m)[0] = x != 0
	default:
		kernels.Elements[float32](m)[0] = float32(x)
	}
	return v
}

// Float returns the number that a value of one float32 or float64 holds; ok is false
// for any other value.
func Float(v gorgonia.Value) (x float64, ok bool) {
	m, err := Bytes(v)
	if err != nil {
		return 0, false
	}
	switch dt, _ := Dtype(v.Dtype()); {
	case dt == kernels.Float32 && len(m) == 4:
		return float64(kernels.Elements[float32](m)[0]), true
	case dt == kernels.Float64 && len(m) == 8:
		return kernels.Elements[float64](m)[0], true
	}
	return 0, false
}

// Integer returns the first integer of a value, 0 for a value of another type.
func Integer(v gorgonia.Value) int64 {
	m, err := Bytes(v)
	if err != nil {
		return 0
	}
	switch dt, _ := Dtype(v.Dtype()); dt {
	case kernels.Uint8:
		return int64(m[0])
	case kernels.Int32:
		return int64(kernels.Elements[int32](m)[0])
	case kernels.Int64:
		return kernels.Elements[int64](m)[0]
	case kernels.Int:
		return int64(kernels.Elements[int](m)[0])
	}
	return 0
}

// View returns, as a value of the given shape, the elements of v, which is in row-major order, at
// offset + sum of i[k] strides[k], all counted in elements. Elements outside of bounds are 0, as in
// [codegen.View]. The result shares the memory of v if its elements lie in row-major order there,
// and is a copy otherwise.
func View(v gorgonia.Value, shape tensor.Shape, offset int64, strides []int64, bounds codegen.Bounds) (gorgonia.Value, error) {
	dt, ok := Dtype(v.Dtype())
	if v.Dtype() == tensor.Uint16 {
		dt, ok = expr.BF16, true // BF16 and F16 are copied alike
	}
	if !ok {
		return nil, fmt.Errorf("a view of %v: want one of %v", v.Dtype(), types)
	}
	m, err := Bytes(v)
	if err != nil {
		return nil, err
	}
	if Shares(shape, strides, bounds) {
		n := kernels.Count(shape)
		return Over(dt, shape, m[offset*dt.Size():][:n*dt.Size()]), nil
	}
	out, to := New(dt, shape)
	Gather(to, m, dt.Size(), shape, offset, strides, bounds)
	return out, nil
}

// Shares reports whether a [View] shares the memory of its value.
func Shares(shape tensor.Shape, strides []int64, bounds codegen.Bounds) bool {
	return !shape.IsScalar() && bounds.To == 0 && inOrder(shape, strides)
}

// inOrder reports whether strides are those of row-major order.
func inOrder(shape []int, strides []int64) bool {
	want := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != want {
			return false
		}
		want *= int64(shape[i])
	}
	return true
}

// Over returns a tensor over memory, whose first elements it takes.
func Over(dt kernels.Dtype, shape tensor.Shape, m []byte) gorgonia.Value {
	var backing any
	switch dt {
	case kernels.Float64:
		backing = kernels.Elements[float64](m)
	case kernels.Uint8:
		backing = m
	case kernels.Int32:
		backing = kernels.Elements[int32](m)
	case kernels.Int64:
		backing = kernels.Elements[int64](m)
	case kernels.Int:
		backing = kernels.Elements[int](m)
	case kernels.Bool:
		backing = bools(m)
	case expr.BF16, expr.F16:
		backing = kernels.Elements[uint16](m)
	default:
		backing = kernels.Elements[float32](m)
	}
	return dense(shape, backing)
}

// dense returns a tensor over a slice, with the engine that Gorgonia's machines set for
// to all of theirs. It has a copy of the shape.
func dense(shape tensor.Shape, backing any) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing), tensor.WithEngine(gorgonia.StandardEngine{}))
}

// Gather copies elements of size bytes from a view of base into row-major order, with zeros for
// those outside of the bounds.
func Gather(to, base []byte, size int64, shape []int, offset int64, strides []int64, bounds codegen.Bounds) {
	var walk func(axis int, at int64, outside bool)
	walk = func(axis int, at int64, outside bool) {
		if axis == len(shape) {
			if outside {
				clear(to[:size])
			} else {
				copy(to[:size], base[at*size:])
			}
			to = to[size:]
			return
		}
		from, end := 0, shape[axis]
		if bounds.To != 0 && bounds.Axis == axis {
			from, end = bounds.From, bounds.To
		}
		for i := range shape[axis] {
			walk(axis+1, at+int64(i-from)*strides[axis], outside || i < from || i >= end)
		}
	}
	walk(0, offset, false)
}

// Size returns the bytes of a value of the given shape, or an error if they are more than a
// process can address.
func Size(dt kernels.Dtype, shape tensor.Shape) (bytes int64, err error) {
	bytes = dt.Size()
	for _, d := range shape {
		if d < 0 || d > 0 && bytes > hostmem.Most/int64(d) {
			return 0, fmt.Errorf("got %v of shape %v, want at most %d bytes", Tensor(dt), shape, int64(hostmem.Most))
		}
		bytes *= int64(d)
	}
	return bytes, nil
}

// Make is New, with an error where there is no memory for it.
func Make(dt kernels.Dtype, shape tensor.Shape) (v gorgonia.Value, memory []byte, err error) {
	bytes, err := Size(dt, shape)
	if err == nil {
		err = hostmem.Check(bytes)
	}
	if err != nil {
		return nil, nil, err
	}
	v, memory = New(dt, shape)
	return v, memory, nil
}

// New is a new zero value of the given shape and its memory. A scalar shape
// makes Gorgonia's scalar type.
func New(dt kernels.Dtype, shape tensor.Shape) (gorgonia.Value, []byte) {
	switch dt {
	case kernels.Float64:
		return fresh[float64](gorgonia.NewF64(0), shape)
	case kernels.Uint8:
		return fresh[uint8](gorgonia.NewU8(0), shape)
	case kernels.Int32:
		return fresh[int32](gorgonia.NewI32(0), shape)
	case kernels.Int64:
		return fresh[int64](gorgonia.NewI64(0), shape)
	case kernels.Int:
		return fresh[int](gorgonia.NewI(0), shape)
	case kernels.Bool:
		return fresh[bool](gorgonia.NewB(false), shape)
	case expr.BF16, expr.F16:
		s := make([]uint16, kernels.Count(shape))
		return dense(shape, s), memory(s)
	}
	return fresh[float32](gorgonia.NewF32(0), shape)
}

// fresh is a new tensor, or for a scalar shape the scalar given.
func fresh[T element, S any, P interface {
	*S
	gorgonia.Value
}](one P, shape tensor.Shape) (gorgonia.Value, []byte) {
	if shape.IsScalar() {
		return one, scalar((*S)(one))
	}
	s := make([]T, kernels.Count(shape))
	return dense(shape, s), memory(s)
}

// Own returns the memory of a value that may be written in place: a scalar or a contiguous tensor
// of the wanted type and shape. ok is false otherwise.
func Own(v gorgonia.Value, dt kernels.Dtype, shape tensor.Shape) (b []byte, ok bool) {
	if guard.IsNil(v) || v.Dtype() != Tensor(dt) || !slices.Equal(v.Shape(), shape) {
		return nil, false
	}
	if t, dense := v.(*tensor.Dense); dense && !Contiguous(t) {
		return nil, false
	}
	b, err := Bytes(v)
	return b, err == nil
}
