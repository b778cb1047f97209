// Package cudaops runs Gorgonia graphs on CUDA devices, without cgo.
//
// [NewVM] compiles an expression graph for a device:
//
//	graph --lower--> program --passes--> program, planned and placed --> backend: CUDA driver | Go bodies
//
// Stheno's ops and the Gorgonia ops with kernels run on the device, all other ops on the host by their Do. The compiler decides
// once where each node runs, which values are copied, and the address of every value in device memory. [VM.Report] describes
// the result, [VM.Explain] prints the program after every pass of the compiler, and [VM.Passes] measures it.
//
// The two backends differ only in how they execute a launch plan, so the whole machine can be used and tested without a GPU.
package cudaops
