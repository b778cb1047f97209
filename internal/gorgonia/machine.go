package gorgonia

import (
	"reflect"

	"gorgonia.org/gorgonia"
)

// The flags of a tape machine.
const (
	watchNaN = 1 << 2
	watchInf = 1 << 3
	bindDV   = 1 << 7
)

// Rewind makes a tape machine ready for another run. Its own Reset also returns the nodes' tensors
// to a pool; nothing is freed here, so the next run finds its memory as it is.
func Rewind(vm gorgonia.VM) {
	pc, err := field(reflect.ValueOf(vm).Elem(), "pc", reflect.Int)
	if err != nil {
		vm.Reset()
		return
	}
	pc.SetInt(0)
}

// Watches reports which watches the options of a tape machine ask for.
func Watches(vm gorgonia.VM) (nan, inf bool, err error) {
	flags, err := field(reflect.ValueOf(vm).Elem(), "runFlags", reflect.Uint16)
	if err != nil {
		return false, false, err
	}
	return flags.Uint()&watchNaN != 0, flags.Uint()&watchInf != 0, nil
}

// MachineTape opens the program of a tape machine.
func MachineTape(vm gorgonia.VM) (*Tape, error) {
	program, err := field(reflect.ValueOf(vm).Elem(), "p", reflect.Pointer)
	if err != nil {
		return nil, err
	}
	return OpenTape(program.Interface())
}

// TakeDualValues removes the request of gorgonia.BindDualValues from a tape machine and returns its
// nodes, none for all nodes; asked reports whether there was one.
func TakeDualValues(vm gorgonia.VM) (nodes gorgonia.Nodes, asked bool, err error) {
	machine := reflect.ValueOf(vm).Elem()
	flags, err := field(machine, "runFlags", reflect.Uint16)
	if err != nil || flags.Uint()&bindDV == 0 {
		return nil, false, err
	}
	list, err := field(machine, "bindNodesDV", reflect.Slice)
	if err != nil {
		return nil, false, err
	}
	flags.SetUint(flags.Uint() &^ bindDV)
	return list.Interface().(gorgonia.Nodes), true, nil
}

// SetMachineTape sets the program of a tape machine, one that gorgonia.Compile returned.
func SetMachineTape(vm gorgonia.VM, program any) error {
	p, err := field(reflect.ValueOf(vm).Elem(), "p", reflect.Pointer)
	if err != nil {
		return err
	}
	p.Set(reflect.ValueOf(program))
	return nil
}
