// Asynchronous copies from global to shared memory, which take no register, from sm_80
// on; older devices make them at once. commit ends a batch of a thread's
// copies; arrived<n> waits until all of its batches but the last n have
// arrived. Copies of other threads can be read after a barrier.
#pragma once

// async_copy copies an element or a vector of 4, 8 or 16 bytes. 16 bytes bypass the
// first-level cache, for elements that are read once.
template <typename U> __device__ __forceinline__ void async_copy(U* to, const U* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (sizeof(U) == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(sizeof(U)) : "memory");
#else
    *to = *from;
#endif
}

// This one writes zeros and reads nothing where not inside. It leaves a copy in the
// first-level cache: blocks that share a multiprocessor share tiles of matrices (a
// product of 1024 x 1024 float32 on an H200: 63.5 us, and 66.7 past the cache).
template <typename U> __device__ __forceinline__ void async_copy(U* to, const U* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    const int bytes = inside ? (int)sizeof(U) : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(sizeof(U)), "r"(bytes) : "memory");
#else
    *to = inside ? *from : U();
#endif
}

__device__ __forceinline__ void commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int n> __device__ __forceinline__ void arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}
