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
    // at is [] for elements far outside of the row, whose place it does not read.
    __device__ __forceinline__ double at(int i) const {
        const double e = (double)x[min(max(i, -before), elements - 1 - before)];
        return (unsigned)(before + i) < (unsigned)elements ? e : 0.0;
    }
};

// Few is the work of a block: `outputs` windows of each of `rows` rows, whose first begins at first.
template <typename T> struct Few {
    const T* first;
    T* sums;
    int rows, outputs, n_in, n_out, begin, end;

    // each calls sum(x, out) for the K windows of a row that a thread sums: x[0] is the first one's first element.
    template <typename Sum> __device__ __forceinline__ void each(Sum sum) const {
        constexpr int K = few_items;
        const int across = (outputs + K - 1) / K;
        const Divisor by(across);
#pragma unroll 1
        for (int v = threadIdx.x; v < rows * across; v += blockDim.x) {
            const int row = by.quotient(v), at = (v - row * across) * K;
            double out[K];
            sum(Reader<T>{first + row * n_in + at, at - begin, end - begin}, out);
            T* const to = sums + row * n_out + at;
#pragma unroll
            for (int k = 0; k < K; k++)
                if (at + k < outputs) to[k] = (T)out[k];
        }
    }

    // of sums windows of w elements, known to the compiler, or of one less.
    template <int w> __device__ __forceinline__ void of(bool all) const {
        constexpr int K = few_items;
        each([&](const Reader<T>& x, double (&out)[K]) {
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

    // any sums windows of w > K elements: all K outputs of a thread have the elements but for the first and the last K - 1 of its windows.
    __device__ __forceinline__ void any(int w) const {
        constexpr int K = few_items, together = 8;
        each([&](const Reader<T>& x, double (&out)[K]) {
            int i = max(K - 1, -x.before);
            const int end = min(w, x.elements - x.before);
            double part[together] = {};
#pragma unroll 1
            for (; i + together <= end; i += together)
#pragma unroll
                for (int j = 0; j < together; j++) part[j] += (double)x.x[i + j];
#pragma unroll
            for (int j = 0; j < together - 1; j++)
                if (i + j < end) part[j] += (double)x.x[i + j];
#pragma unroll
            for (int step = together / 2; step > 0; step /= 2)
#pragma unroll
                for (int j = 0; j < step; j++) part[j] += part[j + step];
            double left = 0, right = 0;
            out[K - 1] = part[0];
#pragma unroll
            for (int k = K - 2; k >= 0; k--) out[k] = part[0] + (left += x.at(k));
#pragma unroll
            for (int k = 1; k < K; k++) out[k] += right += x.at(w + k - 1);
        });
    }
};

// few is for windows of few elements, or of few outputs.
template <typename T> __device__ __forceinline__ void few(const Row<T>& g, const Pieces& pieces, int staged) {
    const Piece<T> p(g, pieces);
    T* const shared = reinterpret_cast<T*>(shared_memory) + few_before;
    T* const sums = shared + staged + p.lead;
    const Few<T> of{shared + p.fetch(g, shared), sums, p.rows, p.outputs, (int)g.n_in, (int)g.n_out, p.begin, p.end};
    const int w = (int)g.w;
    const bool odd = w % 2;
    switch (w / 2) {
    case 0: of.template of<1>(odd); break;
    case 1: of.template of<3>(odd); break;
    case 2: of.template of<5>(odd); break;
    case 3: of.template of<7>(odd); break;
    case 4: of.template of<9>(odd); break;
    case 5: of.template of<11>(odd); break;
    case 6: of.template of<13>(odd); break;
    case 7: of.template of<15>(odd); break;
    default: of.any(w);
    }
    __syncthreads();
    p.store(g, sums);
}
