//go:build linux && !android && (amd64 || arm64)

package hostblas

// noLoad is dlopen's RTLD_NOLOAD.
const noLoad = 4

var searched = []kind{
	{"openblas", []string{"libopenblasp.so.0", "libopenblas.so.0", "libopenblas64.so.0", "libopenblas.so"}}, // Fedora's libopenblas.so.0 has no threads
	{"blis", []string{"libblis.so.4", "libblis-mt.so.5", "libblis-mt.so.4", "libblis.so.5", "libblis64.so.4"}},
	{"mkl", []string{"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so.1"}},
}
