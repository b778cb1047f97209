// Package cudaops runs Gorgonia graphs on CUDA devices, without cgo.
//
// [NewVM] compiles an expression graph for a device and makes a [VM] of it:
//
//	graph --lower--> program --passes--> program, planned and placed --> backend: CUDA driver | Go bodies
//
// Stheno's ops and the Gorgonia ops that have kernels run on the device, all
// others on the host by their Do. Where each node runs, what is copied when, and
// where in device memory every value lies is decided once: [VM.Report] describes it,
// [VM.Explain] shows the program after every pass of the compiler, and [VM.Passes] its
// size in numbers.
//
// The two backends differ only in how they run a launch plan, so the whole
// machine can be used and tested where there is no GPU.
package cudaops
