// 8. Products of a whole warpgroup: 128 threads compute a tile of 128 x 128. In the versions before, threads load factors from shared memory for
// each product; wgmma reads them there by itself, so threads have nothing to do but to bring the pieces.
#include "async.cuh"
#include "warpgroups.cuh"

// copy brings ROWS rows of 64 elements, n apart, in the order of the swizzle, 16 bytes a thread at a time.
template <int ROWS> __device__ __forceinline__ void copy(unsigned char* to, const u16* from, int n) {
    const int row = threadIdx.x / 8, part = threadIdx.x % 8;
#pragma unroll
    for (int r = row; r < ROWS; r += 16)
        async_copy(reinterpret_cast<uint4*>(to + r * 128 + (part ^ r % 8) * 16), reinterpret_cast<const uint4*>(from + (i64)r * n + part * 8));
}

// Other blocks on the multiprocessor multiply while this one waits for its copies.
__device__ __forceinline__ void product(const u16* a, const u16* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<128>;
    __shared__ __align__(1024) unsigned char pieceA[A::BYTES], pieceB[B::BYTES];
    const int row = blockIdx.y * 128, col = blockIdx.x * 128;
    float sums[2][64];
    for (int k = 0; k < n; k += DEPTH) {
        copy<128>(pieceA, a + (i64)row * n + k, n);
        copy<DEPTH>(pieceB, b + (i64)k * n + col, n);
        copy<DEPTH>(pieceB + B::BYTES / 2, b + (i64)k * n + col + 64, n);
        commit();
        arrived<0>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // so that tensor cores read what threads have written
        __syncthreads();
        pin(sums[0]), pin(sums[1]);
        wgmma_fence();
        multiply<A, B>(sums[0], shared_address(pieceA), 0, shared_address(pieceB), k > 0);
        multiply<A, B>(sums[1], shared_address(pieceA), 64, shared_address(pieceB), k > 0);
        wgmma_commit();
        wgmma_wait<0>();
        pin(sums[0]), pin(sums[1]);
        __syncthreads();
    }
    store(c, n, row, col, sums[0]);
    store(c, n, row + 64, col, sums[1]);
}

extern "C" __global__ void __launch_bounds__(128, 2) matmul_wgmma_bf16(const u16* a, const u16* b, float* c, const int n) {
    ON_HOPPER(product(a, b, c, n);)
}
