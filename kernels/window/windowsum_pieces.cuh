// Rows shared among blocks as whole rows, or as pieces of a row: the elements of a block lie side by side in memory, and so
// do its outputs.
#pragma once
#include "windowsum_rows.cuh"

// Pieces is how rows are shared among blocks: so many whole rows to a block, or, where a row takes more than one block,
// outputs of it.
struct Pieces {
    int rows;    // of a block
    int blocks;  // of a row; 1 unless rows is 1
    int outputs; // of a row in a block
};

// Divisor divides numbers below 2^15 by one below 2^15: the product's error stays below 1 / divisor.
struct Divisor {
    unsigned inverse;
    __device__ explicit Divisor(int by) : inverse(by == 1 ? 0 : 0xffffffffu / (unsigned)by + 1) {}
    __device__ __forceinline__ int quotient(int n) const { return inverse ? (int)__umulhi((unsigned)n, inverse) : n; }
};

// Piece is the work of a block: `outputs` windows, from `place` on, of each of `rows` rows from `row` on.
template <typename T> struct Piece {
    static constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;

    i64 row, place, out; // out counts outputs through all rows
    int rows, outputs;
    int begin, end; // elements of a row, counted from the first of the first window
    int lead;       // outputs from a vector's border to the block's first one

    __device__ Piece(const Row<T>& g, const Pieces& p) {
        row = p.blocks == 1 ? (i64)blockIdx.x * p.rows : blockIdx.x / p.blocks;
        place = p.blocks == 1 ? 0 : (i64)(blockIdx.x % p.blocks) * p.outputs;
        rows = (int)min((i64)p.rows, g.rows - row), outputs = (int)min((i64)p.outputs, g.n_out - place);
        out = row * g.n_out + place;
        const i64 far = 1ll << 29; // no block looks there
        begin = (int)max(-(place + g.off), -far), end = (int)min(g.n_in - (place + g.off), far);
        lead = (int)(out % W);
    }

    // fetch copies the elements of the block's windows to shared memory and waits for them. It returns the place of the
    // first window's first element, below 0 if that lies before the row.
    __device__ __forceinline__ int fetch(const Row<T>& g, T* to) const {
        const i64 first = place + g.off;
        const i64 lo = row * g.n_in + max(first, 0ll), hi = (row + rows - 1) * g.n_in + min(first + outputs + g.w - 1, g.n_in);
        const int shift = (int)(reinterpret_cast<unsigned long long>(g.in + lo) % 16 / sizeof(T));
        const T* from = g.in + lo - shift; // operands start aligned, so this is inside in
        const int count = (int)(hi - lo) + shift, vectors = count / W, rest = vectors * W + (int)threadIdx.x;
        for (int v = threadIdx.x; v < vectors; v += blockDim.x) async_copy(reinterpret_cast<Vector*>(to) + v, reinterpret_cast<const Vector*>(from) + v);
        if (rest < count) async_copy(to + rest, from + rest);
        commit();
        arrived<0>();
        __syncthreads();
        return shift + (int)(row * g.n_in + first - lo);
    }

    // store copies the block's outputs from shared to global memory, in whole vectors except at the ends. x and the outputs have the
    // same offset from a vector boundary.
    __device__ __forceinline__ void store(const Row<T>& g, const T* x) const {
        const int count = (rows - 1) * (int)g.n_out + outputs;
        T* const to = g.out + out;
        for (int i = (int)threadIdx.x * W - lead; i < count; i += (int)blockDim.x * W) {
            if (i >= 0 && i + W <= count) {
                *reinterpret_cast<Vector*>(to + i) = *reinterpret_cast<const Vector*>(x + i);
                continue;
            }
#pragma unroll
            for (int k = 0; k < W; k++)
                if (i + k >= 0 && i + k < count) to[i + k] = x[i + k];
        }
    }
};
