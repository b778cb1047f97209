package ops

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/internal/fingerprint"
)

// identity distinguishes an op from others in a graph: a hash of the primitive's type, name and
// fields and of the inputs' types.
type identity = fingerprint.Fingerprint

// identify returns the identity of a primitive on inputs. It follows pointers but hashes no
// address, so the result is the same in every run.
func identify(p Primitive, name string, in []Type) (identity, error) {
	e := encoder{}
	e.string(name)
	e.value(reflect.ValueOf(&p).Elem(), 0)
	for _, t := range in {
		e.string(t.String())
	}
	return fingerprint.Of(e.bytes), e.err
}

// An encoder writes values so that different values have different bytes. It keeps the first error.
type encoder struct {
	bytes []byte
	err   error
}

// Limits on the values in a primitive. They end cycles of pointers.
const (
	deepest = 1000    // levels
	longest = 1 << 24 // bytes
)

func (e *encoder) number(n uint64) { e.bytes = binary.LittleEndian.AppendUint64(e.bytes, n) }

func (e *encoder) string(s string) {
	e.number(uint64(len(s)))
	e.bytes = append(e.bytes, s...)
}

func (e *encoder) bool(b bool) {
	if b {
		e.number(1)
	} else {
		e.number(0)
	}
}

func (e *encoder) value(v reflect.Value, depth int) {
	if depth > deepest || len(e.bytes) > longest {
		e.err = errors.New("its fields hold too much, or a pointer that leads back to itself: want plain parameters")
	}
	if e.err != nil {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		e.bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		e.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		e.number(math.Float64bits(v.Float()))
	case reflect.Complex64, reflect.Complex128:
		e.number(math.Float64bits(real(v.Complex())))
		e.number(math.Float64bits(imag(v.Complex())))
	case reflect.String:
		e.string(v.String())
	case reflect.Struct:
		for i := range v.NumField() {
			e.value(v.Field(i), depth+1)
		}
	case reflect.Slice, reflect.Array:
		e.number(uint64(v.Len()))
		for i := range v.Len() {
			e.value(v.Index(i), depth+1)
		}
	case reflect.Map:
		e.entries(v, depth)
	case reflect.Interface:
		if e.bool(!v.IsNil()); !v.IsNil() {
			e.string(typeName(v.Elem().Type()))
			e.value(v.Elem(), depth+1)
		}
	case reflect.Pointer:
		if e.bool(!v.IsNil()); !v.IsNil() {
			e.value(v.Elem(), depth+1)
		}
	default: // functions, channels, unsafe pointers
		if e.bool(!v.IsNil()); !v.IsNil() {
			e.err = fmt.Errorf("it holds a %v, which cannot be compared: want plain parameters", v.Type())
		}
	}
}

// entries writes a map in the order of its encoded keys.
func (e *encoder) entries(m reflect.Value, depth int) {
	var all [][]byte
	for iter := m.MapRange(); iter.Next(); {
		entry := encoder{}
		entry.value(iter.Key(), depth+1)
		entry.value(iter.Value(), depth+1)
		if e.err = entry.err; e.err != nil {
			return
		}
		all = append(all, entry.bytes)
	}
	slices.SortFunc(all, bytes.Compare)
	e.number(uint64(len(all)))
	for _, entry := range all {
		e.bytes = append(e.bytes, entry...)
	}
}

// typeName returns the name of a type with its whole import path, which
// fmt's %T cuts to its last element.
func typeName(t reflect.Type) string {
	switch {
	case t.Name() != "":
		return t.PkgPath() + "." + t.Name()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	}
	return t.String()
}
