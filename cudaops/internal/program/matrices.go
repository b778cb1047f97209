package program

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Matrices returns the strides of a value as a batch of row-major matrices; ok is false if its view is no such batch, or if one matrix is
// repeated.
func (v *Value) Matrices(batch, rows, cols int64) (o gemm.Operand, ok bool) {
	if v.IsBounded() || v.IsRandom() {
		return o, false
	}
	s, ok := SplitAxes(v.Shape, v.View.Strides, int(batch), int(rows), int(cols))
	if !ok || cols > 1 && s[2] != 1 || rows > 1 && s[1] < cols || batch > 1 && s[0] < 1 {
		return o, false
	}
	if rows > 1 {
		o.Row = s[1]
	}
	if batch > 1 {
		o.Matrix = s[0]
	}
	return o, true
}

// SplitAxes returns the strides of a view along other axes, which cover the same elements in row-major order. It returns false
// if an axis has no single stride.
func SplitAxes(shape []int, strides []int64, axes ...int) ([]int64, bool) {
	type axis struct{ extent, stride int64 }
	var rest []axis
	for a, d := range shape {
		if d != 1 {
			rest = append(rest, axis{int64(d), strides[a]})
		}
	}
	list := make([]int64, len(axes))
	for i, extent := range slices.Backward(axes) {
		stride, want := int64(0), int64(extent)
		for have := int64(1); have < want; {
			if len(rest) == 0 {
				return nil, false
			}
			last := &rest[len(rest)-1]
			if have == 1 {
				stride = last.stride
			} else if last.stride != stride*have {
				return nil, false
			}
			switch left := want / have; {
			case left%last.extent == 0:
				have *= last.extent
				rest = rest[:len(rest)-1]
			case last.extent%left == 0:
				*last = axis{last.extent / left, last.stride * left}
				have = want
			default:
				return nil, false
			}
		}
		list[i] = stride
	}
	return list, len(rest) == 0
}

// Collect returns what f returns for each element of a list.
func Collect[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// Squeezed returns a shape without its axes of extent 1.
func Squeezed(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
}

// Without returns a list without the elements at some indices.
//
//go:noinline
func Without[S ~[]T, T any](list S, indices []int) S {
	var kept S
	for i, v := range list {
		if !slices.Contains(indices, i) {
			kept = append(kept, v)
		}
	}
	return kept
}
