//go:build !linux

package main

func openCompiler(string) (compiler, error) {
	return nil, errSystem
}

func supported() error { return errSystem }
