// Tiles of queries and their limits, for kernels whose warps have 16 queries each.
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

// QueryTile is the tile of `size` queries from t0 on, of a head, and the part of its keys that a block computes. If causal, tiles that see the most keys come first. Those that see none have no
// block: `stores` others, which come before all, store their results.
struct QueryTile {
    int unseen = 0, stores, part, number, t0;
    template <typename T> __device__ __forceinline__ QueryTile(const Problem<T>& p, int heads, int parts, int size) {
        if (p.causal && parts == 1) unseen = max(p.queries - p.keys, 0) / size;
        const int seen = (p.queries + size - 1) / size - unseen;
        stores = gridDim.x - heads * seen * parts;
        const int block = blockIdx.x - stores, id = block / parts;
        part = block % parts, number = p.causal ? id % heads : id / seen, t0 = (unseen + seen - 1 - (p.causal ? id / heads : id % seen)) * size;
    }
    // store stores zeros in rows of out and -Inf as statistics, for queries that see no key. Warps store whole lines of 128 bytes.
    template <typename T> __device__ __forceinline__ void store(const Problem<T>& p, int heads, int size, T* out, const Strides& s, T* lse, int outputs) const {
        constexpr int LINE = 128 / sizeof(T);
#pragma unroll 1
        for (int i = blockIdx.x; i < heads * unseen; i += stores) {
            const int head = i / unseen, first = i % unseen * size;
            if (outputs & 2 && threadIdx.x < size) lse[(i64)head * p.queries + first + threadIdx.x] = -INFINITY;
            if (!(outputs & 1)) continue;
            T* to = out + head / p.heads * s.batch + head % p.heads * s.head + first * s.row;
            const bool whole = s.row == p.dim;
#pragma unroll 1
            for (int row = 0; row < (whole ? 1 : size); row++, to += s.row)
#pragma unroll 4
                for (int c = (int)threadIdx.x - (int)((i64)to / sizeof(T) % LINE); c < p.dim * (whole ? size : 1); c += blockDim.x)
                    if (c >= 0) to[c] = 0;
        }
    }
};
