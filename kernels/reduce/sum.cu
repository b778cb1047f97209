// out[o][i] = (sum over j of in[o][j][i]) / div,  in: outer x r x inner, out: outer x inner.
//
// Every sum over a set of axes is a few such passes: adjacent axes that are
// treated alike are merged first (sum.go). div is 1 for Sum and the number of
// terms for Mean. Passes but the last keep double precision in scratch memory,
// hence the entries with two types (input, output).
//
//   sum_tile   slabs of r x inner elements, up to a few thousand: a block copies as many as fill a
//              tile into shared memory, where a group of lanes adds up each output.
//   sum_rows   inner = 1, long rows: one block per row, or per chunk of a row
//              when there are too few rows to fill the device.
//   sum_cols   inner > 1: threads of a block side by side on 16-byte vectors of
//              columns, and in `blockDim.y` interleaved strands down the rows,
//              combined through shared memory.
//   sum_few    inner > 1, few rows: several columns a thread.
//
//   sum_twice, sum_tile_twice   two sets of axes at once.
//
// If rows or columns are cut in chunks, the last block to finish adds up the chunks' sums, in a
// cooperative launch, or another pass does.
//
// 4 bytes of traffic and one DADD per float32 element: bound by memory.
#include "async.cuh"
#include "reduce.cuh"

// load_tile copies `count` elements to shared memory, and returns where the first of them is. The copy begins at the boundary of 16 bytes
// before it. Operands start at one, so that is inside.
template <typename In> __device__ __forceinline__ const In* load_tile(const In* from, int count) {
    extern __shared__ __align__(16) unsigned char tile[];
    using Vector = typename Vec<In>::type;
    constexpr int W = Vec<In>::width;
    const int shift = (int)(reinterpret_cast<unsigned long long>(from) % 16 / sizeof(In)), end = shift + count, t = threadIdx.x;
    for (int v = t; v < end / W; v += blockDim.x) async_copy(reinterpret_cast<Vector*>(tile) + v, reinterpret_cast<const Vector*>(from - shift) + v);
    const int tail = end / W * W + t;
    if (tail < end) reinterpret_cast<In*>(tile)[tail] = from[tail - shift];
    commit();
    arrived<0>();
    __syncthreads();
    return reinterpret_cast<In*>(tile) + shift;
}

// Block b: slabs b per .. b per + per - 1, that lie one behind the other.
template <typename In, typename Out>
__device__ __forceinline__ void sum_tile(const In* in, Out* out, long long slabs, int r, int inner, int per, int lanes, double div) {
    constexpr int FLIGHT = 4;
    const long long first = (long long)blockIdx.x * per;
    const int slab = r * inner, own = (int)min((long long)per, slabs - first), t = threadIdx.x;
    const In* x = load_tile(in + first * slab, own * slab);
    const int outputs = own * inner, lane = t & (lanes - 1), each = blockDim.x / lanes;
    const unsigned inverse = 0xffffffffu / (unsigned)inner + 1;  // ceil(2^32 / inner), exact enough for outputs < 2^16
    for (int o = t / lanes; o - t / lanes < outputs; o += each) {
        double acc = 0;
        if (o < outputs) {
            const int s = inner == 1 ? o : (int)__umulhi((unsigned)o, inverse);
            const In* p = x + s * slab + (o - s * inner);
            int j = lane;
            for (; j + (FLIGHT - 1) * lanes < r; j += FLIGHT * lanes) {
                In e[FLIGHT];
#pragma unroll
                for (int f = 0; f < FLIGHT; f++) e[f] = p[(j + f * lanes) * inner];
#pragma unroll
                for (int f = 0; f < FLIGHT; f++) acc += (double)e[f];
            }
            for (; j < r; j += lanes) acc += (double)p[j * inner];
        }
        acc = warp_sum(acc, lanes);
        if (o < outputs && lane == 0) out[first * inner + o] = (Out)(div == 1 ? acc : acc / div);
    }
}

#define ROWS(NAME, IN, OUT)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                          \
        sum_rows_##NAME(const IN* in, OUT* out, double* parts, long long n, long long chunk, int splits, int once, double div) { \
        reduce_rows<IN>(Value<IN>{in}, out, parts, n, chunk, splits, once, div);                                  \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        sum_tile_##NAME(const IN* in, OUT* out, long long slabs, int r, int inner, int per, int lanes, double div) { \
        sum_tile(in, out, slabs, r, inner, per, lanes, div);                                                      \
    }

ROWS(f32, float, float)
ROWS(f32_f64, float, double)
ROWS(f64, double, double)
ROWS(f64_f32, double, float)

