// 13. Clusters: two blocks, on neighbouring multiprocessors, compute tiles one above the other, of the same columns of B. Each fetches half of their
// piece of B, and the copy goes to both (multicast): a third less comes from the level-2 cache. A stage is free when the consumers of both have read it.
#include "warpgroups.cuh"

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    using A = PieceA<128>;
    using B = PieceB<256, 2>;
    constexpr int STAGES = 4;
    const int steps = n / DEPTH, group = threadIdx.x / 128, lane = threadIdx.x % 32;
    const int cluster = blockIdx.x / 2, rank = blockIdx.x % 2, clusters = gridDim.x / 2;
    const Tiles<256, 256, 8> tiles(n);
    const Barriers<STAGES> ring(dynamic, 16); // the consumers' warps of both blocks
    const auto memory = [&](int stage) { return ring.memory + stage * (A::BYTES + B::BYTES); };
    cluster_sync<2>(); // the barriers of both are there

    Ring<STAGES> at;
    if (group == 2) {
        registers_down<40>();
        if (threadIdx.x == 256) {
            for (int i = cluster; i < tiles.count(); i += clusters) {
                const int row = tiles.row(i) + rank * 128, col = tiles.col(i);
                for (int step = 0; step < steps; step++, at.next()) {
                    const u32 full = ring.full + at.stage * 8;
                    barrier_wait(ring.empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(full, A::BYTES + B::BYTES); // half of B comes from the other block
                    A::fetch_part(memory(at.stage), a, full, row, step * DEPTH, 0, 0);
                    B::fetch_part(memory(at.stage) + A::BYTES, b, full, col, step * DEPTH, 0, rank);
                }
            }
        }
        __syncwarp();
    } else {
        registers_up<232>();
        const int half = group * 64;
        float sums[128];
#pragma unroll 1
        for (int i = cluster; i < tiles.count(); i += clusters) {
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
                if (step > 0 && lane < 2) barrier_arrive(ring.empty + last * 8, lane); // of block 0 and 1
                last = at.stage;
            }
            wgmma_wait<0>();
            pin(sums);
            if (lane < 2) barrier_arrive(ring.empty + last * 8, lane);
            store(c, n, tiles.row(i) + rank * 128 + half, tiles.col(i), sums);
        }
    }
    cluster_sync<2>(); // no block ends while the other fills its memory or arrives at its barriers
}

extern "C" __global__ void BLOCKS_OF_CLUSTER(2) __launch_bounds__(384, 1)
    matmul_cluster_bf16(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
