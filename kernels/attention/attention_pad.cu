// Rows of 16-bit elements in whole pieces of 16 bytes, for kernels of tensor cores: attention_pad copies rows at any address to rows that zeros fill up, attention_join copies results back. Where a
// problem has few tiles, its keys are in sections, which are batches of the padded problem: attention_pad writes how many keys of a section a query sees, and attention_join adds up the sections'
// results with weights by their statistics.
//stheno:targets sm_90a ptx
#include "attention.cuh"

typedef unsigned short u16;

constexpr int THREADS = 256, WIDTH = 8; // elements of a piece, and columns of a thread in attention_join

// Source is an operand of `heads` heads in each batch, and its padded rows, (batches, heads, rows), of `pieces` pieces. Batches that are sections begin `step` rows after one another, of `count` rows;
// rows beyond are zeros.
struct Source {
    const u16* x;
    Strides strides;
    uint4* to;
    int heads, rows, pieces, step, count;
    __device__ __forceinline__ int blocks() const { return (pieces + THREADS - 1) / THREADS; }
};

#define SOURCE(x) const u16 *x, STRIDES(x), uint4 *x##_to, const int x##_heads, const int x##_rows, const int x##_pieces, const int x##_step, const int x##_count
#define SOURCE_OF(x) Source{x, STRIDES_OF(x), x##_to, x##_heads, x##_rows, x##_pieces, x##_step, x##_count}

extern "C" __global__ void __launch_bounds__(THREADS) attention_pad(SOURCE(a), SOURCE(b), SOURCE(c), const int dim, int* counts, const int sections, const int queries, const int causal) {
    Source s = SOURCE_OF(a);
    int block = blockIdx.x;
    if (block >= s.blocks()) {
        block -= s.blocks(), s = SOURCE_OF(b);
        if (block >= s.blocks()) block -= s.blocks(), s = SOURCE_OF(c);
    }
    const unsigned i = (unsigned)block * THREADS + threadIdx.x, width = (dim + WIDTH - 1) / WIDTH, number = i / width, head = number / s.rows;
    const int row = number - head * s.rows, batch = head / s.heads, column = (i - number * width) * WIDTH;
    const u16* const x = s.x + batch * s.strides.batch + (head - batch * s.heads) * s.strides.head + row * s.strides.row + column;
    const int end = batch * s.step + row < s.count ? dim - column : 0, k = blockIdx.x * THREADS + threadIdx.x;
    follow();
    if (k < sections * queries) // b is the keys
        counts[k] = max(min((causal ? min(b_count, k % queries + b_count - queries + 1) : b_count) - k / queries * b_step, b_step), 0);
    if (i >= s.pieces) return;
    u16 v[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        v[e] = 0;
        if (e < end) v[e] = x[e];
    }
    s.to[i] = make_uint4(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
}

// attention_join: rows are those of a section. Lanes of a row have columns that are as far from each other as there are lanes.
extern "C" __global__ void __launch_bounds__(THREADS) attention_join(const u16* from, const float* statistics, const int sections, void* out, STRIDES(out), float* lse, const int outputs, const int heads, const int queries,
                                                                     const int rows, const int dim, const int width, const int stored) {
    int lanes = 0; // logarithm
    while (WIDTH << lanes < dim) lanes++;
    const unsigned i = blockIdx.x * THREADS + threadIdx.x, row = i >> lanes, lane = i - (row << lanes), head = row / queries, batch = head / heads;
    const Head<float> to(out, STRIDES_OF(out), batch, head - batch * heads, queries, dim, stored), x(from, Strides{}, 0, 0, 0, width, stored);
    const i64 place = (row - head * queries) * to.stride;
    follow();
    if (row >= rows) return;
    if (sections == 1) {
        u16 v[WIDTH];
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            if (const int c = lane + (e << lanes); c < dim) v[e] = from[(i64)row * width + c];
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            if (const int c = lane + (e << lanes); c < dim) ((u16*)to.x)[place + c] = v[e];
        return;
    }
    float most = -INFINITY, total = 0, sum[WIDTH] = {};
#pragma unroll 4
    for (int s = 0; s < sections; s++) most = max(most, statistics[(i64)s * rows + row]);
    const bool none = most == -INFINITY;
    if (none) most = 0;
#pragma unroll 2
    for (int s = 0; s < sections; s++) {
        const i64 at = (i64)s * rows + row;
        const float weight = __expf(statistics[at] - most);
        total += weight;
        const int end = none || statistics[at] > -INFINITY ? dim : 0; // a result is NaN if all its scores are -Inf
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            if (const int c = lane + (e << lanes); c < end) sum[e] += weight * x.read(at * width + c);
    }
    const float factor = none ? 1 : 1 / total; // of results that are 0 or NaN
#pragma unroll
    for (int e = 0; e < WIDTH; e++)
        if (const int c = lane + (e << lanes); c < dim) to.write(place + c, sum[e] * factor);
    if (outputs & 2 && lane == 0) lse[row] = most + log(total);
}
