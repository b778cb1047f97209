/* cuda.h for gorgonia.org/cu on CUDA 11 to 13.
 *
 * gorgonia.org/cu v0.9.6 calls five functions of the CUDA driver in a form that CUDA 13's header no longer gives them: CUDA 13
 * renames each to a newer one with more parameters. The driver still exports the older forms, for programs built long ago. This
 * header takes the renaming back for those five and declares the older form; on CUDA 11 and 12 it leaves them alone. And it lets
 * programs start where there is no GPU.
 *
 * It works by standing first on the include path: #include <cuda.h> finds this file, and #include_next goes on to the toolkit's own.
 */
#ifndef STHENO_COMPAT_CUDA_H
#define STHENO_COMPAT_CUDA_H

/* The toolkit's cuda.h: the next one on the include path. */
#include_next <cuda.h>

/* cuInit: where it fails (no device, no driver but a stand-in for it), cu ends the program before main. Let the program start:
 * Stheno's machine then runs graphs on the host and tells why, and whoever calls the driver gets its error. */
static inline CUresult sthenoInit(unsigned int flags) {
    cuInit(flags);
    return CUDA_SUCCESS;
}
#define cuInit sthenoInit

#if CUDA_VERSION >= 13000

/* cuCtxCreate: CUDA 13 means version 4, with a struct of parameters; cu means version 2. */
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);

/* cuMemAdvise: CUDA 13 means version 2, with a location; cu means the first, with a device. The first has no suffix, so there is
 * nothing to define. */
#undef cuMemAdvise
CUresult CUDAAPI cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device);

/* cuMemPrefetchAsync: as cuMemAdvise; version 2 also has flags. */
#undef cuMemPrefetchAsync
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream);

/* cuGraphGetEdges: CUDA 13 means version 2, which also returns data kept with every edge; cu means the first. */
#undef cuGraphGetEdges
CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges);

/* cuGraphAddDependencies: as cuGraphGetEdges, to add edges. */
#undef cuGraphAddDependencies
CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies);

#endif /* CUDA_VERSION >= 13000 */

#endif /* STHENO_COMPAT_CUDA_H */
