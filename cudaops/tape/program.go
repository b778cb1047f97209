package tape

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
)

// instructionsOf are the instructions of a compiled program, to be set.
func instructionsOf(program any) (reflect.Value, error) {
	return field(reflect.ValueOf(program).Elem(), "instructions", reflect.Slice)
}

// eachOp replaces every op of a compiled program by what f makes of it.
func eachOp(program any, f func(gorgonia.Op) gorgonia.Op) error {
	instructions, err := instructionsOf(program)
	if err != nil {
		return err
	}
	for i := range instructions.Len() {
		instr := instructions.Index(i).Elem()
		if instr.Type().String() != "*gorgonia.execOp" {
			continue
		}
		op, err := field(instr.Elem(), "op", reflect.Interface)
		if err != nil {
			return err
		}
		op.Set(reflect.ValueOf(f(op.Interface().(gorgonia.Op))))
	}
	return nil
}

// field is a field of a struct of Gorgonia's, unexported or not, to be set.
func field(of reflect.Value, name string, kind reflect.Kind) (reflect.Value, error) {
	f := of.FieldByName(name)
	if !f.IsValid() || f.Kind() != kind {
		return f, fmt.Errorf("tape: a %v of this version of Gorgonia has no %v %q: want v0.9.18", of.Type(), kind, name)
	}
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem(), nil
}
