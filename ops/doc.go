// Package ops holds Stheno's ops: functions that take Gorgonia nodes and return
// Gorgonia nodes, like Gorgonia's own.
//
// Every op takes float32 and float64, and integers and bool where its comment says so or where it moves elements alone. Ops of floating-point
// numbers are differentiable, symbolically and by dual values; [Histogram] is not. Integers are passed by. gorgonia.NewLispMachine wants one root, the
// cost: results that nothing reads, such as a part of Split, need gorgonia.NewLispMachine(g.SubgraphRoots(cost)). Names and meaning are PyTorch's where it
// has the op, numpy's otherwise. Axes may be negative: -1 is the last one. Ops of several tensors broadcast by numpy's rule where their
// comments say so.
// They run on the host under any Gorgonia machine; under Stheno's machine
// (stheno.NewVM, cudaops.NewVM) they run their CUDA kernels. Inputs are
// checked once, in the constructor, which returns an error that names the op, the
// input, what it got and what it takes.
package ops
