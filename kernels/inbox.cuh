// Sums that the blocks of a cluster send to one another, from compute capability 9.0 on. They arrive at a barrier in the shared memory of
// their receiver, which counts bytes: a barrier of the cluster after the sends would cost each block a fence, and the wait for all others.
#pragma once
#include "cluster.cuh"

typedef unsigned long long u64;

#if __CUDA_ARCH__ >= 900
// open_inbox is called by all threads of all blocks of a cluster, with the bytes that will come to each. Before they send,
// they call cluster_wait.
__device__ __forceinline__ void open_inbox(u64* full, int bytes) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(full);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp(); // racecheck takes the first instruction for one of the whole warp
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// send stores 16 bytes to p in another block's shared memory (st.async) and counts them at that block's mbarrier.
__device__ __forceinline__ void send(int block, float4* p, float4 v, u64* full) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(in_block(block, p)), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w), "r"(in_block(block, full)) : "memory");
}
__device__ __forceinline__ void send(int block, double2* p, double2 v, u64* full) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f64 [%0], {%1, %2}, [%3];" ::"r"(in_block(block, p)), "d"(v.x), "d"(v.y),
                 "r"(in_block(block, full)) : "memory");
}
// await_inbox waits until all bytes have come.
__device__ __forceinline__ void await_inbox(u64* full) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra again;\n}" ::"r"((unsigned)__cvta_generic_to_shared(full)) : "memory");
}
#else
template <typename V> __device__ void send(int, V*, V, u64*) {}
__device__ void open_inbox(u64*, int) {}
__device__ void await_inbox(u64*) {}
#endif
