// Rows of 16-bit elements in whole pieces of 16 bytes, for attention_hopper.cu and attention_mma_wide.cu: attention_pad copies rows at any address to rows that zeros fill up, attention_unpad copies
// results back. Where a problem has few tiles, its keys are in sections, which are batches of the padded problem: attention_pad writes how many keys of a section a query sees, and attention_join joins
// the sections' results. Bound by memory.
//stheno:targets sm_90a ptx
#include "attention.cuh"

typedef unsigned short u16;

constexpr int THREADS = 256, WIDTH = 8, COUNT = 8; // WIDTH elements of a piece; attention_unpad: COUNT elements of a thread

// Source is an operand's rows, (batches, outers, inners) in memory's order, and the padded rows, which are dense and have `pieces` pieces. Batches that are sections begin `step` rows after one another,
// of `rows` rows; those beyond are zeros.
struct Source {
    const u16* from;
    i64 batch, outer, inner; // strides
    uint4* to;
    int outers, inners, pieces, step, rows;
    __device__ __forceinline__ int blocks() const { return (pieces + THREADS - 1) / THREADS; }
};

#define SOURCE(x) const u16 *x##_from, const i64 x##_batch, const i64 x##_outer, const i64 x##_inner, uint4 *x##_to, const int x##_outers, const int x##_inners, const int x##_pieces, const int x##_step, const int x##_rows
#define SOURCE_OF(x) Source{x##_from, x##_batch, x##_outer, x##_inner, x##_to, x##_outers, x##_inners, x##_pieces, x##_step, x##_rows}

extern "C" __global__ void __launch_bounds__(THREADS) attention_pad(SOURCE(a), SOURCE(b), SOURCE(c), const int dim, int* counts, const int sections, const int queries, const int causal) {
    Source s = SOURCE_OF(a);
    int block = blockIdx.x;
    if (block >= s.blocks()) {
        block -= s.blocks(), s = SOURCE_OF(b);
        if (block >= s.blocks()) block -= s.blocks(), s = SOURCE_OF(c);
    }
    const unsigned i = (unsigned)block * THREADS + threadIdx.x, width = (dim + WIDTH - 1) / WIDTH, row = i / width, outer = row / s.inners;
    const int column = (i - row * width) * WIDTH, batch = outer / s.outers, inner = row - outer * s.inners;
    const u16* const x = s.from + batch * s.batch + (outer - batch * s.outers) * s.outer + inner * s.inner + column;
    const int end = batch * s.step + inner < s.rows ? dim - column : 0;
    follow();
    if (const int k = blockIdx.x * THREADS + threadIdx.x; k < sections * queries) // of sections, b is the keys
        counts[k] = max(min((causal ? min(b_rows, k % queries + b_rows - queries + 1) : b_rows) - k / queries * b_step, b_step), 0);
    if (i >= s.pieces) return;
    u16 v[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        v[e] = 0;
        if (e < end) v[e] = x[e];
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

// attention_join adds up the results of sections with weights by their statistics: of padded rows, (sections, batches heads, queries).
extern "C" __global__ void __launch_bounds__(THREADS) attention_join(const void* from, const float* statistics, const int sections, void* out, STRIDES(out), float* lse, const int outputs, const int heads, const int queries,
                                                                     const int rows, const int dim, const int width, const int stored) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    const int row = (int)(i / dim), column = (int)(i % dim), head = row / queries, query = row % queries;
    const Head<float> to(out, STRIDES_OF(out), head / heads, head % heads, queries, dim, stored), x(from, Strides{}, 0, 0, rows, width, stored);
    follow();
    if (row >= rows) return;
    float most = -INFINITY, total = 0, sum = 0;
#pragma unroll 4
    for (int s = 0; s < sections; s++) most = max(most, statistics[(i64)s * rows + row]);
    const float base = most == -INFINITY ? 0.0f : most;
#pragma unroll 4
    for (int s = 0; s < sections; s++) {
        const float weight = __expf(statistics[(i64)s * rows + row] - base);
        total += weight, sum += weight * x.read(((i64)s * rows + row) * width + column);
    }
    to.write(query * out_row + column, total == 0 ? 0.0f : sum / total);
    if (outputs & 2 && column == 0) lse[row] = most + log(total);
}
