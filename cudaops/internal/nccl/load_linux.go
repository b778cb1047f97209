//go:build linux && !android && (amd64 || arm64)

package nccl

import (
	"fmt"
	"reflect"

	"github.com/ebitengine/purego"
)

// open loads a library and resolves every function. The error names the first that is missing.
func open(name string) (*Library, error) {
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	l := &Library{Path: name}
	fn := reflect.ValueOf(&l.fn).Elem()
	for i := range fn.NumField() {
		symbol := "nccl" + fn.Type().Field(i).Name
		at, err := purego.Dlsym(handle, symbol)
		if err != nil {
			return nil, fmt.Errorf("got a library without %s, want NCCL 2.10 or newer", symbol)
		}
		purego.RegisterFunc(fn.Field(i).Addr().Interface(), at)
	}
	return l, nil
}
