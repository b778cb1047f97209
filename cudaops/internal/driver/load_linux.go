//go:build linux && !android && (amd64 || arm64)

package driver

import "github.com/ebitengine/purego"

// WSL mounts the driver of the Windows host outside the loader's search path.
var (
	cudaNames = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}
	nvmlNames = []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}
)

func open(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }

//go:uintptrescapes
func invoke(fn uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(r) // a C enum: the upper half of the register is undefined
}
