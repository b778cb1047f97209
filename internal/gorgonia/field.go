package gorgonia

import (
	"fmt"
	"reflect"
	"unsafe"
)

// field returns a field of a struct of Gorgonia's, unexported or not, that can be
// read and set.
func field(of reflect.Value, name string, kind reflect.Kind) (reflect.Value, error) {
	f := of.FieldByName(name)
	if !f.IsValid() || f.Kind() != kind {
		return f, fmt.Errorf("a %v of this version of Gorgonia has no %v %q: want v0.9.18", of.Type(), kind, name)
	}
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem(), nil
}
