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

// ends sums `count` windows, starting at window `at` of a row, for a block that reaches the end of the row. In shared memory, the
// elements for the next row's windows follow this row's elements; a block's outputs span at most two rows. Arguments are scalars,
// because a reference to a Row would put it on every thread's stack.
template <typename T> __device__ __forceinline__ void ends(const T* row, T* dst, i64 at, i64 n_in, i64 n_out, i64 off, int w, int count) {
    T* const x = reinterpret_cast<T*>(shared_memory);
    const int here = (int)min(n_out - at, (i64)count), staged = here + w - 1, all = count + (w - 1) * (here < count ? 2 : 1), step = blockDim.x;
#pragma unroll 1
    for (int i = threadIdx.x; i < all; i += step) {
        const bool next = i >= staged;
        const i64 e = next ? off + i - staged : at + off + i;
        const bool inside = e >= 0 && e < n_in;
        async_copy(x + i, (next ? row + n_in : row) + (inside ? e : 0), inside);
    }
    commit();
    arrived<0>();
    __syncthreads();
    constexpr int together = 4; // outputs of a thread at a time, for their latency
#pragma unroll 1
    for (int k = threadIdx.x; k < count; k += together * step) {
        double sum[together] = {};
#pragma unroll 1
        for (int j = 0; j < w; j++)
#pragma unroll
            for (int u = 0; u < together; u++)
                if (const int i = k + u * step; i < count) sum[u] += (double)x[i + (i < here ? 0 : w - 1) + j];
#pragma unroll
        for (int u = 0; u < together; u++)
            if (k + u * step < count) dst[k + u * step] = (T)sum[u];
    }
}

// Tiles of 4 blockDim vectors of outputs, counted through all rows: a thread sums w elements for each output. A tile
// that meets the end of a row, one in many, is summed by ends.
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
        switch (w) {
        case 1: return tile<1, T>(src, dst, count);
        case 3: return tile<3, T>(src, dst, count);
        case 5: return tile<5, T>(src, dst, count);
        case 7: return tile<7, T>(src, dst, count);
        case 9: return tile<9, T>(src, dst, count);
        case 11: return tile<11, T>(src, dst, count);
        case 13: return tile<13, T>(src, dst, count);
        case 15: return tile<15, T>(src, dst, count);
        }
    }
    ends(g.in + s.row * g.n_in, g.out + start, s.at, g.n_in, g.n_out, g.off, w, (int)min((i64)count, g.rows * g.n_out - start));
}
