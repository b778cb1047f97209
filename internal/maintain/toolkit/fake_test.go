package toolkit

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The fake headers define the names of the real ones that package compat's headers use, in
// the forms of each version.
const fakeCUDA = `
#pragma once
#define CUDA_VERSION %d
#define CUDAAPI
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_STUB_LIBRARY = 34 } CUresult;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct graph *CUgraph;
typedef struct node *CUgraphNode;
typedef int CUdevice, CUmem_advise;
typedef unsigned long long CUdeviceptr;
typedef __SIZE_TYPE__ size_t;
CUresult cuInit(unsigned int flags);
#if CUDA_VERSION >= 13000
#define cuCtxCreate cuCtxCreate_v4
#define cuMemAdvise cuMemAdvise_v2
#define cuMemPrefetchAsync cuMemPrefetchAsync_v2
#define cuGraphGetEdges cuGraphGetEdges_v2
#define cuGraphAddDependencies cuGraphAddDependencies_v2
CUresult cuCtxCreate(CUcontext *pctx, void *params, unsigned int flags, CUdevice dev);
CUresult cuMemAdvise(CUdeviceptr p, size_t count, CUmem_advise advice, void *location);
CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t count, void *location, unsigned int flags, CUstream s);
CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, void *data, size_t *n);
CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, const void *data, size_t n);
#else
#define cuCtxCreate cuCtxCreate_v2
CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev);
CUresult cuMemAdvise(CUdeviceptr p, size_t count, CUmem_advise advice, CUdevice device);
CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t count, CUdevice device, CUstream s);
CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *n);
CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n);
#endif
`

const fakeCUDNN = `
#pragma once
#include "cudnn_version.h"
#include <stddef.h>
typedef enum { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_NOT_SUPPORTED = 3000 } cudnnStatus_t;
typedef int cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnRNNAlgo_t,
    cudnnCTCLossAlgo_t, cudnnDataType_t, cudnnMathType_t;
typedef struct rnn *cudnnRNNDescriptor_t;
#if CUDNN_MAJOR < 9
typedef struct algorithm *cudnnAlgorithmDescriptor_t;
static cudnnStatus_t cudnnCreateAlgorithmDescriptor(cudnnAlgorithmDescriptor_t *d) { return CUDNN_STATUS_SUCCESS; }
#endif
`

// Where each layout has its parts.
type layout struct{ cuda, cublas, dnn, cublasLib, dnnLib string }

var (
	installed = layout{"include", "include", "include", "lib64/libcublas.so", "lib64/libcudnn.so"}
	targets   = layout{"targets/" + targetDir[runtime.GOARCH] + "/include", "targets/" + targetDir[runtime.GOARCH] + "/include", "include",
		"targets/" + targetDir[runtime.GOARCH] + "/lib/libcublas.so", "lib/libcudnn.so.9"}
	debian = layout{"include", "include", "include/" + multiarch[runtime.GOARCH], "lib/" + multiarch[runtime.GOARCH] + "/libcublas.so.12",
		"lib/" + multiarch[runtime.GOARCH] + "/libcudnn.so"}
	wheels12 = layout{"nvidia/cuda_runtime/include", "nvidia/cublas/include", "nvidia/cudnn/include",
		"nvidia/cublas/lib/libcublas.so.12", "nvidia/cudnn/lib/libcudnn.so.9"}
	wheels13 = layout{"nvidia/cu13/include", "nvidia/cu13/include", "nvidia/cudnn/include",
		"nvidia/cu13/lib/libcublas.so.13", "nvidia/cudnn/lib/libcudnn.so.9"}
	venv = layout{"lib/python3.12/site-packages/nvidia/cuda_runtime/include", "lib/python3.12/site-packages/nvidia/cublas/include",
		"lib/python3.12/site-packages/nvidia/cudnn/include", "lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12",
		"lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9"}
)

// fake makes a toolkit of CUDA version cuda, such as 13000, and of that cuDNN
// major version.
func fake(t *testing.T, root string, l layout, cuda, cudnn int) {
	t.Helper()
	testutil.Write(t, filepath.Join(root, l.cuda, "cuda.h"), fmt.Sprintf(fakeCUDA, cuda))
	testutil.Write(t, filepath.Join(root, l.cublas, "cublas_v2.h"), "")
	testutil.Write(t, filepath.Join(root, l.dnn, "cudnn.h"), fakeCUDNN)
	testutil.Write(t, filepath.Join(root, l.dnn, "cudnn_version.h"), fmt.Sprintf("#define CUDNN_MAJOR %d\n#define CUDNN_MINOR 5\n#define CUDNN_PATCHLEVEL 1\n", cudnn))
	testutil.Write(t, filepath.Join(root, l.cublasLib), "")
	testutil.Write(t, filepath.Join(root, l.dnnLib), "")
}
