package gorgonia

import (
	"reflect"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fields reads unexported fields of an op; ok is false if the op has another type, or a field is missing or of another kind.
type fields struct {
	v  reflect.Value
	ok bool
}

// fieldsOf returns the fields of an op of the type called name.
func fieldsOf(op gorgonia.Op, name string) *fields {
	return &fields{reflect.Indirect(reflect.ValueOf(op)), OpName(op) == name}
}

// fieldsOfEither returns the fields of an op of the type called name, or of the op that its derivative has.
func fieldsOfEither(op gorgonia.Op, name, derivativeName string) (f *fields, derivative bool) {
	if f = fieldsOf(op, name); f.ok {
		return f, false
	}
	if f = fieldsOf(op, derivativeName); f.ok {
		f.v = reflect.Indirect(f.v.FieldByName(name))
		f.ok = f.v.IsValid()
	}
	return f, f.ok
}

// read returns a field of a kind, zero if there is none.
func read[T any](f *fields, name string, kind reflect.Kind, get func(reflect.Value) T) (value T) {
	if !f.ok {
		return value
	}
	v := f.v.FieldByName(name)
	if f.ok = v.Kind() == kind; f.ok {
		value = get(v)
	}
	return value
}

func (f *fields) int(name string) int { return int(read(f, name, reflect.Int, reflect.Value.Int)) }

func (f *fields) bool(name string) bool { return read(f, name, reflect.Bool, reflect.Value.Bool) }

func (f *fields) float(name string) float64 {
	return read(f, name, reflect.Float64, reflect.Value.Float)
}

func (f *fields) ints(name string) []int {
	return read(f, name, reflect.Slice, func(v reflect.Value) []int {
		list := make([]int, v.Len())
		if f.ok = v.Type().Elem().Kind() == reflect.Int; f.ok {
			for i := range list {
				list[i] = int(v.Index(i).Int())
			}
		}
		return list
	})
}

// Transpose returns the axes of the input in the order in which a Transpose puts them
// to the output.
func Transpose(op gorgonia.Op) (pattern []int, ok bool) {
	f := fieldsOf(op, "transposeOp")
	pattern = f.ints("pattern")
	return pattern, f.ok
}

// axisOf returns a field of an op of the type called name.
func axisOf(op gorgonia.Op, name, field string) (axis int, ok bool) {
	f := fieldsOf(op, name)
	axis = f.int(field)
	return axis, f.ok
}

// Repeat returns the axis along which a repeatOp repeats its first input; how
// often is the value of its second.
func Repeat(op gorgonia.Op) (axis int, ok bool) { return axisOf(op, "repeatOp", "along") }

// Size returns the axis whose extent a sizeOp returns.
func Size(op gorgonia.Op) (axis int, ok bool) { return axisOf(op, "sizeOp", "axis") }

// Concat returns the axis along which a concatOp joins its inputs.
func Concat(op gorgonia.Op) (axis int, ok bool) { return axisOf(op, "concatOp", "axis") }

// At returns the index of the element that an atOp returns.
func At(op gorgonia.Op) (index []int, ok bool) {
	f := fieldsOf(op, "atOp")
	index = f.ints("coordinates")
	return index, f.ok
}

// ByIndices returns the axis of a ByIndices, or of the derivative of one.
func ByIndices(op gorgonia.Op) (axis int, derivative, ok bool) {
	f, derivative := fieldsOfEither(op, "byIndicesOp", "byIndicesOpDiffOp")
	axis = f.int("axis")
	return axis, derivative, f.ok
}

// Reduction returns the name, sum or max, and the axes of a reduction.
func Reduction(op gorgonia.Op) (name string, axes []int, ok bool) {
	for kind, name := range map[string]string{"sumOp": "sum", "maxOp": "max"} {
		if f := fieldsOf(op, kind); f.ok {
			axes = f.ints("along")
			return name, axes, f.ok
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
	f, increment := fieldsOfEither(op, "sliceOp", "sliceIncrOp")
	s.Axis = f.int("along")
	of, ok := op.(interface{ IsSlice() tensor.Slice })
	if !ok || !f.ok {
		return s, false, false
	}
	if slice := of.IsSlice(); slice == nil || slice.End() <= slice.Start() {
		s.All = true
	} else {
		s.Start, s.End, s.Step = slice.Start(), slice.End(), max(slice.Step(), 1)
	}
	return s, increment, true
}

// SoftMax returns the axis of a SoftMax or LogSoftMax, -1 for the last one, and of
// the derivative of either.
func SoftMax(op gorgonia.Op) (axis int, log, derivative, ok bool) {
	f, derivative := fieldsOfEither(op, "softmaxOp", "softmaxDiffOp")
	axis, log = f.int("axis"), f.bool("isLog")
	return axis, log, derivative, f.ok
}

// Tensordot returns the axes of either operand along which a Tensordot sums.
func Tensordot(op gorgonia.Op) (axesA, axesB []int, ok bool) {
	f := fieldsOf(op, "tensordotOp")
	axesA, axesB = f.ints("aAxes"), f.ints("bAxes")
	return axesA, axesB, f.ok
}

// Between returns min or max for a MinBetween or MaxBetween.
func Between(op gorgonia.Op) (name string, ok bool) {
	name, ok = map[string]string{"minBetween": "min", "maxBetween": "max"}[OpName(op)]
	return name, ok
}
