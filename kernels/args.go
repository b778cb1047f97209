package kernels

import (
	"fmt"
	"reflect"
	"sync"
)

// argField is an argument in a struct.
type argField struct {
	index []int // of fields and, negative, elements of arrays
	small bool  // an int32
}

// tooLarge is an argument that a kernel reads in 32 bits and that is larger. Go bodies read it in 64; for a GPU it is an error of [Launch.Check].
type tooLarge int64

var argFields sync.Map // []argField by reflect.Type

// fieldsOf returns the arguments that a value of a type is flattened into.
func fieldsOf(t reflect.Type) []argField {
	if list, ok := argFields.Load(t); ok {
		return list.([]argField)
	}
	var list []argField
	var add func(t reflect.Type, index []int, small bool)
	add = func(t reflect.Type, index []int, small bool) {
		switch {
		case t == reflect.TypeFor[Ref](), t == reflect.TypeFor[TensorMap]():
			list = append(list, argField{index, small})
		case t.Kind() == reflect.Struct && !hidden(t):
			for i := range t.NumField() {
				add(t.Field(i).Type, append(index[:len(index):len(index)], i), small || t.Field(i).Tag.Get("arg") == "int32")
			}
		case t.Kind() == reflect.Array:
			for i := range t.Len() {
				add(t.Elem(), append(index[:len(index):len(index)], ^i), small)
			}
		default:
			list = append(list, argField{index, small})
		}
	}
	add(t, nil, false)
	argFields.Store(t, list)
	return list
}

// hidden reports whether a struct has fields of another package's own: it is no list of arguments.
func hidden(t reflect.Type) bool {
	for i := range t.NumField() {
		if f := t.Field(i); !f.IsExported() && !f.Anonymous {
			return true
		}
	}
	return false
}

// of returns the field of a value.
func (f argField) of(v reflect.Value) reflect.Value {
	for _, i := range f.index {
		if i < 0 {
			v = v.Index(^i)
		} else {
			v = v.Field(i)
		}
	}
	return v
}

// flatten returns arguments with the fields of structs in their place.
func flatten(args []any) (flat []any) {
	for _, a := range args {
		v := reflect.ValueOf(a)
		if k := v.Kind(); k != reflect.Struct && k != reflect.Array {
			flat = append(flat, a)
			continue
		}
		for _, f := range fieldsOf(v.Type()) {
			switch x := f.of(v); {
			case f.small && x.Kind() == reflect.Int64 && x.Int() != int64(int32(x.Int())):
				flat = append(flat, tooLarge(x.Int()))
			case f.small && x.Kind() == reflect.Int64:
				flat = append(flat, int32(x.Int()))
			case x.Kind() == reflect.Bool && x.Bool():
				flat = append(flat, int32(1))
			case x.Kind() == reflect.Bool:
				flat = append(flat, int32(0))
			default:
				flat = append(flat, x.Interface())
			}
		}
	}
	return flat
}

// Args returns the first arguments of a launch as a struct of type T. It panics if the launch has other arguments, which [Check] reports.
//
// Arguments of a kernel are written as a struct with a field for each parameter, in order:
//
//	type sumArgs struct {
//		X, Out kernels.Ref
//		Rows   int64
//		N      int64 `arg:"int32"`
//		Mean   bool
//		Div    float64
//	}
//
// [Plan.Launch] flattens it: a field of type Ref, TensorMap, int32, int64, float32 or float64 is an argument, a bool is an int32 of 0 or
// 1, an int64 with the tag arg:"int32" is an int32, a field of type any is the argument that it holds, and the fields of structs and
// elements of arrays are arguments one after the other.
func Args[T any](c Call) T { return *c.unflatten((*T)(nil)).(*T) }

// unflatten returns a pointer to a struct of arguments, of the type of the given one. It is apart from Args, of which the program has a copy for each type.
func (c Call) unflatten(typed any) any {
	args := reflect.New(reflect.TypeOf(typed).Elem())
	v := args.Elem()
	for i, f := range fieldsOf(v.Type()) {
		to, from := f.of(v), c.Args[i]
		switch a := from.(type) {
		case Ref:
			a.argument = int64(i) + 1
			from = a
		case TensorMap:
			a.Ref.argument = int64(i) + 1
			from = a
		case int32:
			switch {
			case to.Kind() == reflect.Bool:
				to.SetBool(a != 0)
				continue
			case f.small && to.Kind() == reflect.Int64:
				to.SetInt(int64(a))
				continue
			}
		case tooLarge:
			from = int64(a)
		}
		if got := reflect.TypeOf(from); got == nil || !got.AssignableTo(to.Type()) {
			panic(fmt.Sprintf("argument %d is a %T, the Go body takes a %v", i, from, to.Type()))
		}
		to.Set(reflect.ValueOf(from))
	}
	return args.Interface()
}
