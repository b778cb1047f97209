// Package ops holds Stheno's ops: functions that take Gorgonia nodes and give
// Gorgonia nodes, like Gorgonia's own.
//
// Every op is differentiable (symbolically and by dual values), takes float32
// and float64, and runs on the host under any Gorgonia machine; under Stheno's
// machine (stheno.NewVM, cudaops.NewVM) it runs its CUDA kernels. Inputs are
// checked once, in the constructor, which gives an error that names the op, the
// input, what it got and what it takes.
package ops
