// Window sums of few elements, straight from global memory.
#pragma once
#include "windowsum_rows.cuh"

constexpr int direct_vectors = 4;   // 16-byte vectors of outputs of a thread

// elements reads what the windows of a vector of outputs take: w, known to the
// compiler, elements for the first, which starts at element `shift` of vector from.
template <int w, typename T> __device__ __forceinline__ void elements(const typename Vec<T>::type* __restrict__ from, unsigned shift, double (&e)[w + Vec<T>::width - 1]) {
    constexpr int W = Vec<T>::width, M = (w + W - 1 + 2 * W - 2) / W;
    T r[M * W];
#pragma unroll
    for (int m = 0; m < M; m++) {
        Pack<T> p;
        p.v = __ldg(from + m);
#pragma unroll
        for (int i = 0; i < W; i++) r[m * W + i] = p.s[i];
    }
    if constexpr (W == 4) Chunks<T, 16>::template move<2>(shift & 2, r);
    Chunks<T, 16>::template move<1>(shift & 1, r);
#pragma unroll
    for (int i = 0; i < w + W - 1; i++) e[i] = (double)r[i];
}

// windows sums the windows of w elements that start at e[0], e[1] ...
template <int w, typename T> __device__ __forceinline__ typename Vec<T>::type windows(const double (&e)[w + Vec<T>::width - 1]) {
    Pack<T> p;
#pragma unroll
    for (int k = 0; k < Vec<T>::width; k++) {
        double sum = 0;
#pragma unroll
        for (int j = 0; j < w; j++) sum += e[j + k];
        p.s[k] = (T)sum;
    }
    return p.v;
}

// tile sums all windows of a block, which lies within a row: from is the vector that the
// thread's first window starts in, at element `shift`.
template <int w, typename T, typename Vector = typename Vec<T>::type>
__device__ __forceinline__ void tile(const Vector* __restrict__ from, Vector* __restrict__ to, unsigned shift) {
    constexpr int FLIGHT = w > 7 ? 1 : direct_vectors;  // wide windows fill the registers
#pragma unroll FLIGHT
    for (int v = 0; v < direct_vectors; v++, from += blockDim.x, to += blockDim.x) {
        double e[w + Vec<T>::width - 1];
        elements<w, T>(from, shift, e);
        *to = windows<w, T>(e);
    }
}

// short_rows sums the windows of a block whose outputs, counted through all rows,
// begin at start. Rows and outputs are whole vectors.
template <int w, typename T> __device__ __forceinline__ void short_rows(const Row<T>& g, i64 start, int count) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    const Span s(start, count, g.n_out, g.rows);
#pragma unroll 1
    for (int j = threadIdx.x * W; j < count; j += blockDim.x * W) {
        i64 row, at;
        s.locate(j, row, at);
        if (row >= g.rows) return;
        const i64 first = at + g.off;
        const T* src = g.in + row * g.n_in + first;
        double e[w + W - 1];
        if (first >= 0 && first + w + 2 * W <= g.n_in) {
            const unsigned shift = (unsigned)first % W;
            elements<w, T>(reinterpret_cast<const Vector*>(src - shift), shift, e);
        } else {
#pragma unroll
            for (int i = 0; i < w + W - 1; i++) e[i] = first + i >= 0 && first + i < g.n_in ? (double)src[i] : 0.0;
        }
        *reinterpret_cast<Vector*>(g.out + row * g.n_out + at) = windows<w, T>(e);
    }
}

#define EACH_WIDTH(CALL) \
    switch (w) {         \
    case 1: return CALL(1);     \
    case 3: return CALL(3);     \
    case 5: return CALL(5);     \
    case 7: return CALL(7);     \
    case 9: return CALL(9);     \
    case 11: return CALL(11);   \
    case 13: return CALL(13);   \
    case 15: return CALL(15);   \
    }  // an even w is a window over chunk sums: few elements

// Tiles of 4 blockDim vectors of outputs: a thread sums w elements for each
// output, straight from global memory: the elements that neighbouring threads
// share come from L1, and there is nothing to wait for.
template <typename T> __device__ __forceinline__ void direct(const Row<T>& g) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    const int w = (int)g.w, count = blockDim.x * W * direct_vectors, t = threadIdx.x;
    const i64 start = (i64)blockIdx.x * count;
    if (g.rows > 1 && g.n_out < 16 * count && (g.n_in | g.n_out) % W == 0) {
#define SHORT(w) short_rows<w, T>(g, start, count)
        EACH_WIDTH(SHORT)
    }
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    const i64 first = s.at + g.off;  // element of the block's first window
    T* const dst = g.out + s.row * g.n_out + s.at;
    const T* src = g.in + s.row * g.n_in + first;
    const unsigned shift = (unsigned)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
    if (s.row < g.rows && s.at + count <= g.n_out && first >= 0 && first + count + w + 2 * W <= g.n_in &&
        reinterpret_cast<unsigned long long>(dst) % 16 == 0) {
        const Vector* from = reinterpret_cast<const Vector*>(src - shift) + t;
        Vector* to = reinterpret_cast<Vector*>(dst) + t;
#define TILE(w) tile<w, T>(from, to, shift)
        EACH_WIDTH(TILE)
    }
    for (int k = t; k < count; k += blockDim.x) {
        i64 row, at;
        s.locate(k, row, at);
        if (row >= g.rows || at >= g.n_out) continue;
        const T* x = g.in + row * g.n_in;
        double total = 0;
        for (int j = 0; j < w; j++) {
            const i64 i = at + g.off + j;
            if (i >= 0 && i < g.n_in) total += (double)x[i];
        }
        g.out[row * g.n_out + at] = (T)total;
    }
}
