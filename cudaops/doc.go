// Package cudaops runs Gorgonia graphs on CUDA devices, without cgo.
//
// [NewVM] makes a [VM] of an expression graph: ops that have kernels
// (kernels.Planner, as all ops of package ops) run on the device, all others
// on the host by their Do. Where each node runs, what is copied when and where
// in device memory every value lies is decided once; [VM.Report] tells it.
//
//	graph --> program: steps, transfers, memory plan --> backend: CUDA driver | Go bodies
//
// The two backends differ in what runs a plan, nothing else, so the whole
// machine can be used and tested where there is no GPU.
package cudaops
