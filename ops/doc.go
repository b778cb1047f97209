// Package ops holds Stheno's ops: functions that take Gorgonia nodes and return
// Gorgonia nodes, like Gorgonia's own.
//
// Every op takes float32 and float64, [Histogram] bytes and integers too, and all
// but Histogram are differentiable, symbolically and by dual values. Names and meaning are PyTorch's where it has
// the op, numpy's otherwise. Axes may be negative: -1 is the last one. Ops of several tensors broadcast by numpy's rule where their
// comments say so.
// They run on the host under any Gorgonia machine; under Stheno's machine
// (stheno.NewVM, cudaops.NewVM) they run their CUDA kernels. Inputs are
// checked once, in the constructor, which returns an error that names the op, the
// input, what it got and what it takes.
package ops
