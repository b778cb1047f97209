package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// nvrtc is the compiler: the functions of libnvrtc that this program calls. All but errorString return a status, 0 for success.
type nvrtc struct {
	errorString    func(int32) string
	createProgram  func(prog *uintptr, source, name string, headers int32, texts, names uintptr) int32
	compileProgram func(prog uintptr, n int32, options **byte) int32
	destroyProgram func(prog *uintptr) int32
	logSize        func(prog uintptr, n *uintptr) int32
	log            func(prog uintptr, b *byte) int32
	cubinSize      func(prog uintptr, n *uintptr) int32
	cubin          func(prog uintptr, b *byte) int32
	ptxSize        func(prog uintptr, n *uintptr) int32
	ptx            func(prog uintptr, b *byte) int32
}

// supported returns an error where there is no compiler.
func supported() error { return nil }

func openCompiler(toolkit string) (compiler, error) {
	path, err := filepath.Abs(filepath.Join(toolkit, "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
	if err != nil {
		return nil, err
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("no compiler in %s: `go run github.com/stheno-ml/stheno/kernels/build -fetch -toolkit %s` puts it there: %w", toolkit, toolkit, err)
	}
	c := new(nvrtc)
	for name, fn := range map[string]any{
		"nvrtcGetErrorString":    &c.errorString,
		"nvrtcCreateProgram":     &c.createProgram,
		"nvrtcCompileProgram":    &c.compileProgram,
		"nvrtcDestroyProgram":    &c.destroyProgram,
		"nvrtcGetProgramLogSize": &c.logSize,
		"nvrtcGetProgramLog":     &c.log,
		"nvrtcGetCUBINSize":      &c.cubinSize,
		"nvrtcGetCUBIN":          &c.cubin,
		"nvrtcGetPTXSize":        &c.ptxSize,
		"nvrtcGetPTX":            &c.ptx,
	} {
		purego.RegisterLibFunc(fn, lib, name)
	}
	return c, nil
}

func (c *nvrtc) compile(name, source string, options []string, ptx bool) (image []byte, log string, err error) {
	check := func(call string, code int32) {
		if code != 0 && err == nil {
			err = fmt.Errorf("%s: %s", call, c.errorString(code))
		}
	}
	text := func(call string, prog uintptr, size func(uintptr, *uintptr) int32, get func(uintptr, *byte) int32) []byte {
		var n uintptr
		check(call, size(prog, &n))
		b := make([]byte, n+1)
		check(call, get(prog, &b[0]))
		return b[:n]
	}

	var prog uintptr
	check("nvrtcCreateProgram", c.createProgram(&prog, source, name, 0, 0, 0))
	if err != nil {
		return nil, "", err
	}
	defer c.destroyProgram(&prog)

	var pin runtime.Pinner
	defer pin.Unpin()
	args := make([]*byte, len(options))
	for i, o := range options {
		args[i] = unsafe.SliceData(append([]byte(o), 0))
		pin.Pin(args[i])
	}
	check("nvrtcCompileProgram", c.compileProgram(prog, int32(len(args)), &args[0]))
	log = strings.TrimRight(string(text("nvrtcGetProgramLog", prog, c.logSize, c.log)), "\x00\n")
	if err != nil {
		return nil, log, err
	}
	if ptx {
		image = text("nvrtcGetPTX", prog, c.ptxSize, c.ptx)
		return image[:len(image)-1], log, err // without the NUL, which C counts
	}
	return text("nvrtcGetCUBIN", prog, c.cubinSize, c.cubin), log, err
}
