// Window sums of few elements, of rows that share blocks, or take a few: a block's elements are all under way at once, to shared
// memory (in registers there is room for few), threads sum from there, and the sums go back there to be stored as vectors.
#pragma once
#include "windowsum_pieces.cuh"

// The outputs of a thread, side by side in a row: an odd number, so that threads side by side meet no bank of shared memory
// twice.
constexpr int few_items = 7;

// Places of shared memory before a block's elements, and between them and its sums, that are read where a compiler reads
// first and selects later. A vector's multiple.
constexpr int few_before = 16;

// Reader reads elements of a row, zeros outside of it.
template <typename T> struct Reader {
    const T* x;
    int before, elements; // elements of the row before x[0], and all of them
    __device__ __forceinline__ double operator[](int i) const { return (unsigned)(before + i) < (unsigned)elements ? (double)x[i] : 0.0; }
};

// each calls sum(x, out) for the K windows of a row that a thread sums: x[0] is the first one's first element.
template <int K, typename T, typename Sum> __device__ __forceinline__ void each(const Row<T>& g, const Pieces& pieces, int staged, Sum sum) {
    const Piece<T> p(g, pieces);
    T* const shared = reinterpret_cast<T*>(shared_memory) + few_before;
    T* const sums = shared + staged + p.lead;
    const T* const first = shared + p.fetch(g, shared);
    const int across = (p.outputs + K - 1) / K, n_in = (int)g.n_in, n_out = (int)g.n_out;
    const Divisor by(across);
#pragma unroll 1
    for (int v = threadIdx.x; v < p.rows * across; v += blockDim.x) {
        const int row = by.quotient(v), at = (v - row * across) * K;
        double out[K];
        sum(Reader<T>{first + row * n_in + at, at - p.begin, p.end - p.begin}, out);
        T* const to = sums + row * n_out + at;
#pragma unroll
        for (int k = 0; k < K; k++)
            if (at + k < p.outputs) to[k] = (T)out[k];
    }
    __syncthreads();
    p.store(g, sums);
}

// few_of sums windows of w elements, known to the compiler, or of one less.
template <int w, typename T> __device__ __forceinline__ void few_of(const Row<T>& g, const Pieces& pieces, int staged) {
    constexpr int K = few_items;
    const bool all = g.w == w;
    each<K>(g, pieces, staged, [&](const Reader<T>& x, double (&out)[K]) {
        double e[w + K - 1];
#pragma unroll
        for (int i = 0; i < w + K - 1; i++) e[i] = x[i];
#pragma unroll
        for (int k = 0; k < K; k++) {
            out[k] = e[k];
#pragma unroll
            for (int j = 1; j < w; j++)
                if (j < w - 1 || all) out[k] += e[k + j];
        }
    });
}

// few is for windows of fewer than 16 elements.
template <typename T> __device__ __forceinline__ void few(const Row<T>& g, const Pieces& pieces, int staged) {
    switch (g.w / 2) {
    case 0: return few_of<1>(g, pieces, staged);
    case 1: return few_of<3>(g, pieces, staged);
    case 2: return few_of<5>(g, pieces, staged);
    case 3: return few_of<7>(g, pieces, staged);
    case 4: return few_of<9>(g, pieces, staged);
    case 5: return few_of<11>(g, pieces, staged);
    case 6: return few_of<13>(g, pieces, staged);
    case 7: return few_of<15>(g, pieces, staged);
    }
}
