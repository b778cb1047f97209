// 9. Copies by TMA, several stages ahead: one thread asks for a box of a matrix, the copy engine brings it in the order of the swizzle and counts
// its bytes at a barrier in shared memory. No thread computes addresses, and while the tensor cores work on one stage others are on their way.
#include "warpgroups.cuh"

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<128>;
    constexpr int STAGES = 6;
    const int row = blockIdx.y * 128, col = blockIdx.x * 128, steps = n / DEPTH;
    const Barriers<STAGES> ring(dynamic, 1);
    const auto memory = [&](int stage) { return ring.memory + stage * (A::BYTES + B::BYTES); };
    __syncthreads();

    const auto fetch = [&](int step) {
        const int stage = step % STAGES;
        if (threadIdx.x != 0 || step >= steps) return;
        barrier_expect(ring.full + stage * 8, A::BYTES + B::BYTES);
        A::fetch_part(memory(stage), a, ring.full + stage * 8, row, step * DEPTH, 0, 0);
        B::fetch_part(memory(stage) + A::BYTES, b, ring.full + stage * 8, col, step * DEPTH, 0, 0);
    };
    for (int step = 0; step < STAGES - 1; step++) fetch(step);

    float sums[2][64];
    Ring<STAGES> at;
#pragma unroll 1
    for (int step = 0; step < steps; step++, at.next()) {
        barrier_wait(ring.full + at.stage * 8, at.parity);
        pin(sums[0]), pin(sums[1]);
        wgmma_fence();
        multiply<A, B>(sums[0], memory(at.stage), 0, memory(at.stage) + A::BYTES, step > 0);
        multiply<A, B>(sums[1], memory(at.stage), 64, memory(at.stage) + A::BYTES, step > 0);
        wgmma_commit();
        pin(sums[0]), pin(sums[1]);
        wgmma_wait<1>(); // this warp's matmuls of the previous step are done
        __syncthreads(); // all warps' matmuls of the previous step are done: its stage is free
        fetch(step + STAGES - 1);
    }
    wgmma_wait<0>();
    pin(sums[0]), pin(sums[1]);
    store(c, n, row, col, sums[0]);
    store(c, n, row + 64, col, sums[1]);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    matmul_tma_bf16(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
