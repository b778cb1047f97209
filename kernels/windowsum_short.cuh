// Window sums of rows that share blocks, or take one each: a block's elements are all under way at once, to shared memory,
// which has room for the sums of chunks of them too.
#pragma once
#include "windowsum_pieces.cuh"

// The elements of a chunk, and the outputs of a thread, side by side in a row: an odd number, so that threads side by side meet
// no bank of shared memory twice.
template <typename T> constexpr int short_items = sizeof(T) == 4 ? 15 : 9;

// The sums of 4^level chunks from each one on, 0 beyond the row: a window of chunks takes up to three of each level.
struct Levels {
    double* sums;  // level after level, of all chunks of a block each
    int chunks, levels;

    __device__ __forceinline__ void build(int rows, int row_chunks) const {
        const Divisor by(row_chunks);
        for (int level = 1; level < levels; level++) {
            const double* const from = sums + (level - 1) * chunks;
            const int step = 1 << 2 * (level - 1);
            __syncthreads();
            for (int v = threadIdx.x; v < rows * row_chunks; v += blockDim.x) {
                const int c = v - by.quotient(v) * row_chunks;
                double sum = from[v];
#pragma unroll
                for (int m = 1; m < 4; m++)
                    if (c + m * step < row_chunks) sum += from[v + m * step];
                sums[level * chunks + v] = sum;
            }
        }
    }
    // window sums `count` chunks from chunk `at` on.
    __device__ __forceinline__ double window(int at, int count) const {
        double sum = 0;
        for (int level = 0; count >> 2 * level > 0; level++)
            for (int m = count >> 2 * level & 3; m > 0; m--, at += 1 << 2 * level) sum += sums[level * chunks + at];
        return sum;
    }
};

// short_rows is for windows of at least a chunk, w = q K + rest. Chunks are counted from the first element of a row; a thread has
// the windows that begin in one, or in one that would lie before the row. Shared: the chunks' heads, levels of their sums, so many
// doubles in all, then elements, `staged` of them, and outputs.
template <typename T>
__device__ __forceinline__ void short_rows(const Row<T>& g, const Pieces& pieces, int staged, int levels_kept, int doubles) {
    constexpr int K = short_items<T>;
    const Piece<T> p(g, pieces);
    const int n_in = (int)g.n_in, n_out = (int)g.n_out, off = (int)g.off, w = (int)g.w, q = w / K, rest = w % K;
    const int chunks = (n_in + K - 1) / K, all = pieces.rows * chunks;
    double* const heads = shared_memory;
    const Levels levels{heads + all, all, levels_kept};
    T* const shared = reinterpret_cast<T*>(shared_memory + doubles);
    const T* const elements = shared + p.fetch(g, shared) - off;
    T* const sums = shared + staged + p.lead;

    const Divisor by_chunks(chunks);
    for (int v = threadIdx.x; v < p.rows * chunks; v += blockDim.x) {
        const int row = by_chunks.quotient(v), at = (v - row * chunks) * K, count = min(n_in - at, K);
        const T* const x = elements + row * n_in + at;
        T e[K];
#pragma unroll
        for (int k = 0; k < K; k++) e[k] = k < count ? x[k] : T(0);
        double head = 0, sum = 0, other = 0;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const double d = (double)e[k];
            (k % 2 ? other : sum) += d;
            add_if(k < rest, head, d);
        }
        heads[v] = head;
        levels.sums[v] = sum + other;
    }
    levels.build(p.rows, chunks);
    __syncthreads();

    // off / K, rounded down: off is 0 or below
    const int first = -((K - 1 - off) / K), across = (off + n_out - 1) / K - first + 1;
    const Divisor by_across(across);
#pragma unroll 1
    for (int v = threadIdx.x; v < p.rows * across; v += blockDim.x) {
        const int row = by_across.quotient(v), c = first + v - row * across, begin = c * K;
        const T* const x = elements + row * n_in + begin;
        T e[K];
        double out[K], sum = 0;
#pragma unroll
        for (int k = 0; k < K; k++) e[k] = (unsigned)(begin + k) < (unsigned)n_in ? x[k] : T(0);
#pragma unroll
        for (int k = K - 1; k >= 0; k--) out[k] = sum += (double)e[k];
#pragma unroll
        for (int k = 0; k < K - 1; k++) e[k] = (unsigned)(begin + w + k) < (unsigned)n_in ? x[w + k] : T(0);
        const int from = max(c + 1, 0), to = min(c + q, chunks);
        double right = to > from ? levels.window(row * chunks + from, to - from) : 0;
        if (rest > 0 && (unsigned)(c + q) < (unsigned)chunks) right += heads[row * chunks + c + q];
        out[0] += right;
#pragma unroll
        for (int k = 1; k < K; k++) out[k] += right += (double)e[k - 1];
        T* const y = sums + row * n_out + begin - off;
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((unsigned)(begin - off + k) < (unsigned)n_out) y[k] = (T)out[k];
    }
    __syncthreads();
    p.store(g, sums);
}
