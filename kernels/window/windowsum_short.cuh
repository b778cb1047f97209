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

    // build makes the higher levels for chunk v of a block's, `left` chunks before the end of its row, whose sum this is; a
    // thread without a chunk has left = 0.
    __device__ __forceinline__ void build(int v, int left, double sum) const {
        double* from = sums + v;
#pragma unroll 1
        for (int level = 1, step = 1; level < levels; level++, step <<= 2) {
            __syncthreads();
            const double a = step < left ? from[step] : 0, b = 2 * step < left ? from[2 * step] : 0, c = 3 * step < left ? from[3 * step] : 0;
            sum += a + b + c;
            from += chunks;
            if (left > 0) *from = sum;
        }
    }
    // window sums `count` chunks from chunk `at` on.
    __device__ __forceinline__ double window(int at, int count) const {
        double sum = 0;
        const double* from = sums + at;
#pragma unroll 1
        for (int step = 1; count > 0; count >>= 2, step <<= 2) {
            const int m = count & 3;
            const double a = m > 0 ? from[0] : 0, b = m > 1 ? from[step] : 0, c = m > 2 ? from[2 * step] : 0;
            sum += a + b + c;
            from += m * step + chunks;
        }
        return sum;
    }
};

// head_of sums the first n elements, fewer than K. All threads jump to the n-th addition from the end: a condition for each costs more.
template <int K> __device__ __forceinline__ double head_of(const double (&e)[K], int n) {
    double sum = 0;
    switch (n) {
    case 14: if constexpr (K > 13) sum += e[13];
    case 13: if constexpr (K > 12) sum += e[12];
    case 12: if constexpr (K > 11) sum += e[11];
    case 11: if constexpr (K > 10) sum += e[10];
    case 10: if constexpr (K > 9) sum += e[9];
    case 9: if constexpr (K > 8) sum += e[8];
    case 8: sum += e[7];
    case 7: sum += e[6];
    case 6: sum += e[5];
    case 5: sum += e[4];
    case 4: sum += e[3];
    case 3: sum += e[2];
    case 2: sum += e[1];
    case 1: sum += e[0];
    }
    return sum;
}

// places is a bit for each k below 15 with lo <= k < hi.
__device__ __forceinline__ unsigned places(int lo, int hi) { return (1u << min(max(hi, 0), 15)) - 1 & -1u << min(max(lo, 0), 15); }

// short_rows is for windows of at least a chunk, w = q K + rest. Chunks are counted from the first element of a row. A thread loads
// a chunk and sums the windows that begin in it. If no windows begin in its chunk, the thread sums windows that begin in an empty chunk
// before the row. Shared memory holds `doubles` doubles, the chunks' heads and the levels of their sums, then `staged` elements, then outputs.
template <typename T>
__device__ __forceinline__ void short_rows(const Row<T>& g, const Pieces& pieces, int staged, int levels_kept, int doubles) {
    constexpr int K = short_items<T>;
    const Piece<T> p(g, pieces);
    const int n_in = (int)g.n_in, n_out = (int)g.n_out, off = (int)g.off, w = (int)g.w, q = w / K, rest = w % K;
    const int chunks = (n_in + K - 1) / K, all = pieces.rows * chunks;
    // off / K, rounded down: off is 0 or below
    const int first = -((K - 1 - off) / K), last = (off + n_out - 1) / K, across = last - first + 1, each = max(chunks, across);
    double* const heads = shared_memory;
    const Levels levels{heads + all, all, levels_kept};
    T* const shared = reinterpret_cast<T*>(shared_memory + doubles);
    const T* const elements = shared + p.fetch(g, shared) - off;
    T* const sums = shared + staged + p.lead;

    const int row = Divisor(each).quotient(threadIdx.x), place = threadIdx.x - row * each, chunk = row * chunks + place;
    const bool taken = row < p.rows && place < chunks;
    double out[K], head;
    {
        const T* const x = elements + row * n_in + place * K;
        const unsigned there = taken ? places(0, n_in - place * K) : 0;
        T e[K];
#pragma unroll
        for (int k = 0; k < K; k++) e[k] = there >> k & 1 ? x[k] : T(0);
#pragma unroll
        for (int k = 0; k < K; k++) out[k] = (double)e[k];
        head = head_of<K>(out, rest);
#pragma unroll
        for (int k = K - 2; k >= 0; k--) out[k] += out[k + 1];
    }
    if (taken) heads[chunk] = head, levels.sums[chunk] = out[0];
    levels.build(chunk, taken ? chunks - place : 0, out[0]);
    __syncthreads();

    if (row < p.rows && place < across) {
        int c = place;
        if (place > last) {
            c = place - across;
#pragma unroll
            for (int k = 0; k < K; k++) out[k] = 0;
        }
        const int begin = c * K;
        const T* const x = elements + row * n_in + begin + w;
        const unsigned there = places(-(begin + w), n_in - (begin + w)), wanted = places(off - begin, off - begin + n_out);
        T e[K];
#pragma unroll
        for (int k = 0; k < K - 1; k++) e[k] = there >> k & 1 ? x[k] : T(0);
        const int from = max(c + 1, 0), to = min(c + q, chunks);
        double right = to > from ? levels.window(row * chunks + from, to - from) : 0;
        if (rest > 0 && (unsigned)(c + q) < (unsigned)chunks) right += heads[row * chunks + c + q];
        out[0] += right;
#pragma unroll
        for (int k = 1; k < K; k++) out[k] += right += (double)e[k - 1];
        T* const y = sums + row * n_out + begin - off;
#pragma unroll
        for (int k = 0; k < K; k++)
            if (wanted >> k & 1) y[k] = (T)out[k];
    }
    __syncthreads();
    p.store(g, sums);
}
