// 10. Roles: one thread of a producer warp asks for copies, as far ahead as there are stages, and two consumer warpgroups multiply. They wait for one
// another at the barriers of single stages, never all at once: no step waits for the slowest warp.
#include "warpgroups.cuh"

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<128>;
    constexpr int STAGES = 6;
    const int row = blockIdx.y * 128, col = blockIdx.x * 128, steps = n / DEPTH, group = threadIdx.x / 128;
    const Barriers<STAGES> ring(dynamic, 8); // the consumers' warps
    const auto memory = [&](int stage) { return ring.memory + stage * (A::BYTES + B::BYTES); };
    __syncthreads();

    Ring<STAGES> at;
    if (group == 2) {
        if (threadIdx.x == 256) {
            for (int step = 0; step < steps; step++, at.next()) {
                const u32 full = ring.full + at.stage * 8;
                barrier_wait(ring.empty + at.stage * 8, at.parity ^ 1); // passes at once in the first turn
                barrier_expect(full, A::BYTES + B::BYTES);
                A::fetch_part(memory(at.stage), a, full, row, step * DEPTH, 0, 0);
                B::fetch_part(memory(at.stage) + A::BYTES, b, full, col, step * DEPTH, 0, 0);
            }
        }
    } else {
        const int half = group * 64; // of the tile's rows
        float sums[64];
        int last = 0;
#pragma unroll 1
        for (int step = 0; step < steps; step++, at.next()) {
            barrier_wait(ring.full + at.stage * 8, at.parity);
            pin(sums);
            wgmma_fence();
            multiply<A, B>(sums, memory(at.stage), half, memory(at.stage) + A::BYTES, step > 0);
            wgmma_commit();
            pin(sums);
            wgmma_wait<1>(); // the products of the step before are done: its stage is free
            if (step > 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty + last * 8, 0);
            last = at.stage;
        }
        wgmma_wait<0>();
        pin(sums);
        store(c, n, row + half, col, sums);
    }
}

extern "C" __global__ void __launch_bounds__(288, 1)
    matmul_roles_bf16(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
