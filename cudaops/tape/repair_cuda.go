//go:build cuda

package tape

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
)

// compile sets the machine's program, the graph's with repairs of the faults that Gorgonia
// v0.9.18 compiles wrongly for CUDA:
//
//   - Instructions that free memory are taken out. Gorgonia frees register 0 of
//     the device for every statement (a Read, say), whoever holds it, and the
//     machine panics where there is no such register. The machine's pool has room
//     for the memory that they would free: it holds 2.5 times all values.
//   - A value copied to the host is there when the next instruction reads it.
//   - The queue of CUDA calls is flushed before it holds 63. From then on two
//     goroutines work on it, and it is not safe for two.
//   - Gorgonia's matrix products are put in order with the rest ([linAlg]).
//   - The kernels of its element-wise ops are launched by Stheno ([elementWise]).
//   - Ops on integers and comparisons that return a Bool run on the host ([hosted]).
//   - The pool is larger by the bytes that aligning each value takes.
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
	flush, err := internal.Flush()
	if err != nil {
		return nil, err
	}
	t, err := internal.OpenTape(program)
	if err != nil {
		return nil, err
	}
	if err := t.EachOp(func(op gorgonia.Op) gorgonia.Op { return guard(substitute(op)) }); err != nil {
		return nil, err
	}
	repaired, values := repair(t.Instructions(), flush)
	t.SetInstructions(repaired)
	pools, setPool, err := t.Pools()
	if err != nil {
		return nil, err
	}
	for i, size := range pools {
		size += 64 * values
		if err := checkMemory(i, size); err != nil {
			return nil, err
		}
		setPool(i, size)
	}
	return gorgonia.WithPrecompiled(program, registers), nil
}

// repair returns the instructions to run, and the number of values that they allocate.
func repair(instructions []internal.Instruction, flush internal.Instruction) (repaired []internal.Instruction, values int64) {
	queued := 0
	for _, instr := range instructions {
		most := 0 // calls that the instruction may queue
		switch instr.Kind() {
		case "free":
			continue
		case "flushInstr":
			queued = 0
		case "alloc":
			values++
		case "deviceTransport":
			most = 1
		case "execOp":
			most = 3 // a copy, a launch, a wait
		}
		if queued += most; queued > 48 {
			repaired = append(repaired, flush)
			queued = most
		}
		repaired = append(repaired, instr)
		if instr.ToHost() { // the next instruction reads it at once
			repaired = append(repaired, flush)
			queued = 0
		}
	}
	return repaired, values
}

// substitute returns the op to run instead of one of Gorgonia's on a device.
func substitute(op gorgonia.Op) gorgonia.Op {
	switch internal.OpName(op) {
	case "linAlgBinOp":
		return linAlg{op}
	case "elemUnaryOp", "elemBinOp":
		return elementWise{op}
	}
	return op
}

// check returns an error if there is no device for a graph that needs one: in a CUDA build Gorgonia
// runs its element-wise ops and products only there, and panics otherwise.
func check(g *gorgonia.ExprGraph) error {
	if Available() == nil {
		return nil
	}
	for _, n := range g.AllNodes() {
		if _, ok := n.Op().(gorgonia.CUDADoer); ok {
			return fmt.Errorf("tape: with the tag cuda Gorgonia runs %v only on a CUDA device: %w; stheno.NewVM runs it on the host", n.Op(), Available())
		}
	}
	return nil
}

// checkMemory returns an error if a device has no memory for a graph whose values have that many
// bytes. Gorgonia would hang.
func checkMemory(device int, bytes int64) error {
	d, err := driver.Get(device)
	if err != nil {
		return err
	}
	need := 2*bytes + bytes/2
	if need < d.Memory/2 {
		return nil // less than half of the device's memory
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
	const context = 1 << 30 // the most that the machine's own context and libraries need
	if need+context > free {
		return fmt.Errorf("tape: Gorgonia's machine takes %d bytes for the graph, 2.5 times its values, and %s has %d free: stheno.NewVM takes less", need, d.Name, free)
	}
	return nil
}

// rewind makes the machine ready for another run.
func rewind(vm gorgonia.VM) { internal.Rewind(vm) }
