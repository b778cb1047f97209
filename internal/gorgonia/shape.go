package gorgonia

import (
	"reflect"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fields reads unexported fields of an op; bad is set if one is missing or of another kind.
type fields struct {
	v   reflect.Value
	bad bool
}

func fieldsOf(op gorgonia.Op, name string) (f fields, ok bool) {
	if OpName(op) != name {
		return f, false
	}
	return fields{v: reflect.Indirect(reflect.ValueOf(op))}, true
}

func (f *fields) int(name string) int {
	v := f.v.FieldByName(name)
	if !v.IsValid() || !v.CanInt() {
		f.bad = true
		return 0
	}
	return int(v.Int())
}

func (f *fields) bool(name string) bool {
	v := f.v.FieldByName(name)
	if !v.IsValid() || v.Kind() != reflect.Bool {
		f.bad = true
		return false
	}
	return v.Bool()
}

func (f *fields) ints(name string) []int {
	v := f.v.FieldByName(name)
	if !v.IsValid() || v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Int {
		f.bad = true
		return nil
	}
	list := make([]int, v.Len())
	for i := range list {
		list[i] = int(v.Index(i).Int())
	}
	return list
}

// Transpose returns the axes of the input in the order in which a Transpose puts them
// to the output.
func Transpose(op gorgonia.Op) (pattern []int, ok bool) {
	f, ok := fieldsOf(op, "transposeOp")
	if !ok {
		return nil, false
	}
	pattern = f.ints("pattern")
	return pattern, !f.bad
}

// Repeat returns the axis along which a repeatOp repeats its first input; how
// often is the value of its second.
func Repeat(op gorgonia.Op) (axis int, ok bool) {
	f, ok := fieldsOf(op, "repeatOp")
	if !ok {
		return 0, false
	}
	axis = f.int("along")
	return axis, !f.bad
}

// Size returns the axis whose extent a sizeOp returns.
func Size(op gorgonia.Op) (axis int, ok bool) {
	f, ok := fieldsOf(op, "sizeOp")
	if !ok {
		return 0, false
	}
	axis = f.int("axis")
	return axis, !f.bad
}

// At returns the index of the element that an atOp returns.
func At(op gorgonia.Op) (index []int, ok bool) {
	f, ok := fieldsOf(op, "atOp")
	if !ok {
		return nil, false
	}
	index = f.ints("coordinates")
	return index, !f.bad
}

// Concat returns the axis along which a concatOp joins its inputs.
func Concat(op gorgonia.Op) (axis int, ok bool) {
	f, ok := fieldsOf(op, "concatOp")
	if !ok {
		return 0, false
	}
	axis = f.int("axis")
	return axis, !f.bad
}

// ByIndices returns the axis of a ByIndices, or of the derivative of one.
func ByIndices(op gorgonia.Op) (axis int, derivative, ok bool) {
	f, ok := fieldsOf(op, "byIndicesOp")
	if !ok {
		if f, ok = fieldsOf(op, "byIndicesOpDiffOp"); !ok {
			return 0, false, false
		}
		derivative = true
		if f.v = reflect.Indirect(f.v.FieldByName("byIndicesOp")); !f.v.IsValid() {
			return 0, false, false
		}
	}
	axis = f.int("axis")
	return axis, derivative, !f.bad
}

// Reduction returns the name, sum or max, and the axes of a reduction.
func Reduction(op gorgonia.Op) (name string, axes []int, ok bool) {
	for kind, name := range map[string]string{"sumOp": "sum", "maxOp": "max"} {
		if f, ok := fieldsOf(op, kind); ok {
			axes = f.ints("along")
			return name, axes, !f.bad
		}
	}
	return "", nil, false
}

// SliceOf is a slice along one axis, from Start to End by Step; All reports that the
// op takes the whole axis.
type SliceOf struct {
	Axis, Start, End, Step int
	All                    bool
}

// Slice returns the slice that a sliceOp takes, or that a sliceIncrOp, the derivative of a slice,
// adds its second input to. ok is false for any other op.
func Slice(op gorgonia.Op) (s SliceOf, increment, ok bool) {
	f, ok := fieldsOf(op, "sliceOp")
	if !ok {
		if f, ok = fieldsOf(op, "sliceIncrOp"); !ok {
			return s, false, false
		}
		increment = true
	}
	of, ok := op.(interface{ IsSlice() tensor.Slice })
	if !ok {
		return s, false, false
	}
	if increment {
		f.v = reflect.Indirect(f.v.FieldByName("sliceOp"))
	}
	s.Axis = f.int("along")
	if slice := of.IsSlice(); slice == nil || slice.End() <= slice.Start() {
		s.All = true
	} else {
		s.Start, s.End, s.Step = slice.Start(), slice.End(), max(slice.Step(), 1)
	}
	return s, increment, !f.bad
}

// SoftMax returns the axis of a SoftMax or LogSoftMax, -1 for the last one, and of
// the derivative of either.
func SoftMax(op gorgonia.Op) (axis int, log, derivative, ok bool) {
	f, ok := fieldsOf(op, "softmaxOp")
	if !ok {
		if f, ok = fieldsOf(op, "softmaxDiffOp"); !ok {
			return 0, false, false, false
		}
		derivative = true
		if f.v = reflect.Indirect(f.v.FieldByName("softmaxOp")); !f.v.IsValid() {
			return 0, false, false, false
		}
	}
	axis, log = f.int("axis"), f.bool("isLog")
	return axis, log, derivative, !f.bad
}

// Tensordot returns the axes of either operand along which a Tensordot sums.
func Tensordot(op gorgonia.Op) (axesA, axesB []int, ok bool) {
	f, ok := fieldsOf(op, "tensordotOp")
	if !ok {
		return nil, nil, false
	}
	axesA, axesB = f.ints("aAxes"), f.ints("bAxes")
	return axesA, axesB, !f.bad
}

// Between returns min or max for a MinBetween or MaxBetween.
func Between(op gorgonia.Op) (name string, ok bool) {
	for kind, name := range map[string]string{"minBetween": "min", "maxBetween": "max"} {
		if _, ok := fieldsOf(op, kind); ok {
			return name, true
		}
	}
	return "", false
}
