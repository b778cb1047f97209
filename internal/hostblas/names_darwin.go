//go:build darwin && !ios && (amd64 || arm64)

package hostblas

// noLoad is dlopen's RTLD_NOLOAD.
const noLoad = 0x10

var searched = []kind{
	{"accelerate", []string{systems + "Library/Frameworks/Accelerate.framework/Accelerate"}},
	{"openblas", []string{"/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "/usr/local/opt/openblas/lib/libopenblas.dylib"}},
}
