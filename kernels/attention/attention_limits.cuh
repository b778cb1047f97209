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

// clear stores n zeros from p on, by so many threads, of which this one has number t, 16 bytes at a time.
template <typename T> __device__ __forceinline__ void clear(T* p, int n, int t, int threads) {
    constexpr int W = 16 / sizeof(T);
    const int head = min((int)(-((i64)p / (i64)sizeof(T)) & W - 1), n), vectors = (n - head) / W, body = head + vectors * W;
    if (t < head) p[t] = 0;
#pragma unroll 4
    for (int i = t; i < vectors; i += threads) reinterpret_cast<float4*>(p + head)[i] = float4{};
    if (t < n - body) p[body + t] = 0;
}

// QueryTile is the tile of `size` queries from t0 on, of a head, and the part of its keys that a block computes. If causal, tiles that see the most keys come first. Those that see none have no
// block: others, which come after all, store their results.
struct QueryTile {
    int unseen = 0, works, part, number, t0; // works: blocks of tiles
    template <typename T> __device__ __forceinline__ QueryTile(const Problem<T>& p, int heads, int parts, int size) {
        if (p.causal && parts == 1) unseen = max(p.queries - p.keys, 0) / size;
        const int seen = (p.queries + size - 1) / size - unseen;
        works = heads * seen * parts;
        const int id = blockIdx.x / parts;
        part = blockIdx.x % parts, number = p.causal ? id % heads : id / seen, t0 = (unseen + seen - 1 - (p.causal ? id / heads : id % seen)) * size;
    }
    // store stores zeros in rows of out and -Inf as statistics, for queries that see no key.
    template <typename T> __device__ __forceinline__ void store(const Problem<T>& p, int heads, int size, T* out, const Strides& s, T* lse, int outputs) const {
#pragma unroll 1
        for (int i = blockIdx.x - works; i < heads * unseen; i += gridDim.x - works) {
            const int head = i / unseen, first = i % unseen * size;
            if (outputs & 2 && threadIdx.x < size) lse[(i64)head * p.queries + first + threadIdx.x] = -INFINITY;
            if (!(outputs & 1)) continue;
            T* to = out + head / p.heads * s.batch + head % p.heads * s.head + first * s.row;
            if (s.row == p.dim) clear(to, size * p.dim, threadIdx.x, blockDim.x);
            else
#pragma unroll 1
                for (int row = threadIdx.x / 32; row < size; row += blockDim.x / 32) clear(to + row * s.row, p.dim, threadIdx.x % 32, 32);
        }
    }
};
