// 14. float32 again: a number is the sum of three in BF16, x = x0 + x1 + x2, of 8 bits each (split), and of the nine products of two such sums the six
// largest count: a0 b0, a0 b1, a1 b0, a0 b2, a1 b1, a2 b0. The others are below 2^-24 of the first. So version 13 with six products for one is float32 at a
// sixth of its rate.
//
// Tensor cores cut off where an addition in float32 rounds. So they add up 32 terms alone, the small products first, and additions that round do the
// rest. What the op does beyond that: numbers near the ends of float32's range, Inf and NaN, and what rounding cuts off from long sums.
#include "warpgroups.cuh"

// split writes the three numbers of n others, a multiple of 4, each in a plane of its own; of A or B, four a thread.
extern "C" __global__ void __launch_bounds__(256) matmul_six_split_f32(const float* a, u16* planesA, const float* b, u16* planesB, const i64 n) {
    const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (i >= n) return;
    const float4 v = *reinterpret_cast<const float4*>((blockIdx.y == 0 ? a : b) + i);
    float x[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int plane = 0; plane < 3; plane++) {
        u16 top[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 bits = __float_as_uint(x[e]);
            top[e] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16; // to nearest, ties to even
            x[e] -= __uint_as_float((u32)top[e] << 16);        // exact
        }
        *reinterpret_cast<ushort4*>((blockIdx.y == 0 ? planesA : planesB) + plane * n + i) = make_ushort4(top[0], top[1], top[2], top[3]);
    }
}

// A stage is 32 terms of three planes of both.
constexpr int TERMS = 32;
using A = Piece<128, TERMS, 2, 3, 0, 1>;
using B = Piece<128, TERMS, 2, 3, 1, 2>;

// multiply starts sums += plane i of 64 rows of a piece of A times plane j of a piece of B.
__device__ __forceinline__ void multiply(float (&sums)[64], u64 a, int i, u64 b, int j, bool add) {
#pragma unroll
    for (int l = 0; l < TERMS / 16; l++) wgmma<2, 0, 1>(sums, a + i * A::plane + l * A::step, b + j * B::plane + l * B::step, add || l > 0);
}

__device__ __forceinline__ void product(const TensorMap* a, const TensorMap* b, float* c, int n) {
    constexpr int STAGES = 4;
    const int steps = n / TERMS, group = threadIdx.x / 128, lane = threadIdx.x % 32;
    const int cluster = blockIdx.x / 2, rank = blockIdx.x % 2, clusters = gridDim.x / 2;
    const Tiles<256, 128, 8> tiles(n);
    const Barriers<STAGES> ring(dynamic, 16);
    const auto memory = [&](int stage) { return ring.memory + stage * (A::BYTES + B::BYTES); };
    cluster_sync<2>();

    Ring<STAGES> at;
    if (group == 2) {
        registers_down<40>();
        if (threadIdx.x == 256) {
            for (int i = cluster; i < tiles.count(); i += clusters) {
                const int row = tiles.row(i) + rank * 128, col = tiles.col(i);
                for (int step = 0; step < steps; step++, at.next()) {
                    const u32 full = ring.full + at.stage * 8;
                    barrier_wait(ring.empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(full, A::BYTES + B::BYTES);
                    A::fetch_part(memory(at.stage), a, full, row, step * TERMS, 0, 0);
                    B::fetch_part(memory(at.stage) + A::BYTES, b, full, col, step * TERMS, 0, rank);
                }
            }
        }
        __syncwarp();
    } else {
        registers_up<232>();
        const int half = group * 64;
        float sums[64], part[64];
#pragma unroll 1
        for (int i = cluster; i < tiles.count(); i += clusters) {
#pragma unroll
            for (int e = 0; e < 64; e++) sums[e] = 0;
#pragma unroll 1
            for (int step = 0; step < steps; step++, at.next()) {
                barrier_wait(ring.full + at.stage * 8, at.parity);
                const u64 x = A::descriptor(memory(at.stage), half), y = B::descriptor(memory(at.stage) + A::BYTES, 0);
                pin(part);
                wgmma_fence();
                multiply(part, x, 2, y, 0, false);
                multiply(part, x, 1, y, 1, true);
                multiply(part, x, 0, y, 2, true);
                multiply(part, x, 1, y, 0, true);
                multiply(part, x, 0, y, 1, true);
                multiply(part, x, 0, y, 0, true);
                wgmma_commit();
                wgmma_wait<0>();
                pin(part);
                if (lane < 2) barrier_arrive(ring.empty + at.stage * 8, lane);
#pragma unroll
                for (int e = 0; e < 64; e++) sums[e] += part[e]; // while the other warpgroup multiplies
            }
            store(c, n, tiles.row(i) + rank * 128 + half, tiles.col(i), sums);
        }
    }
    cluster_sync<2>();
}

extern "C" __global__ void BLOCKS_OF_CLUSTER(2) __launch_bounds__(384, 1)
    matmul_six_f32(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, const int n) {
    ON_HOPPER(product(&a, &b, c, n);)
}