// Block b: tile b % tiles of columns, chunk (b / tiles) % splits of the rows of
// outer index b / tiles / splits. W columns per thread. once: the sums of chunks go to parts, and
// the last block adds them up.
template <typename In, typename Out, int W>
__device__ __forceinline__ void sum_cols(const In* __restrict__ in, Out* __restrict__ out, double* parts, long long r, long long inner,
                         long long chunk, int splits, int tiles, int once, double div) {
    extern __shared__ double strands[];  // [blockDim.y][W][blockDim.x]
    constexpr int FLIGHT = W == 1 ? 16 : 8;
    const int tile = blockIdx.x % tiles, part = blockIdx.x / tiles;  // part: outer * splits + split
    const long long first = part % splits * chunk;
    const long long col = ((long long)tile * blockDim.x + threadIdx.x) * W;
    const bool live = col < inner;  // inner is a multiple of W
    double acc[W] = {};
    if (live) {
        const long long step = blockDim.y * inner;
        const In* p = in + (part / splits * r + first + threadIdx.y) * inner + col;
        // left: rows from the thread's on
        for (int left = (int)(min(chunk, r - first) - threadIdx.y); left > 0; left -= FLIGHT * blockDim.y, p += FLIGHT * step) {
            Pack<In> x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) {
                const bool there = f * (int)blockDim.y < left;
                if constexpr (W == 1) x[f].s[0] = there ? p[f * step] : In(0);
                else x[f].v = there ? *reinterpret_cast<const typename Vec<In>::type*>(p + f * step) : typename Vec<In>::type{};
            }
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                for (int k = 0; k < W; k++) acc[k] += (double)x[f].s[k];
        }
    }
    if (blockDim.y > 1) {
        const int width = blockDim.x * W;
        double* const own = strands + threadIdx.y * width + threadIdx.x;
#pragma unroll
        for (int k = 0; k < W; k++) own[k * blockDim.x] = acc[k];
        int half = 1;
        while (2 * half < blockDim.y) half *= 2;
        for (; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.y < half && threadIdx.y + half < blockDim.y) {
#pragma unroll
                for (int k = 0; k < W; k++) own[k * blockDim.x] = acc[k] += own[half * width + k * blockDim.x];
            }
        }
    }
    const bool writes = threadIdx.y == 0 && live;
    if (!once) {
        if (writes)
#pragma unroll
            for (int k = 0; k < W; k++) out[part * inner + col + k] = (Out)(acc[k] / div);
        return;
    }
    if (writes) {
#pragma unroll
        for (int k = 0; k < W; k++) parts[part * inner + col + k] = acc[k];
        __threadfence();
    }
    __syncthreads();
    if (!last_block(threadIdx.x + threadIdx.y * blockDim.x, [] {})) return;
// few columns: the threads take all outputs of one outer index after the other
    for (int o = 0; o < gridDim.x / tiles / splits; o++)
        for (int i = threadIdx.x + threadIdx.y * blockDim.x; i < inner; i += blockDim.x * blockDim.y) {
            const double* p = parts + ((long long)o * splits * inner + i);
            double sum = 0;
#pragma unroll 8
            for (int s = 0; s < splits; s++) sum += __ldcg(p + s * inner);
            out[o * inner + i] = (Out)(sum / div);
        }
}

#define COLS(NAME, IN, OUT)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                          \
        sum_cols_##NAME(const IN* in, OUT* out, double* parts, long long r, long long inner, long long chunk, int splits, \
                        int tiles, int once, double div) {                                                        \
        sum_cols<IN, OUT, 1>(in, out, parts, r, inner, chunk, splits, tiles, once, div);                          \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                          \
        sum_colsvec_##NAME(const IN* in, OUT* out, double* parts, long long r, long long inner, long long chunk, int splits, \
                           int tiles, int once, double div) {                                                     \
        sum_cols<IN, OUT, Vec<IN>::width>(in, out, parts, r, inner, chunk, splits, tiles, once, div);             \
    }

COLS(f32, float, float)
COLS(f32_f64, float, double)
COLS(f64, double, double)
COLS(f64_f32, double, float)

// Few rows. A thread sums COLUMNS columns with a stride of blockDim.x. Adjacent lanes therefore load contiguous elements, and
// enough loads are in flight. Block b: tile b % tiles of columns of outer index b / tiles.
template <typename T>
__device__ __forceinline__ void sum_few(const T* __restrict__ in, T* __restrict__ out, int r, long long inner, int tiles, double div) {
    constexpr int COLUMNS = 4, FLIGHT = 4;
    const long long outer = blockIdx.x / tiles, first = (long long)(blockIdx.x % tiles) * COLUMNS * blockDim.x + threadIdx.x;
    const int step = blockDim.x, left = (int)min(inner - first, (long long)COLUMNS * step); // columns from the first on
    const T* p = in + outer * r * inner + first;
    double acc[COLUMNS] = {};
    for (int j = 0; j < r; j += FLIGHT, p += FLIGHT * inner) {
        T x[FLIGHT][COLUMNS];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) x[f][c] = j + f < r && c * step < left ? p[f * inner + c * step] : T(0);
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) acc[c] += (double)x[f][c];
    }
    T* to = out + outer * inner + first;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        if (c * step < left) to[c * step] = (T)(div == 1 ? acc[c] : acc[c] / div);
}

