//go:build cuda

package compat

/*
#if !__has_include(<cuda.h>) || !__has_include(<cudnn.h>)
#error "The tag cuda needs a CUDA toolkit with cuDNN. To see what is missing: go run github.com/stheno-ml/stheno/cmd/stheno env"
#else
#include <cuda.h>
#include <cudnn.h>
#if (CUDA_VERSION >= 13000 && !defined(STHENO_COMPAT_CUDA_H)) || (CUDNN_MAJOR >= 9 && !defined(STHENO_COMPAT_CUDNN_H))
#error "gorgonia.org/cu needs settings to build on CUDA 13 or cuDNN 9: eval \"$(go run github.com/stheno-ml/stheno/cmd/stheno env)\""
#endif
#endif
*/
import "C"

import "fmt"

// CUDA is the version of the toolkit that the program was built with, such as
// 13.0.
func CUDA() string { return fmt.Sprintf("%d.%d", C.CUDA_VERSION/1000, C.CUDA_VERSION%1000/10) }

// CUDNN is the version of cuDNN that the program was built with, such as
// 9.28.0.
func CUDNN() string {
	return fmt.Sprintf("%d.%d.%d", C.CUDNN_MAJOR, C.CUDNN_MINOR, C.CUDNN_PATCHLEVEL)
}
