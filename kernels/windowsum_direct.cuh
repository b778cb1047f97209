// Window sums of few elements.
#pragma once
#include "windowsum_rows.cuh"

constexpr int direct_vectors = 4;  // 16-byte vectors of outputs of a thread

// elements reads the elements of the windows of a vector of outputs: w of them, a number known to
// the compiler, for the first window, which starts at element `shift` of vector from.
template <int w, typename T> __device__ __forceinline__ void elements(const typename Vec<T>::type* from, unsigned shift, double (&e)[w + Vec<T>::width - 1]) {
    constexpr int W = Vec<T>::width, M = (w + W - 1 + 2 * W - 2) / W;
    T r[M * W];
#pragma unroll
    for (int m = 0; m < M; m++) {
        Pack<T> p;
        p.v = from[m];
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

// window sums the window of a row that begins at element first.
template <typename T> __device__ __noinline__ T window(const Row<T>& g, i64 row, i64 first, int w) {
    const T* x = g.in + row * g.n_in;
    double sum = 0;
    for (int j = 0; j < w; j++)
        if (first + j >= 0 && first + j < g.n_in) sum += (double)x[first + j];
    return (T)sum;
}

// tile sums all windows of a block, which lies within a row and whose first window begins at src. All elements are
// copied to shared memory at once; registers have room for few.
template <int w, typename T> __device__ __forceinline__ void tile(const T* src, T* dst, int count) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    Vector* const x = reinterpret_cast<Vector*>(shared_memory);
    const unsigned shift = (unsigned)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
    const Vector* from = reinterpret_cast<const Vector*>(src - shift);
    const int t = threadIdx.x, vectors = (int)(shift + count + w - 1 + W - 1) / W;
    for (int v = t; v < vectors; v += blockDim.x) async_copy(x + v, from + v);
    commit();
    arrived<0>();
    __syncthreads();
#pragma unroll 1
    for (int v = t; v < count / W; v += blockDim.x) {
        double e[w + W - 1];
        elements<w, T>(x + v, shift, e);
        reinterpret_cast<Vector*>(dst)[v] = windows<w, T>(e);
    }
}

// edges sums the windows of a block whose outputs, counted through all rows, begin at start, wherever rows
// end. A vector of outputs is stored as one, aligned, also where it lies in two rows.
template <int w, typename T> __device__ __forceinline__ void edges(const Row<T>& g, i64 start, int count) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    const Span s(start, count, g.n_out, g.rows);
    const i64 outputs = g.rows * g.n_out;
#pragma unroll 1
    for (int j = threadIdx.x * W; j < count; j += blockDim.x * W) {
        if (start + j >= outputs) return;
        i64 row, at;
        s.locate(j, row, at);
        Pack<T> p;
        const i64 first = at + g.off;
        const T* src = g.in + row * g.n_in + first;
        if (at + W <= g.n_out) {
            double e[w + W - 1];
            if (first >= 0 && first + w + W - 1 <= g.n_in) {
#pragma unroll
                for (int i = 0; i < w + W - 1; i++) e[i] = (double)src[i];
            } else {
#pragma unroll
                for (int i = 0; i < w + W - 1; i++) e[i] = first + i >= 0 && first + i < g.n_in ? (double)src[i] : 0.0;
            }
            p.v = windows<w, T>(e);
        } else {
#pragma unroll
            for (int k = 0; k < W; k++) {
                const bool next = at + k >= g.n_out;
                const i64 r = row + (next ? 1 : 0), from = at + k - (next ? g.n_out : 0) + g.off;
                p.s[k] = r < g.rows ? window(g, r, from, w) : T(0);
            }
        }
        T* dst = g.out + start + j;
        if (start + j + W <= outputs) *reinterpret_cast<Vector*>(dst) = p.v;
        else
#pragma unroll
            for (int k = 0; k < W; k++)
                if (start + j + k < outputs) dst[k] = p.s[k];
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

// Tiles of 4 blockDim vectors of outputs, counted through all rows: a thread sums w
// elements for each output.
template <typename T> __device__ __forceinline__ void direct(const Row<T>& g) {
    constexpr int W = Vec<T>::width;
    const int w = (int)g.w, count = blockDim.x * W * direct_vectors;
    const i64 start = (i64)blockIdx.x * count;
    const Span s(start, count, g.n_out, g.rows);
    const i64 first = s.at + g.off;  // element of the block's first window
    // tile reads whole vectors: up to W - 1 elements before and after those of the windows
    if (s.at + count <= g.n_out && first >= 0 && first + count + w + 2 * W <= g.n_in) {
        const T* src = g.in + s.row * g.n_in + first;
        T* dst = g.out + start;
#define TILE(w) tile<w, T>(src, dst, count)
        EACH_WIDTH(TILE)
    }
#define EDGES(w) edges<w, T>(g, start, count)
    if (g.n_out >= W) EACH_WIDTH(EDGES)
    for (int k = threadIdx.x; k < count && start + k < g.rows * g.n_out; k += blockDim.x) {
        i64 row, at;
        s.locate(k, row, at);
        g.out[start + k] = window(g, row, at + g.off, w);
    }
}
