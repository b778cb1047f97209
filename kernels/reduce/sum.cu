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
//   sum_unaligned   sum_cols with vectors for rows that are not whole vectors.
//   sum_few    inner > 1, few rows: several columns a thread.
//   sum_strip, sum_joined   narrow strips of columns, where several short rows may count as one; in
//              sum_joined the blocks of a cluster share a chunk of rows.
//
//   sum_twice, sum_tile_twice   two sets of axes at once.
//
// If rows or columns are cut in chunks, the last block to finish adds up the chunks' sums, or another pass does.
//
// 4 bytes of traffic and one DADD per float32 element: bound by memory.
#include "async.cuh"
#include "follow.cuh"
#include "inbox.cuh"
#include "reduce.cuh"

#if __CUDA_ARCH__ >= 900
#define IN_CLUSTER __cluster_dims__(8, 1, 1)
#define ON_CLUSTERS(...) __VA_ARGS__
#else // devices without clusters take other kernels: the entry points are empty there
#define IN_CLUSTER
#define ON_CLUSTERS(...)
#endif

// load_tile copies `count` elements to shared memory, and returns where the first of them is. The copy begins at the boundary of 16 bytes
// before it. Operands start at one, so that is inside.
template <typename In> __device__ __forceinline__ const In* load_tile(const In* from, int count) {
    extern __shared__ __align__(16) unsigned char tile[];
    using Vector = typename Vec<In>::type;
    constexpr int W = Vec<In>::width;
    const int shift = (int)(reinterpret_cast<unsigned long long>(from) % 16 / sizeof(In)), end = shift + count, t = threadIdx.x;
    admit();
    follow();
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
        sum_rows_##NAME(const IN* in, OUT* out, double* parts, unsigned* arrivals, long long n, long long chunk, int splits, int once, double div) { \
        reduce_rows<IN>(Value<IN>{in}, out, parts, arrivals, n, chunk, splits, once, div);                                  \
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
__device__ __forceinline__ void sum_cols(const In* __restrict__ in, Out* __restrict__ out, double* parts, unsigned* arrivals, long long r, long long inner,
                         long long chunk, int splits, int tiles, int once, double div) {
    extern __shared__ double strands[];  // [blockDim.y][W][blockDim.x]
    constexpr int FLIGHT = W == 1 ? 16 : 8;
    const int tile = blockIdx.x % tiles, part = blockIdx.x / tiles;  // part: outer * splits + split
    const long long first = part % splits * chunk;
    const long long col = ((long long)tile * blockDim.x + threadIdx.x) * W;
    const bool live = col < inner;  // inner is a multiple of W
    double acc[W] = {};
    admit();
    follow();
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
    if (!last_block(threadIdx.x + threadIdx.y * blockDim.x, arrivals, [] {})) return;
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
        sum_cols_##NAME(const IN* in, OUT* out, double* parts, unsigned* arrivals, long long r, long long inner, long long chunk, int splits, \
                        int tiles, int once, double div) {                                                        \
        sum_cols<IN, OUT, 1>(in, out, parts, arrivals, r, inner, chunk, splits, tiles, once, div);                          \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                          \
        sum_colsvec_##NAME(const IN* in, OUT* out, double* parts, unsigned* arrivals, long long r, long long inner, long long chunk, int splits, \
                           int tiles, int once, double div) {                                                     \
        sum_cols<IN, OUT, Vec<IN>::width>(in, out, parts, arrivals, r, inner, chunk, splits, tiles, once, div);             \
    }

COLS(f32, float, float)
COLS(f32_f64, float, double)
COLS(f64, double, double)
COLS(f64_f32, double, float)

// Rows that are not whole vectors. in: outer x r x inner, out: outer x splits x inner, chunks of `chunk` rows. A strand loads aligned vectors: it starts
// `shift` elements before the columns of its block, where needed in the row before. blockDim.y rows are whole vectors, so a strand has one shift. Adjacent blocks overlap
// by a vector. Block b: tile b % tiles of columns, chunk (b / tiles) % splits of the rows of outer index b / tiles / splits. wide: out is double, else float.
template <typename In>
__device__ __forceinline__ void sum_unaligned(const In* __restrict__ in, void* __restrict__ out, long long r, long long inner, long long chunk, int splits, int tiles, int wide,
                                              double div) {
    extern __shared__ double strands[];  // [blockDim.y][columns]
    constexpr int W = Vec<In>::width, FLIGHT = 8;
    const int columns = (blockDim.x - 1) * W, part = blockIdx.x / tiles;  // part: outer * splits + split
    const long long tile = (long long)(blockIdx.x % tiles) * columns, begin = part % splits * chunk;
    const long long first = (part / splits * r + begin + threadIdx.y) * inner;  // of the strand
    const int shift = (int)(first % W), own = threadIdx.x * W - shift;
    double acc[W] = {};
    admit();
    follow();
    if (tile + own < inner) {
        const long long step = blockDim.y * inner;
        const In* p = in + first + tile + own;
        int left = (int)(min(chunk, r - begin) - threadIdx.y);  // rows from the thread's on
        // The last vector of the last row of all is loaded by elements.
        const bool cut = tile + own + W > inner && blockIdx.x / tiles + 1 == gridDim.x / tiles && left > 0 && (left - 1) % blockDim.y == 0;
        left -= cut;
#pragma unroll 1
        for (; left > 0; left -= FLIGHT * blockDim.y, p += FLIGHT * step) {
            Pack<In> x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
                x[f].v = f * (int)blockDim.y < left ? *reinterpret_cast<const typename Vec<In>::type*>(p + f * step) : typename Vec<In>::type{};
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                for (int k = 0; k < W; k++) acc[k] += (double)x[f].s[k];
        }
        if (cut) {
            p = in + (part / splits * r + r - 1) * inner;
#pragma unroll
            for (int k = 0; k < W; k++)
                if (tile + own + k < inner) acc[k] += (double)p[tile + own + k];
        }
    }
#pragma unroll
    for (int k = 0; k < W; k++)
        if (own + k >= 0 && own + k < columns) strands[threadIdx.y * columns + own + k] = acc[k];
    __syncthreads();
    for (int c = threadIdx.x + threadIdx.y * blockDim.x; c < columns && tile + c < inner; c += blockDim.x * blockDim.y) {
        double sum = 0;
#pragma unroll 4
        for (int y = 0; y < blockDim.y; y++) sum += strands[y * columns + c];
        const long long to = part * inner + tile + c;
        sum /= div;
        if (wide) reinterpret_cast<double*>(out)[to] = sum;
        else reinterpret_cast<float*>(out)[to] = (float)sum;
    }
}

#define UNALIGNED(NAME, IN)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                          \
        sum_unaligned_##NAME(const IN* in, void* out, long long r, long long inner, long long chunk, int splits, int tiles, int wide, double div) { \
        sum_unaligned(in, out, r, inner, chunk, splits, tiles, wide, div);                                        \
    }

