//go:build !(linux && !android && (amd64 || arm64))

package nccl

import (
	"fmt"
	"runtime"
)

func open(string) (*Library, error) {
	return nil, fmt.Errorf("NCCL is not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}
