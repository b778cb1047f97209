// Package stheno runs Gorgonia graphs on GPUs.
//
// A graph is built with package gorgonia and with Stheno's ops (package ops),
// which have CUDA kernels. [NewVM] runs it on the GPU if there is one, else on
// the host: the same program, with the same report of what ran where.
//
//	y, err := ops.Add(a, b)
//	...
//	vm, err := stheno.NewVM(g) // in place of gorgonia.NewTapeMachine(g)
//	...
//	defer vm.Close()
//	err = vm.RunAll()
//
// No cgo, CUDA toolkit or build tag is needed: kernels are compiled into the
// package, and the NVIDIA driver is loaded when a program runs.
package stheno
