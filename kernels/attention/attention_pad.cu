// Rows of 16-bit elements in whole pieces of 16 bytes, for attention_hopper.cu and attention_mma_wide.cu: attention_pad copies rows at any address to rows that zeros fill up, attention_unpad copies
// results back. Bound by memory.
//stheno:targets sm_90a ptx
#include "follow.cuh"

typedef long long i64;
typedef unsigned short u16;

constexpr int THREADS = 256, WIDTH = 8, COUNT = 8; // WIDTH elements of a piece; attention_unpad: COUNT elements of a thread

// Source is an operand's rows, (batches, outers, inners) in memory's order, and the padded rows, which are dense and have `pieces` pieces.
struct Source {
    const u16* from;
    i64 batch, outer, inner; // strides
    uint4* to;
    int outers, inners, pieces;
    __device__ __forceinline__ int blocks() const { return (pieces + THREADS - 1) / THREADS; }
};

#define SOURCE(x) const u16 *x##_from, const i64 x##_batch, const i64 x##_outer, const i64 x##_inner, uint4 *x##_to, const int x##_outers, const int x##_inners, const int x##_pieces
#define SOURCE_OF(x) Source{x##_from, x##_batch, x##_outer, x##_inner, x##_to, x##_outers, x##_inners, x##_pieces}

extern "C" __global__ void __launch_bounds__(THREADS) attention_pad(SOURCE(a), SOURCE(b), SOURCE(c), const int dim) {
    Source s = SOURCE_OF(a);
    int block = blockIdx.x;
    if (block >= s.blocks()) {
        block -= s.blocks(), s = SOURCE_OF(b);
        if (block >= s.blocks()) block -= s.blocks(), s = SOURCE_OF(c);
    }
    const unsigned i = (unsigned)block * THREADS + threadIdx.x, width = (dim + WIDTH - 1) / WIDTH, row = i / width, outer = row / s.inners;
    const int column = (i - row * width) * WIDTH;
    const u16* const x = s.from + outer / s.outers * s.batch + outer % s.outers * s.outer + row % s.inners * s.inner + column;
    follow();
    if (i >= s.pieces) return;
    u16 v[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        v[e] = 0;
        if (column + e < dim) v[e] = x[e];
    }
    s.to[i] = make_uint4(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
}

// attention_unpad writes runs of n elements, `stride` elements apart, `blocks` blocks a run: whole rows of dim elements, which are `width` elements apart in the source.
extern "C" __global__ void __launch_bounds__(THREADS) attention_unpad(const u16* from, u16* to, const i64 stride, const int n, const int blocks, const int dim, const int width) {
    const int run = blockIdx.x / blocks, first = blockIdx.x % blocks * (THREADS * COUNT) + threadIdx.x, rows = THREADS / dim, columns = THREADS % dim;
    int row = first / dim, column = first % dim;
    from += (i64)run * (n / dim) * width, to += run * stride;
    u16 v[COUNT];
    follow();
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        if (first + k * THREADS < n) v[k] = from[(i64)row * width + column];
        row += rows, column += columns;
        if (column >= dim) column -= dim, row++;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        if (first + k * THREADS < n) to[first + k * THREADS] = v[k];
}