#define FEW(NAME, T)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                            \
        sum_few_##NAME(const T* in, T* out, int r, long long inner, int tiles, double div) {                        \
        sum_few(in, out, r, inner, tiles, div);                                                                     \
    }

FEW(f32, float)
FEW(f64, double)

// Two sets of axes at once, in: slabs x r x middle x q x inner, summed over r and q: what a pass for each would write and read again is
// a large part of the input where r and q are short, and another launch takes longer than a small input.

// Twice is where the terms of an output lie.
struct Twice {
    int r, middle, q, inner;
    unsigned inverse;  // ceil(2^32 / q), exact enough for terms < 2^16
    __device__ Twice(int r, int middle, int q, int inner) : r(r), middle(middle), q(q), inner(inner), inverse(0xffffffffu / (unsigned)q + 1) {}
    __device__ int term(int k) const {
        const int j = (int)__umulhi((unsigned)k, inverse);
        return (j * middle * q + k - j * q) * inner;
    }
    __device__ int first(int o) const { return o / inner * q * inner + o % inner; }
    // sum returns the sum of the terms k, k + step, ... of the output whose first term is at p.
    template <typename T> __device__ double sum(const T* p, int k, int step) const {
        constexpr int FLIGHT = 8;
        const int terms = r * q;
        double acc = 0;
        for (; k < terms; k += FLIGHT * step) {
            T x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) x[f] = k + f * step < terms ? p[term(k + f * step)] : T(0);
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) acc += (double)x[f];
        }
        return acc;
    }
};

// sum_twice: a block has `side` outputs side by side, a power of two, and strands of threads down the terms of each, combined through shared
// memory. Threads side by side read neighbouring elements: of neighbouring outputs, or of one if inner is 1 and there are strands.
template <typename T>
__device__ __forceinline__ void sum_twice(const T* __restrict__ in, T* __restrict__ out, int outputs, int r, int middle, int q, int inner, int side, double div) {
    extern __shared__ double strands[];
    const Twice slab(r, middle, q, inner);
    const int t = threadIdx.x, all = blockDim.x / side;
    const bool across = inner > 1;
    const int own = across ? t % side : t / all, strand = across ? t / side : t % all, o = blockIdx.x * side + own;
    double acc = 0;
    if (o < outputs) {
        const int s = o / (middle * inner);
        acc = slab.sum(in + ((long long)s * r * middle * q * inner + slab.first(o - s * middle * inner)), strand, all);
    }
    if (all > 1) {
        strands[t] = acc;
        const int next = across ? side : 1;
        for (int half = all / 2; half > 0; half /= 2) {
            __syncthreads();
            if (strand < half) strands[t] = acc += strands[t + half * next];
        }
    }
    if (strand == 0 && o < outputs) out[o] = (T)(acc / div);
}

// sum_tile_twice: sum_tile with slabs of r x middle x q x inner.
template <typename T>
__device__ __forceinline__ void sum_tile_twice(const T* in, T* out, long long slabs, int r, int middle, int q, int inner, int per, int lanes, double div) {
    const Twice slab(r, middle, q, inner);
    const long long first = (long long)blockIdx.x * per;
    const int size = r * middle * q * inner, own = (int)min((long long)per, slabs - first);
    const T* x = load_tile(in + first * size, own * size);
    const int each = middle * inner, outputs = own * each, t = threadIdx.x, step = blockDim.x / lanes;
    const unsigned inverse = 0xffffffffu / (unsigned)each + 1;  // as in sum_tile
    for (int o = t / lanes; o - t / lanes < outputs; o += step) {
        double acc = 0;
        if (o < outputs) {
            const int s = (int)__umulhi((unsigned)o, inverse);
            acc = slab.sum(x + s * size + slab.first(o - s * each), t & (lanes - 1), lanes);
        }
        acc = warp_sum(acc, lanes);
        if (o < outputs && (t & (lanes - 1)) == 0) out[first * each + o] = (T)(div == 1 ? acc : acc / div);
    }
}

#define TWICE(NAME, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                                              \
        sum_twice_##NAME(const T* in, T* out, int outputs, int r, int middle, int q, int inner, int side, double div) { \
        sum_twice(in, out, outputs, r, middle, q, inner, side, div);                                                \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                               \
        sum_tile_twice_##NAME(const T* in, T* out, long long slabs, int r, int middle, int q, int inner, int per, int lanes, double div) { \
        sum_tile_twice(in, out, slabs, r, middle, q, inner, per, lanes, div);                                       \
    }

TWICE(f32, float)
TWICE(f64, double)
