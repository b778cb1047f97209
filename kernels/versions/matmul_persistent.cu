// 12. Persistent blocks: as many as there are multiprocessors, each takes tile after tile, and the producer runs ahead into the next one while
// consumers write the last. The order of the tiles is ours then: those computed at one time lie in a square rather than in a few rows of C, so that
// they read the same rows of A and columns of B, and find them in the level-2 cache.
#include "warpgroups.cuh"

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<256>;
    constexpr int STAGES = 4;
    const int steps = n / DEPTH, group = threadIdx.x / 128;
    const Tiles<128, 256, 16> tiles(n);
    const Barriers<STAGES> ring(dynamic, 8);
    const auto memory = [&](int stage) { return ring.memory + stage * (A::BYTES + B::BYTES); };
    __syncthreads();

    Ring<STAGES> at; // goes on from tile to tile
    if (group == 2) {
        registers_down<40>();
        if (threadIdx.x == 256) {
            for (int i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
                const int row = tiles.row(i), col = tiles.col(i);
                for (int step = 0; step < steps; step++, at.next()) {
                    const u32 full = ring.full + at.stage * 8;
                    barrier_wait(ring.empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(full, A::BYTES + B::BYTES);
                    A::fetch_part(memory(at.stage), a, full, row, step * DEPTH, 0, 0);
                    B::fetch_part(memory(at.stage) + A::BYTES, b, full, col, step * DEPTH, 0, 0);
                }
            }
        }
    } else {
        registers_up<232>();
        const int half = group * 64;
        float sums[128];
#pragma unroll 1
        for (int i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
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
            if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty + last * 8, 0); // the next tile wants it
            store(c, n, tiles.row(i) + half, tiles.col(i), sums);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    matmul_persistent_bf16(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
