// What the tensor cores do when nothing has to be brought: the instructions of version 11 and after, all on the first pieces of A and B that a tile
// needs. So c is n / 64 times the product of the first 64 columns of A and the first 64 rows of B: not the product, but a bound of its time.
#include "warpgroups.cuh"

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<256>;
    const int half = threadIdx.x / 128 * 64;
    const Tiles<128, 256, 16> tiles(n);
    const Barriers<1> ring(dynamic, 1);
    __syncthreads();
    Ring<1> at;
    for (int i = blockIdx.x; i < tiles.count(); i += gridDim.x, at.next()) {
        if (threadIdx.x == 0) {
            barrier_expect(ring.full, A::BYTES + B::BYTES);
            A::fetch_part(ring.memory, a, ring.full, tiles.row(i), 0, 0, 0);
            B::fetch_part(ring.memory + A::BYTES, b, ring.full, tiles.col(i), 0, 0, 0);
        }
        barrier_wait(ring.full, at.parity);
        float sums[128];
#pragma unroll 1
        for (int step = 0; step < n / DEPTH; step++) {
            pin(sums);
            wgmma_fence();
            multiply<A, B>(sums, ring.memory, half, ring.memory + A::BYTES, step > 0);
            wgmma_commit();
            pin(sums);
            wgmma_wait<1>();
        }
        wgmma_wait<0>();
        pin(sums);
        __syncthreads(); // before the next copies
        store(c, n, tiles.row(i) + half, tiles.col(i), sums);
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
    matmul_ceiling_bf16(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
