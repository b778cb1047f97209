//go:build !(linux && !android && (amd64 || arm64)) && !(darwin && !ios && (amd64 || arm64)) && !(windows && amd64)

package hostblas

import (
	"errors"
	"runtime"
)

func open(string) (uintptr, error) {
	return 0, errors.New("no library is loaded on " + runtime.GOOS + "/" + runtime.GOARCH)
}

var searched []kind

func present(string) uintptr { return 0 }

func symbol(uintptr, string) uintptr { return 0 }

//go:uintptrescapes
func call(uintptr, ...uintptr) uintptr { panic("hostblas: no library is loaded") }
