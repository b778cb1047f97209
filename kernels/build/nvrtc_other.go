//go:build !linux

package main

import "errors"

func openCompiler(string) (compiler, error) {
	return nil, errors.New("the kernels are compiled on Linux")
}
