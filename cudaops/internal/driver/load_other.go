//go:build !(linux && !android && (amd64 || arm64)) && !(windows && amd64)

package driver

import (
	"errors"
	"runtime"
)

var (
	cudaNames = []string{"the CUDA driver"}
	nvmlNames = []string{"NVML"}
)

func open(string) (uintptr, error) {
	return 0, errors.New("no driver is supported on " + runtime.GOOS + "/" + runtime.GOARCH)
}

func symbol(uintptr, string) (uintptr, error) { return open("") }

//go:uintptrescapes
func invoke(uintptr, ...uintptr) int32 { panic("driver: no library is loaded") }
