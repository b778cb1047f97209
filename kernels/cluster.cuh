// Blocks of a cluster that write to one another's shared memory, from compute capability 9.0 on.
#pragma once

#if __CUDA_ARCH__ >= 900
// in_block is where p is in the shared memory of another block of the cluster; send writes 16 bytes there.
__device__ __forceinline__ unsigned in_block(int block, const void* p) {
    unsigned to;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(block));
    return to;
}
__device__ __forceinline__ void send(int block, float4* p, float4 v) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(in_block(block, p)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ __forceinline__ void send(int block, double2* p, double2 v) {
    asm volatile("st.shared::cluster.v2.f64 [%0], {%1, %2};" ::"r"(in_block(block, p)), "d"(v.x), "d"(v.y) : "memory");
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
#else
template <typename V> __device__ void send(int, V*, V) {}
__device__ void cluster_arrive() {}
__device__ void cluster_wait() {}
#endif
