package gorgonia

import (
	"fmt"
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Tape is the result of gorgonia.Compile, open to repairs.
type Tape struct {
	program      any
	instructions reflect.Value
}

// OpenTape opens the first result of gorgonia.Compile.
func OpenTape(program any) (*Tape, error) {
	instructions, err := field(reflect.ValueOf(program).Elem(), "instructions", reflect.Slice)
	if err != nil {
		return nil, err
	}
	return &Tape{program, instructions}, nil
}

// Compiled returns the graph, or the part of one, that a program runs: the first result
// of gorgonia.Compile or gorgonia.CompileFunction.
func Compiled(program any) (*gorgonia.ExprGraph, error) {
	v := reflect.ValueOf(program)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("got a %T, want the first result of gorgonia.Compile or gorgonia.CompileFunction", program)
	}
	f, err := field(v.Elem(), "g", reflect.Pointer)
	if err != nil {
		return nil, err
	}
	g, ok := f.Interface().(*gorgonia.ExprGraph)
	if !ok || g == nil {
		return nil, fmt.Errorf("got a %T without a graph, want the first result of gorgonia.Compile or gorgonia.CompileFunction", program)
	}
	return g, nil
}

// Instruction is one of the instructions of a [Tape].
type Instruction struct{ v reflect.Value }

// Kind returns the type name of the instruction, such as "execOp".
func (i Instruction) Kind() string {
	t := i.v.Elem().Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// ToHost reports whether the instruction copies a value to the host.
func (i Instruction) ToHost() bool {
	if i.Kind() != "deviceTransport" {
		return false
	}
	return gorgonia.Device(i.v.Elem().FieldByName("to").FieldByName("device").Int()) == gorgonia.CPU
}

// Instructions returns the instructions in order.
func (t *Tape) Instructions() []Instruction {
	list := make([]Instruction, t.instructions.Len())
	for i := range list {
		list[i] = Instruction{t.instructions.Index(i)}
	}
	return list
}

// SetInstructions replaces the instructions.
func (t *Tape) SetInstructions(list []Instruction) {
	all := reflect.MakeSlice(t.instructions.Type(), 0, len(list))
	for _, i := range list {
		all = reflect.Append(all, i.v)
	}
	t.instructions.Set(all)
}

// EachOp replaces every op by the result of f.
func (t *Tape) EachOp(f func(gorgonia.Op) gorgonia.Op) error {
	for _, i := range t.Instructions() {
		if i.Kind() != "execOp" {
			continue
		}
		op, err := field(i.v.Elem().Elem(), "op", reflect.Interface)
		if err != nil {
			return err
		}
		op.Set(reflect.ValueOf(f(op.Interface().(gorgonia.Op))))
	}
	return nil
}

// Pools returns the bytes of each device's memory that the values take, to be set.
func (t *Tape) Pools() ([]int64, func(device int, bytes int64), error) {
	pool, err := field(reflect.ValueOf(t.program).Elem(), "gpumem", reflect.Slice)
	if err != nil {
		return nil, nil, err
	}
	bytes := make([]int64, pool.Len())
	for i := range bytes {
		bytes[i] = pool.Index(i).Int()
	}
	return bytes, func(device int, bytes int64) { pool.Index(device).SetInt(bytes) }, nil
}

// Flush returns the instruction that flushes the queue of CUDA calls, from the program of a graph
// that has one.
var Flush = sync.OnceValues(func() (flush Instruction, err error) {
	g := gorgonia.NewGraph()
	var v gorgonia.Value
	gorgonia.Read(gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("x")), &v)
	program, _, err := gorgonia.Compile(g)
	if err != nil {
		return flush, err
	}
	t, err := OpenTape(program)
	if err != nil {
		return flush, err
	}
	for _, i := range t.Instructions() {
		if i.Kind() == "flushInstr" {
			return i, nil
		}
	}
	return flush, fmt.Errorf("this version of Gorgonia has no instruction to flush: want v0.9.18")
})

// OnDevice reports whether an execOp runs on a device.
func (i Instruction) OnDevice() bool {
	return i.Kind() == "execOp" && i.v.Elem().Elem().FieldByName("useGPU").Bool()
}
