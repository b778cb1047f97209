// The limits of a tile of queries, for kernels whose warps have 16 queries each.
#pragma once
#include "attention.cuh"

// Limits are those of the lane's two rows, lane / 4 and 8 beyond of the warp's, and the least and the largest one of a tile of at most 64 queries from t0 on. All lanes of a warp compute them.
struct Limits {
    int low, high = 0, own[2];
    template <typename T> __device__ __forceinline__ Limits(const Problem<T>& p, int batch, int t0, int tile, int first) : low(p.keys) {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int i = 0; i < tile; i += 32) {
            const int limit = p.limit(batch, min(t0 + i + lane, p.queries - 1));
            low = min(low, limit), high = max(high, limit);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int row = first - t0 - i + lane / 4 + 8 * r, other = __shfl_sync(~0u, limit, row % 32);
                if (row >= 0 && row < 32) own[r] = other;
            }
        }
        for (int d = 16; d > 0; d /= 2) low = min(low, __shfl_xor_sync(~0u, low, d)), high = max(high, __shfl_xor_sync(~0u, high, d));
    }
};
