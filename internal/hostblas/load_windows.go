//go:build windows && amd64

package hostblas

import (
	"syscall"
	"unsafe"
)

func open(name string) (uintptr, error) {
	h, err := syscall.LoadLibrary(name)
	return uintptr(h), err
}

// searched is empty: the loader of Windows would search the working folder, too.
var searched []kind

// present returns the handle of a library that is in the process already, or 0.
func present(name string) uintptr {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return 0
	}
	handle, _, _ := syscall.SyscallN(moduleHandle.Addr(), uintptr(unsafe.Pointer(path)))
	return handle
}

var moduleHandle = syscall.NewLazyDLL("kernel32.dll").NewProc("GetModuleHandleW")

func symbol(lib uintptr, name string) uintptr {
	addr, _ := syscall.GetProcAddress(syscall.Handle(lib), name)
	return addr
}

// call calls a C function. Memory whose address is among the arguments stays alive and in place
// until call returns.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := syscall.SyscallN(fn, args...)
	return r
}
