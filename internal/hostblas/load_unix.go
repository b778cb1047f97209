//go:build (linux && !android && (amd64 || arm64)) || (darwin && !ios && (amd64 || arm64))

package hostblas

import "github.com/ebitengine/purego"

func open(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// present returns the handle of a library that is in the process already, or 0.
func present(name string) uintptr {
	handle, _ := purego.Dlopen(name, purego.RTLD_NOW|noLoad)
	return handle
}

func symbol(lib uintptr, name string) uintptr {
	addr, _ := purego.Dlsym(lib, name)
	return addr
}

// call calls a C function. Memory whose address is among the arguments stays alive and in place
// until call returns.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
