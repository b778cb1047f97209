// How a kernel follows others in a graph: from compute capability 9.0 on, its blocks may be on the device before
// those kernels have ended (programmatic dependent launch).
#pragma once

// follow waits until the kernels that this one follows are done. A kernel that may come early calls it in every
// thread, before it reads or writes global memory and before it returns: so whoever waits for this kernel has
// also waited for those before it. Work before the call overlaps with them.
__device__ __forceinline__ void follow() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// admit lets the kernels that follow this one come to the device once all blocks have called it or are done. Blocks
// that come and wait take places: a kernel that has much left to do calls it late, or not at all.
__device__ __forceinline__ void admit() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
