// out[o][i] = (sum over j of in[o][j][i]) / div,  in: outer x r x inner, out: outer x inner.
//
// Every sum over a set of axes is a few such passes: adjacent axes that are
// treated alike are merged first (sum.go). div is 1 for Sum and the number of
// terms for Mean. Passes but the last keep double precision in scratch memory,
// hence the entries with two types (input, output).
//
//   sum_rows   inner = 1, long rows: one block per row, or per chunk of a row
//              when there are too few rows to fill the device; a second pass
//              adds the chunks in index order.
//   sum_short  inner = 1, rows of at most 1024: a group of lanes per row.
//   sum_cols   inner > 1: threads of a block side by side on 16-byte vectors of
//              columns, and in `blockDim.y` interleaved strands down the rows,
//              combined in strand order through shared memory.
//
// 4 bytes of traffic and one DADD per float32 element: bound by memory.
#include "reduce.cuh"

#define ROWS(NAME, IN, OUT)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        sum_rows_##NAME(const IN* in, OUT* out, long long n, long long chunk, int splits, double div) {           \
        reduce_rows<IN>(Value<IN>{in}, out, n, chunk, splits, div);                                               \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        sum_short_##NAME(const IN* in, OUT* out, long long rows, int n, int lanes, double div) {                  \
        reduce_short<IN>(Value<IN>{in}, out, rows, n, lanes, div);                                                \
    }

ROWS(f32, float, float)
ROWS(f32_f64, float, double)
ROWS(f64, double, double)
ROWS(f64_f32, double, float)

// Block b: tile b % tiles of columns, chunk (b / tiles) % splits of the rows of
// outer index b / tiles / splits. W columns per thread.
template <typename In, typename Out, int W>
__device__ void sum_cols(const In* __restrict__ in, Out* __restrict__ out, long long r, long long inner,
                         long long chunk, int splits, int tiles, double div) {
    extern __shared__ double strands[];  // [blockDim.y][blockDim.x * W]
    constexpr int FLIGHT = 8;
    const int tile = blockIdx.x % tiles;
    const long long part = blockIdx.x / tiles;  // outer * splits + split
    const long long first = part % splits * chunk, last = min(first + chunk, r);
    const long long col = ((long long)tile * blockDim.x + threadIdx.x) * W;
    const bool live = col < inner;  // inner is a multiple of W
    double acc[W] = {};
    if (live) {
        const In* p = in + (part / splits * r) * inner + col;
        long long j = first + threadIdx.y;
        const long long stride = blockDim.y;
        auto load = [&](Pack<In>& x, long long row) {
            if constexpr (W == 1) x.s[0] = p[row * inner];
            else x.v = *reinterpret_cast<const typename Vec<In>::type*>(p + row * inner);
        };
        for (; j + (FLIGHT - 1) * stride < last; j += FLIGHT * stride) {
            Pack<In> x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) load(x[f], j + f * stride);
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                for (int k = 0; k < W; k++) acc[k] += (double)x[f].s[k];
        }
        for (; j < last; j += stride) {
            Pack<In> x;
            load(x, j);
#pragma unroll
            for (int k = 0; k < W; k++) acc[k] += (double)x.s[k];
        }
    }
    const int width = blockDim.x * W;
#pragma unroll
    for (int k = 0; k < W; k++) strands[threadIdx.y * width + k * blockDim.x + threadIdx.x] = acc[k];
    __syncthreads();
    if (threadIdx.y == 0 && live) {
#pragma unroll
        for (int k = 0; k < W; k++) {
            double sum = 0;
            for (int y = 0; y < blockDim.y; y++) sum += strands[y * width + k * blockDim.x + threadIdx.x];
            out[part * inner + col + k] = (Out)(sum / div);
        }
    }
}

#define COLS(NAME, IN, OUT)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        sum_cols_##NAME(const IN* in, OUT* out, long long r, long long inner, long long chunk, int splits,        \
                        int tiles, double div) {                                                                  \
        sum_cols<IN, OUT, 1>(in, out, r, inner, chunk, splits, tiles, div);                                       \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        sum_colsvec_##NAME(const IN* in, OUT* out, long long r, long long inner, long long chunk, int splits,     \
                           int tiles, double div) {                                                               \
        sum_cols<IN, OUT, Vec<IN>::width>(in, out, r, inner, chunk, splits, tiles, div);                          \
    }

COLS(f32, float, float)
COLS(f32_f64, float, double)
COLS(f64, double, double)
COLS(f64_f32, double, float)
