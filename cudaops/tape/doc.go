// Package tape is for Gorgonia's own machines (gorgonia.NewTapeMachine,
// gorgonia.NewLispMachine) in programs built with the tag cuda.
//
// There, importing package ops, cudaops or stheno imports this package too, and
// that is all that a program needs: the kernels that Gorgonia's machines ask for
// by name are registered with gorgonia.AddToStdLib (no cudagen, no nvcc), and
// every op of package ops runs its plan in the machine's context.
//
// [NewMachine] makes a tape machine that has an OS thread of its own, returns
// errors where Gorgonia panics, and leaves values that outlive it. It exists
// without the tag as well, so a program builds both ways.
//
// docs/cuda-tag.md explains when to use which machine.
package tape
