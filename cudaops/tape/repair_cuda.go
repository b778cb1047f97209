//go:build cuda

package tape

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// compile gives the machine the graph's program with repairs of what Gorgonia
// v0.9.18 compiles wrongly for CUDA:
//
//   - Instructions that free memory are taken out. Gorgonia frees register 0 of
//     the device for every statement (a Read, say), whoever holds it, and the
//     machine panics where there is no such register. What they would give back
//     the machine's pool has room for: it holds 2.5 times all values.
//   - A value copied to the host is there when the next instruction reads it.
//   - The queue of CUDA calls is flushed before it holds 63. From then on two
//     goroutines work on it, and it is not safe for two.
//   - Gorgonia's matrix products are put in order with the rest ([linAlg]).
//   - Ops on integers and comparisons that give a Bool run on the host ([hosted]).
//   - The pool is larger by what aligning each value takes.
func compile(g *gorgonia.ExprGraph) (gorgonia.VMOpt, error) {
	restore, err := host(g)
	defer restore()
	if err != nil {
		return nil, err
	}
	program, registers, err := gorgonia.Compile(g)
	if err != nil {
		return nil, err
	}
	flush, err := flushInstruction()
	if err != nil {
		return nil, err
	}
	if err := eachOp(program, func(op gorgonia.Op) gorgonia.Op { return guard(ordered(op)) }); err != nil {
		return nil, err
	}
	instructions, err := instructionsOf(program)
	if err != nil {
		return nil, err
	}
	repaired := reflect.MakeSlice(instructions.Type(), 0, instructions.Len())
	values, queued := int64(0), 0
	for i := range instructions.Len() {
		instr := instructions.Index(i)
		most := 0 // calls that the instruction may queue
		switch instr.Elem().Type().String() {
		case "gorgonia.free":
			continue
		case "gorgonia.flushInstr":
			queued = 0
		case "gorgonia.alloc":
			values++
		case "gorgonia.deviceTransport":
			most = 1
		case "*gorgonia.execOp":
			most = 3 // a copy, a launch, a wait
		}
		if queued += most; queued > 48 {
			repaired = reflect.Append(repaired, flush)
			queued = most
		}
		repaired = reflect.Append(repaired, instr)
		if toHost(instr.Elem()) { // what comes next reads it at once
			repaired = reflect.Append(repaired, flush)
			queued = 0
		}
	}
	instructions.Set(repaired)
	pool, err := field(reflect.ValueOf(program).Elem(), "gpumem", reflect.Slice)
	if err != nil {
		return nil, err
	}
	for i := range pool.Len() {
		size := pool.Index(i).Int() + 64*values
		if err := checkMemory(i, size); err != nil {
			return nil, err
		}
		pool.Index(i).SetInt(size)
	}
	return gorgonia.WithPrecompiled(program, registers), nil
}

// check says why there is no device for a graph that needs one: in a CUDA build
// Gorgonia runs its element-wise ops and products nowhere else, and panics.
func check(g *gorgonia.ExprGraph) error {
	if Available() == nil {
		return nil
	}
	for _, n := range g.AllNodes() {
		if _, ok := n.Op().(gorgonia.CUDADoer); ok {
			return fmt.Errorf("tape: with the tag cuda Gorgonia runs %v on a CUDA device alone: %w; stheno.NewVM runs it on the host", n.Op(), Available())
		}
	}
	return nil
}

// checkMemory says that a device has no memory for a graph whose values have
// that many bytes. Gorgonia hangs then.
func checkMemory(device int, bytes int64) error {
	d, err := driver.Get(device)
	if err != nil {
		return err
	}
	need := 2*bytes + bytes/2
	if need < d.Memory/2 {
		return nil // plenty, on a device that is not full
	}
	ctx, err := d.Open()
	if err != nil {
		return err
	}
	defer ctx.Close()
	free, _, err := ctx.MemInfo()
	if err != nil {
		return err
	}
	const context = 1 << 30 // what the machine's own context and libraries take, generously
	if need+context > free {
		return fmt.Errorf("tape: Gorgonia's machine takes %d bytes for the graph, 2.5 times its values, and %s has %d free: stheno.NewVM takes less", need, d.Name, free)
	}
	return nil
}

// toHost tells whether an instruction copies a value to the host.
func toHost(instr reflect.Value) bool {
	if instr.Type().String() != "gorgonia.deviceTransport" {
		return false
	}
	return gorgonia.Device(instr.FieldByName("to").FieldByName("device").Int()) == gorgonia.CPU
}

// rewind makes the machine ready for another run. Its own Reset also hands the
// tensors that nodes hold to others; nothing is freed here, so the next run
// finds its memory as it is.
func rewind(vm gorgonia.VM) {
	pc, err := field(reflect.ValueOf(vm).Elem(), "pc", reflect.Int)
	if err != nil {
		vm.Reset()
		return
	}
	pc.SetInt(0)
}

// flushInstruction is the instruction that works the queue off, out of the
// program of a graph that has one.
var flushInstruction = sync.OnceValues(func() (flush reflect.Value, err error) {
	g := gorgonia.NewGraph()
	var v gorgonia.Value
	gorgonia.Read(gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("x")), &v)
	program, _, err := gorgonia.Compile(g)
	if err != nil {
		return flush, err
	}
	instructions, err := instructionsOf(program)
	if err != nil {
		return flush, err
	}
	for i := range instructions.Len() {
		if flush = instructions.Index(i); flush.Elem().Type().String() == "gorgonia.flushInstr" {
			return flush, nil
		}
	}
	return flush, fmt.Errorf("tape: this version of Gorgonia has no instruction to flush: want v0.9.18")
})
