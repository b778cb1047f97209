// 11. Tiles of 128 x 256: with 256 columns wgmma reads 10 kB from shared memory for twice the products that it makes of 6 kB with 128, and a tile
// takes three quarters of the copies for each element. A thread has 128 sums then, but 384 threads have 168 registers each: so the producer's warpgroup
// gives up what it does not need, and the consumers take it (setmaxnreg).
#include "warpgroups.cuh"

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<256>;
    constexpr int STAGES = 4;
    const int row = blockIdx.y * 128, col = blockIdx.x * 256, steps = n / DEPTH, group = threadIdx.x / 128;
    const Barriers<STAGES> ring(dynamic, 8);
    const auto memory = [&](int stage) { return ring.memory + stage * (A::BYTES + B::BYTES); };
    __syncthreads();

    Ring<STAGES> at;
    if (group == 2) {
        registers_down<40>();
        if (threadIdx.x == 256) {
            for (int step = 0; step < steps; step++, at.next()) {
                const u32 full = ring.full + at.stage * 8;
                barrier_wait(ring.empty + at.stage * 8, at.parity ^ 1);
                barrier_expect(full, A::BYTES + B::BYTES);
                A::fetch_part(memory(at.stage), a, full, row, step * DEPTH, 0, 0);
                B::fetch_part(memory(at.stage) + A::BYTES, b, full, col, step * DEPTH, 0, 0);
            }
        }
    } else {
        registers_up<232>();
        const int half = group * 64;
        float sums[128];
        int last = 0;
#pragma unroll 1
        for (int step = 0; step < steps; step++, at.next()) {
            barrier_wait(ring.full + at.stage * 8, at.parity);
            pin(sums);
            wgmma_fence();
            multiply<A, B>(sums, memory(at.stage), half, memory(at.stage) + A::BYTES, step > 0);
            wgmma_commit();
            pin(sums);
            wgmma_wait<1>();
            if (step > 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty + last * 8, 0);
            last = at.stage;
        }
        wgmma_wait<0>();
        pin(sums);
        store(c, n, row + half, col, sums);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    matmul_wide_bf16(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
