//go:build windows && amd64

package driver

import (
	"os"
	"path/filepath"
	"syscall"
)

// The full path keeps a DLL of the same name in the working folder out.
var (
	cudaNames = []string{system32("nvcuda.dll")}
	nvmlNames = []string{system32("nvml.dll")}
)

func system32(name string) string {
	return filepath.Join(os.Getenv("SystemRoot"), "System32", name)
}

func open(name string) (uintptr, error) {
	h, err := syscall.LoadLibrary(name)
	return uintptr(h), err
}

func symbol(lib uintptr, name string) (uintptr, error) {
	return syscall.GetProcAddress(syscall.Handle(lib), name)
}

//go:uintptrescapes
func invoke(fn uintptr, args ...uintptr) int32 {
	r, _, _ := syscall.SyscallN(fn, args...)
	return int32(r) // a C enum: the upper half of the register is undefined
}