UNALIGNED(f32, float)

// Few rows. A thread sums COLUMNS columns with a stride of blockDim.x. Adjacent lanes therefore load contiguous elements, and
// enough loads are in flight. Block b: tile b % tiles of columns of outer index b / tiles.
template <typename T>
__device__ __forceinline__ void sum_few(const T* __restrict__ in, T* __restrict__ out, int r, long long inner, int tiles, double div) {
    constexpr int COLUMNS = 4, FLIGHT = 4;
    const long long outer = blockIdx.x / tiles, first = (long long)(blockIdx.x % tiles) * COLUMNS * blockDim.x + threadIdx.x;
    const int step = blockDim.x, left = (int)min(inner - first, (long long)COLUMNS * step); // columns from the first on
    const T* p = in + outer * r * inner + first;
    admit();
    follow();
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

// A block of sum_twice computes `side` adjacent outputs, a power of two. Strands of threads add the terms of each output, and shared memory combines the strands.
// Consecutive threads read adjacent elements, of one output if inner is 1 and there are strands, else of adjacent outputs. In sum_twice_joined the CLUSTER
// blocks of a cluster share the terms of their outputs, and the first block adds their sums in order.
template <typename T, int CLUSTER>
__device__ __forceinline__ void sum_twice(const T* __restrict__ in, T* __restrict__ out, int outputs, int r, int middle, int q, int inner, int side, double div) {
    extern __shared__ __align__(16) double strands[];  // [blockDim.x], then, in a cluster, [CLUSTER][side] with a spare element each
    double2* const inbox = reinterpret_cast<double2*>(strands + blockDim.x);
    __shared__ u64 full;
    const unsigned rank = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0, id = blockIdx.x / CLUSTER;
    if (CLUSTER > 1) open_inbox(&full, rank == 0 ? CLUSTER * side * (int)sizeof(double2) : 0);
    admit();
    follow();
    const Twice slab(r, middle, q, inner);
    const int t = threadIdx.x, all = blockDim.x / side;
    const bool across = inner > 1;
    const int own = across ? t % side : t / all, strand = across ? t / side : t % all, o = id * side + own;
    double acc = 0;
    if (o < outputs) {
        const int s = o / (middle * inner);
        acc = slab.sum(in + ((long long)s * r * middle * q * inner + slab.first(o - s * middle * inner)), rank * all + strand, CLUSTER * all);
    }
    if (all > 1) {
        strands[t] = acc;
        const int next = across ? side : 1;
        for (int half = all / 2; half > 0; half /= 2) {
            __syncthreads();
            if (strand < half) strands[t] = acc += strands[t + half * next];
        }
    }
    if (CLUSTER > 1) {
        cluster_wait();  // all blocks have begun
        if (strand == 0) send(0, inbox + rank * side + own, make_double2(acc, 0), &full);
        if (rank > 0) return;
        await_inbox(&full);
        acc = 0;
        if (strand == 0)
#pragma unroll
            for (int c = 0; c < CLUSTER; c++) acc += inbox[c * side + own].x;
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
        sum_twice<T, 1>(in, out, outputs, r, middle, q, inner, side, div);                                          \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) IN_CLUSTER                                                    \
        sum_twice_joined_##NAME(const T* in, T* out, int outputs, int r, int middle, int q, int inner, int side, double div) { \
        ON_CLUSTERS(sum_twice<T, 8>(in, out, outputs, r, middle, q, inner, side, div);)                             \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                               \
        sum_tile_twice_##NAME(const T* in, T* out, long long slabs, int r, int middle, int q, int inner, int per, int lanes, double div) { \
        sum_tile_twice(in, out, slabs, r, middle, q, inner, per, lanes, div);                                       \
    }

TWICE(f32, float)
TWICE(f64, double)

// sum_strip: out[o][s][i] = (sum of the rows j of chunk s of in[o][j][i]) / div,  in: outer x r x inner, out: outer x splits x inner, chunks of `chunk` * `fold` rows.
// fold rows are read as one of `width` = fold * inner elements, a multiple of a vector. A block has a strip of `lanes` vectors of such rows, and strands of
// threads down them. The CLUSTER blocks of a cluster share a chunk; the first adds up their sums in order. If fold is above 1, a strip has all of a row.
// fold and lanes are powers of two, lanes at most 32. If r is no multiple of fold, outer is 1.
template <typename In, typename Out, int CLUSTER>
__device__ __forceinline__ void sum_strip(const In* __restrict__ in, Out* __restrict__ out, long long r, int inner, long long chunk, int splits, int fold, int lanes,
                                          int strips, double div) {
    extern __shared__ __align__(16) double strands[];  // [blockDim.x / 32][columns], then, in a cluster, [CLUSTER][columns]
    constexpr int W = Vec<In>::width, FLIGHT = 8;
    const int t = threadIdx.x, warps = blockDim.x / 32, columns = lanes * W, lane = t & (lanes - 1), log = __ffs(lanes) - 1, strand = t >> log, step = blockDim.x >> log;
    double* const inbox = strands + warps * columns;
    __shared__ u64 full;
    const unsigned rank = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0, id = blockIdx.x / CLUSTER;
    if (CLUSTER > 1) open_inbox(&full, rank == 0 ? CLUSTER * columns * (int)sizeof(double) : 0);
    admit();
    follow();
    const unsigned part = id / strips;
    const long long width = (long long)fold * inner, rows = r >> (__ffs(fold) - 1), each = (chunk + CLUSTER - 1) / CLUSTER;
    const long long first = part % splits * chunk + rank * each, end = min(min(rows, (part % splits + 1) * chunk), first + each);
    const int col = (id % strips * lanes + lane) * W;
    const In* p = in + part / splits * r * inner + col;
    double acc[W] = {};
    if (col < width) {
#pragma unroll 1
        for (long long j = first + strand; j < end; j += FLIGHT * step) {
            Pack<In> x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
                x[f].v = j + f * step < end ? *reinterpret_cast<const typename Vec<In>::type*>(p + (j + f * step) * width) : typename Vec<In>::type{};
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                for (int k = 0; k < W; k++) acc[k] += (double)x[f].s[k];
        }
        if (fold > 1 && part % splits == splits - 1 && rank == CLUSTER - 1 && strand == 0) {  // the last rows, fewer than fold
            const int left = (int)(r - rows * fold) * inner;
#pragma unroll
            for (int k = 0; k < W; k++)
                if (col + k < left) acc[k] += (double)p[rows * width + k];
        }
    }
    for (int d = 16; d >= lanes; d /= 2)
#pragma unroll
        for (int k = 0; k < W; k++) acc[k] += __shfl_down_sync(0xffffffffu, acc[k], d);
    if (t % 32 < lanes)
#pragma unroll
        for (int k = 0; k < W; k++) strands[t / 32 * columns + lane * W + k] = acc[k];
    __syncthreads();
    double sum = 0;
    if (t < columns)
#pragma unroll 8
        for (int w = 0; w < warps; w++) sum += strands[w * columns + t];
    if (CLUSTER > 1) {
        cluster_wait();  // all blocks have begun
        const double next = __shfl_down_sync(0xffffffffu, sum, 1);
        if (t < columns && t % 2 == 0) send(0, reinterpret_cast<double2*>(inbox + rank * columns + t), make_double2(sum, next), &full);
        if (rank > 0) return;
        await_inbox(&full);
        sum = 0;
        if (t < columns)
#pragma unroll
            for (int c = 0; c < CLUSTER; c++) sum += inbox[c * columns + t];
    }
    if (fold > 1) {  // `strands` of this block are read by its own threads alone
        __syncthreads();
        if (t < columns) strands[t] = sum;
        __syncthreads();
        sum = 0;
        if (t < inner)
            for (int f = 0; f < fold; f++) sum += strands[f * inner + t];
    }
    const long long at = (long long)(id % strips) * columns + t;
    if (t < columns && at < inner) out[part * (long long)inner + at] = (Out)(div == 1 ? sum : sum / div);
}

// 64 registers are too few for two blocks of 512 threads from 10.0 on.
#if __CUDA_ARCH__ >= 1000
#define STRIP_BLOCKS 1
#else
#define STRIP_BLOCKS 2
#endif

#define STRIP(NAME, IN, OUT)                                                                                              \
    extern "C" __global__ void __launch_bounds__(512, STRIP_BLOCKS)                                                                  \
        sum_strip_##NAME(const IN* in, OUT* out, long long r, int inner, long long chunk, int splits, int fold, int lanes, \
                         int strips, double div) {                                                                        \
        sum_strip<IN, OUT, 1>(in, out, r, inner, chunk, splits, fold, lanes, strips, div);                                \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(512, STRIP_BLOCKS) IN_CLUSTER                                                       \
        sum_joined_##NAME(const IN* in, OUT* out, long long r, int inner, long long chunk, int splits, int fold, int lanes, \
                          int strips, double div) {                                                                       \
        ON_CLUSTERS(sum_strip<IN, OUT, 8>(in, out, r, inner, chunk, splits, fold, lanes, strips, div);)                   \
    }

STRIP(f32, float, float)
STRIP(f32_f64, float, double)
STRIP(f64, double, double)
STRIP(f64_f32, double, float)
