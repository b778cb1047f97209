// Convolution on the tensor cores of compute capability 9.0 (implicit GEMM): wgmma fed by TMA, which gathers windows of images in its im2col mode.
//
//	out[b][f][q] = sum over taps i and channels c of filters[f][i][c] images[b][q stride - pad + i dilation][c]
//
// prepare writes images and filters with their channels contiguous, in a form of the products of matmul_hopper.cu: BF16, float32 that TMA rounds to TF32, or three BF16 matrices
// that add up to float32 numbers (split). Outputs and gradients w.r.t. images are tiles (Pixels) of 128 filters x BN pixels, K slices of a tap and BK channels each. TMA makes zeros of channels
// beyond the last and of what is outside of the images. Rows of a tile are contiguous pixels, as in the result. Gradients w.r.t. filters are tiles (Taps) of filters x channels of taps, whose
// terms are pixels.
//
// Splits hold numbers of most ranges (Scales). For those that would need scaling, the kernel sets `fallback` and computes nothing, and a kernel of conv.cu, launched after it, computes
// the result.
#include "follow.cuh"
#include "matmul_output.cuh"
#include "windows.cuh"

extern __shared__ unsigned char dynamic[];

// Other devices have other instructions: the entry points are empty there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__
#else
#define BODY(...)
#endif

// ---- Preparing operands

// Planes is an operand: `count` matrices of rows x cols elements, and where they are written transposed, rows of pitch elements, a multiple of 16 bytes. Matrices of a split are as
// far apart as all matrices. Columns are pixels of an image of `width`. Of those, each stepY-th row and each stepX-th column is written: lines of `wide` pixels, from `before` pixels of
// zeros before the row on.
struct Planes {
    const float* x;
    void* to;
    int count, rows, cols, pitch, width, lines, wide, before, stepY, stepX;
};

enum Kind { SPLIT, HALF, WIDE };

// prepare moves squares of 64 x 64 elements through shared memory. It returns the range of the numbers that the block has read.
template <Kind KIND> __device__ __forceinline__ Range prepare(const Planes& p) {
    constexpr int SIDE = 64, THREADS = 256, EACH = SIDE * SIDE / THREADS;
    __shared__ float square[SIDE][SIDE + 1];
    const int cols = p.lines * p.wide; // as written
    const int across = (cols + SIDE - 1) / SIDE, down = (p.pitch + SIDE - 1) / SIDE, lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    const i64 plane = (i64)p.count * cols * p.pitch;
    Range range;
    for (i64 i = blockIdx.x; i < (i64)across * down * p.count; i += gridDim.x) {
        const int matrix = i / (across * down), in = i % (across * down), row0 = in / across * SIDE, col0 = in % across * SIDE;
        const int y = (col0 + lane) / p.wide, x = (col0 + lane - y * p.wide) * p.stepX - p.before;
        const bool inside = col0 + lane < cols && x >= 0 && x < p.width;
        const float* const from = p.x + (i64)matrix * p.rows * p.cols + y * p.stepY * p.width + x;
        float v[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int row = row0 + line + u * (THREADS / SIDE);
            v[u] = inside && row < p.rows ? from[(i64)row * p.cols] : 0;
        }
        __syncthreads(); // all have read the square before
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            square[line + u * (THREADS / SIDE)][lane] = v[u];
            if (KIND == SPLIT) range.add(v[u]);
        }
        __syncthreads();
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int row = threadIdx.x % 8 * 8, col = threadIdx.x / 8 + u * 32;
            if (col0 + col >= cols || row0 + row >= p.pitch) continue;
            float o[8];
#pragma unroll
            for (int e = 0; e < 8; e++) o[e] = square[row + e][col];
            const i64 at = ((i64)matrix * cols + col0 + col) * p.pitch + row0 + row;
            if constexpr (KIND == SPLIT) {
                write(o, 1, false, static_cast<u16*>(p.to) + at, plane);
            } else if constexpr (KIND == HALF) {
                *reinterpret_cast<uint4*>(static_cast<u16*>(p.to) + at) = make_uint4(bf16x2(o[0], o[1]), bf16x2(o[2], o[3]), bf16x2(o[4], o[5]), bf16x2(o[6], o[7]));
            } else {
                float4* const to = reinterpret_cast<float4*>(static_cast<float*>(p.to) + at);
                to[0] = make_float4(o[0], o[1], o[2], o[3]);
                if (row0 + row + 4 < p.pitch) to[1] = make_float4(o[4], o[5], o[6], o[7]);
            }
        }
    }
    return range;
}

// prepare_ranges writes the range of each block, too, and clears what the kernel after it counts arrivals in.
template <Kind KIND> __device__ __forceinline__ void prepare_ranges(const Planes& p, uint2* ranges, int* arrivals, int count) {
    follow();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) arrivals[i] = 0;
    Range range = prepare<KIND>(p);
    admit();
    if (KIND != SPLIT) return;
    range.join();
    if (threadIdx.x == 0) ranges[blockIdx.y * gridDim.x + blockIdx.x] = range.packed();
}
// Blocks (x, 0) prepare the first operand, blocks (x, 1) the second.
#define OF(name) (blockIdx.y == 0 ? name##A : name##B)
#define PLANES(name) const float *x##name, void *to##name, int count##name, int rows##name, int cols##name, int pitch##name, int width##name, int lines##name, int wide##name, int before##name, \
    int stepY##name, int stepX##name
#define PREPARE(name, KIND)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) conv_hopper_prepare_##name(PLANES(A), PLANES(B), uint2* ranges, int* arrivals, int count) {      \
        BODY(prepare_ranges<KIND>({OF(x), OF(to), OF(count), OF(rows), OF(cols), OF(pitch), OF(width), OF(lines), OF(wide), OF(before), OF(stepY), OF(stepX)}, ranges, arrivals, count);)                \
    }
PREPARE(split, SPLIT)
PREPARE(bf16, HALF)
PREPARE(tf32, WIDE)

// ---- Windows

// Windows says how pixels and taps meet elements of images, and where pixels are in a result.
struct Windows {
    int channels, columns, taps; // columns: taps of a row
    int strideY, strideX, padY, padX, dilationY, dilationX;
    int images, first, down, across; // the filters' tap of the first tap here, and from a row and a column to the next
    Divide pixels, width; // of an image
    i64 image;            // elements of the result between images,
    int filter, row, column;

    // copy starts the copy of channels of a tap of the windows of a box of pixels, from one on.
    __device__ __forceinline__ void copy(u32 to, const TensorMap* map, u32 bar, int plane, int pixel, int channel, int i, int j) const {
        const int b = pixels(pixel), rest = pixel - b * pixels.d, y = width(rest), x = rest - y * width.d;
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to), "l"(map), "r"(bar),
                     "r"(channel), "r"(x * strideX - padX), "r"(y * strideY - padY), "r"(b + plane * images), "h"((u16)(j * dilationX)), "h"((u16)(i * dilationY))
                     : "memory");
    }
};

// Narrow tiles have 64 rows: both warpgroups multiply the same rows of A, each by its own half of B. The three stages are those of a kind of 128 rows, of which two share memory for A.
template <int TA, int TB> struct Stages<Six<TA, TB, 0>> {
    using K = Six<TA, TB, 0>;
    static constexpr int STAGES = 3, SHARED_A = K::A::BYTES;
    Ring<STAGES> at;
    u32 full, empty;
    u32 memory;
    int group, line;

    static __device__ __forceinline__ u32 a_of(u32 memory, int stage) { return memory + stage / 2 * SHARED_A + stage % 2 * (K::A::PLANE / 2); }
    static __device__ __forceinline__ u32 b_of(u32 memory, int stage, int group) { return memory + 2 * SHARED_A + (2 * stage + group) * K::B::BYTES; }
    __device__ __forceinline__ void wait() { barrier_wait(full + at.stage * 8, at.parity); }
    __device__ __forceinline__ u64 a() const { return K::A::descriptor(a_of(memory, at.stage), 0); }
    __device__ __forceinline__ u64 b() const { return K::B::descriptor(b_of(memory, at.stage, group), 0); }
    __device__ __forceinline__ void release(int stage) {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage * 8, 0);
    }
};

// Layout is where a stage's operands are: those of M rows by N columns of a kind's tiles.
template <typename K> struct Layout {
    static constexpr int M = 128, N = K::BN, STAGES = K::STAGES, BYTES = K::STAGE, ALL = STAGES * K::STAGE;
    static constexpr int ROWS = 64, COLUMNS = 0; // to the second warpgroup's part of the tile
    static __device__ __forceinline__ u32 a(u32 memory, int stage, int plane) { return memory + stage * K::STAGE + plane * K::A::PLANE; }
    static __device__ __forceinline__ u32 b(u32 memory, int stage, int plane, int) { return memory + stage * K::STAGE + K::A::BYTES + plane * K::B::PLANE; }
};
template <int TA, int TB> struct Layout<Six<TA, TB, 0>> {
    using S = Stages<Six<TA, TB, 0>>;
    using K = typename S::K;
    static constexpr int M = 64, N = 2 * K::BN, STAGES = S::STAGES, BYTES = K::A::BYTES / 2 + 2 * K::B::BYTES, ALL = 2 * S::SHARED_A + 2 * STAGES * K::B::BYTES;
    static constexpr int ROWS = 0, COLUMNS = K::BN;
    static __device__ __forceinline__ u32 a(u32 memory, int stage, int plane) { return S::a_of(memory, stage) + plane * K::A::PLANE; }
    static __device__ __forceinline__ u32 b(u32 memory, int stage, int plane, int half) { return S::b_of(memory, stage, half) + plane * K::B::PLANE; }
};

// Pixels are the tiles of outputs and images: filters by pixels.
template <typename K_> struct Pixels {
    using K = K_;
    using L = Layout<K>;
    static constexpr bool NON_FINITE = true;
    const TensorMap *filters, *images;
    float* out;
    int m, n;
    Windows w;
    int m0, n0, channel, i, j;

    __device__ __forceinline__ int tiles() const { return (m + L::M - 1) / L::M * ((n + L::N - 1) / L::N); }
    __device__ __forceinline__ int terms() const { return (w.channels + K::BK - 1) / K::BK * K::BK * w.taps; }
    // begin begins a tile at a K slice, and returns the tile's slices.
    __device__ __forceinline__ int begin(int tile, int slice) {
        const int down = (m + L::M - 1) / L::M, slices = (w.channels + K::BK - 1) / K::BK, at = slice / slices;
        m0 = tile % down * L::M, n0 = tile / down * L::N;
        channel = (slice - at * slices) * K::BK, i = at / w.columns, j = at - i * w.columns;
        return slices * w.taps;
    }
    // fetch starts the copies of the tile's next slice.
    __device__ __forceinline__ void fetch(u32 memory, int stage, u32 bar) {
#pragma unroll
        for (int p = 0; p < K::PLANES; p++) {
            ::fetch<false>(L::a(memory, stage, p), filters, bar, channel, w.first + i * w.down + j * w.across, m0, p, 0);
#pragma unroll
            for (int half = 0; half < L::N / K::BN; half++) w.copy(L::b(memory, stage, p, half), images, bar, p, n0 + half * K::BN, channel, i, j);
        }
        if ((channel += K::BK) < w.channels) return;
        channel = 0;
        if (++j == w.columns) j = 0, i++;
    }
    // store writes a warp's 16 rows, from a row and a column of the tile on.
    __device__ __forceinline__ void store(const K& sums, int row, int column, float* memory) const {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int part = 0; part < K::BN / 32; part++) {
            bring(sums, Exponents(), part, memory);
            const int pixel = n0 + column + part * 32 + lane;
            if (pixel >= n) continue;
            const int b = w.pixels(pixel), rest = pixel - b * w.pixels.d, y = w.width(rest), x = rest - y * w.width.d;
            float* const to = out + b * w.image + (i64)(m0 + row) * w.filter + y * w.row + x * w.column;
#pragma unroll
            for (int r = 0; r < 16; r++)
                if (m0 + row + r < m) to[(i64)r * w.filter] = memory[r * Part::LD + lane];
        }
    }
};

// Taps are the tiles of filters: filters by blocks of 64 channels of a tap, of the terms of a split. Sums of splits are [split][m][n], n of 64 for each block.
template <typename K_> struct Taps {
    using K = K_;
    using L = Layout<K>;
    static constexpr bool NON_FINITE = false; // after the last pixel, windows are those of the next matrix of a split, to be multiplied by 0
    const TensorMap *filters, *images;
    float* out;
    int m, n, chunk; // pixels of a split
    Windows w;
    int m0, n0, split, pixel;

    __device__ __forceinline__ int tiles() const { return (m + L::M - 1) / L::M * ((n + L::N - 1) / L::N) * ((terms() + chunk - 1) / chunk); }
    __device__ __forceinline__ int terms() const { return w.images * w.pixels.d; }
    __device__ __forceinline__ int begin(int tile, int slice) {
        const int down = (m + L::M - 1) / L::M, across = (n + L::N - 1) / L::N;
        m0 = tile % down * L::M, n0 = tile / down % across * L::N, split = tile / down / across;
        const int slices = (min(terms() - split * chunk, chunk) + K::BK - 1) / K::BK;
        pixel = split * chunk + slice * K::BK;
        return slices;
    }
    __device__ __forceinline__ void fetch(u32 memory, int stage, u32 bar) {
        const int each = (w.channels + 63) / 64;
#pragma unroll
        for (int p = 0; p < K::PLANES; p++)
#pragma unroll
            for (int u = 0; u < L::M / 64; u++) ::fetch<false>(L::a(memory, stage, p) + u * K::BK * 128, filters, bar, m0 + u * 64, pixel, p, 0, 0);
#pragma unroll 1
        for (int u = 0; u < L::N / 64; u++) {
            const int block = min(n0 / 64 + u, n / 64 - 1), tap = block / each, channel = (block - tap * each) * 64, i = tap / w.columns, j = tap - i * w.columns;
#pragma unroll
            for (int p = 0; p < K::PLANES; p++) w.copy(L::b(memory, stage, p, u * 64 / K::BN) + u * 64 % K::BN * K::BK * 2, images, bar, p, pixel, channel, i, j);
        }
        pixel += K::BK;
    }
    __device__ __forceinline__ void store(const K& sums, int row, int column, float* memory) const {
        const int first = n0 + column + threadIdx.x % 32;
#pragma unroll 1
        for (int part = 0; part < K::BN / 32; part++) {
            bring(sums, Exponents(), part, memory);
            float* const to = out + ((i64)split * m + m0 + row) * n + first + part * 32;
            if (first + part * 32 >= n) continue;
#pragma unroll
            for (int r = 0; r < 16; r++)
                if (m0 + row + r < m) to[(i64)r * n] = memory[r * Part::LD + threadIdx.x % 32];
        }
    }
};

// ---- Blocks

// range_of is the range of numbers that count blocks have found, in all threads of a block.
__device__ __forceinline__ Range range_of(const uint2* ranges, int count) {
    __shared__ uint2 warps[12];
    Range range;
    for (int i = threadIdx.x; i < count; i += blockDim.x) range.add(ranges[i]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) range.exchange(d);
    range.finite = __all_sync(0xffffffff, range.finite);
    __syncthreads(); // all have read the last one
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = range.packed();
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) range.add(warps[w]);
    return range;
}

// Order is the order of a block's tiles: of kinds whose blocks share no tiles, each gridDim.x-th one.
template <typename K, bool SHARED = K::SHARED> struct Order : Walk<K::BK> {
    __device__ Order(const Shares& shares, int count, int terms) : Walk<K::BK>(shares, count, terms, 1) {}
};
template <typename K> struct Order<K, false> {
    int tile, count;
    __device__ Order(const Shares&, int count, int) : tile(blockIdx.x), count(count) {}
    __device__ __forceinline__ bool next(Section& p) {
        p = {tile, 0, 0, 0, 1, 0};
        tile += gridDim.x;
        return p.tile < count;
    }
};

// run runs a block: one producer warp and two consumer warpgroups, as in matmul_hopper.cu. Ranges are those of both operands, of `blocks` blocks each. Blocks share tiles of splits alone
// (stream-K).
template <typename Work> __device__ __forceinline__ void run(Work work, const uint2* ranges, int blocks, int* fallback, const Shares& shares) {
    using K = typename Work::K;
    using L = typename Work::L;
    constexpr int STAGES = L::STAGES;
    const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, full = start, empty = start + STAGES * 8, memory = start + 1024;
    if (threadIdx.x == 0) {
        map_ahead(work.filters), map_ahead(work.images);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 8); // the consumers' warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    follow();
    int form = Scaling::PLAIN;
    if (K::PLANES == 3) {
        const Range range[2] = {range_of(ranges, blocks), range_of(ranges + blocks, blocks)};
        const Scales scales(range, true, 0);
        const bool scaled = scales.lines >= 0 || !Work::NON_FINITE && scales.form != Scaling::PLAIN;
        if (blockIdx.x == 0 && threadIdx.x == 0) *fallback = scaled;
        if (scaled) return;
        form = scales.form == Scaling::PLAIN && work.terms() < 448 ? (int)Scaling::APART : scales.form; // see Six::form
    }
    Order<K> order(shares, work.tiles(), work.terms());
    const int group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) {
            Ring<STAGES> at;
#pragma unroll 1
            for (Section part; order.next(part);) {
                int steps = work.begin(part.tile, part.k0 / K::BK);
                if (part.steps > 0) steps = part.steps;
#pragma unroll 1
                for (int l = 0; l < steps; l++, at.next()) {
                    barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(full + at.stage * 8, L::BYTES);
                    work.fetch(memory, at.stage, full + at.stage * 8);
                }
            }
        }
        __syncwarp();
    } else {
        registers_up<232>();
        const int number = group - 1;
        Stages<K> stages{{}, full, empty, memory, number, number * 64};
        float* const own = reinterpret_cast<float*>(dynamic + (memory - shared_address(dynamic)) + L::ALL) + (threadIdx.x / 32 - 4) * Part::SIZE;
        if (K::TURNS && number == 1) turn_pass(1);
#pragma unroll 1
        for (Section part; order.next(part);) {
            int steps = work.begin(part.tile, 0);
            if (part.steps > 0) steps = part.steps;
            K sums;
            sums.run(stages, steps, form);
            if constexpr (K::SHARED) {
                if (part.parts > 1 && !gather<2>(sums.sum, shares, part, number, number)) continue;
            }
            work.store(sums, number * L::ROWS + threadIdx.x % 128 / 32 * 16, number * L::COLUMNS, own);
        }
        if (K::TURNS && number == 0) turn_wait(0);
    }
}

#define WINDOWS                                                                                                                                         \
    int channels, int columns, int taps, int strideY, int strideX, int padY, int padX, int dilationY, int dilationX, int images, int first, int down, int across, DIVIDE(pixels), \
        DIVIDE(width), i64 image, int filter, int row, int column
#define WINDOWS_OF                                                                                                                                      \
    {channels, columns, taps, strideY, strideX, padY, padX, dilationY, dilationX, images, first, down, across, DIVIDE_OF(pixels), DIVIDE_OF(width), image, filter, row, column}
#define MAPS const __grid_constant__ TensorMap filters, const __grid_constant__ TensorMap pictures
#define SHARES int shared, float *parts, int *arrivals
#define PIXELS(name, ...)                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(384, 1) conv_hopper_##name(MAPS, float* out, const uint2* ranges, int blocks, int* fallback, SHARES, int m, int n, int chunk, WINDOWS) { \
        BODY(run(Pixels<__VA_ARGS__>{&filters, &pictures, out, m, n, WINDOWS_OF}, ranges, blocks, fallback, {shared, parts, arrivals});)                                           \
    }
#define TAPS(name, ...)                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(384, 1) conv_hopper_filters_##name(MAPS, float* out, const uint2* ranges, int blocks, int* fallback, SHARES, int m, int n, int chunk, WINDOWS) { \
        BODY(run(Taps<__VA_ARGS__>{&filters, &pictures, out, m, n, chunk, WINDOWS_OF}, ranges, blocks, fallback, {shared, parts, arrivals});)                                      \
    }
PIXELS(f32, Six<0, 0, 1>)
PIXELS(f32_narrow, Six<0, 0, 0>)
PIXELS(bf16, Plain<0, 0, 2, 256, 1>)
PIXELS(bf16_one, Plain<0, 0, 2, 128, 1>)
PIXELS(tf32, Plain<0, 0, 4, 256, 1>)
PIXELS(tf32_one, Plain<0, 0, 4, 128, 1>)
TAPS(f32, Six<1, 1, 1>)
TAPS(f32_narrow, Six<1, 1, 0>)
TAPS(bf16, Plain<1, 1, 2, 256, 1>)
TAPS(bf16_one, Plain<1, 1, 2, 128, 1>)

// conv_hopper_clear writes zeros, of images of which no tap meets some pixels.
extern "C" __global__ void __launch_bounds__(256) conv_hopper_clear(float* out, i64 count) {
    follow();
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) out[i] = 0;
    admit();
}

// ---- Filters

// conv_hopper_sum writes filters[f][channel][tap], count elements of m filters, from sums [split][m][n], see Taps. `inner` taps side by side are blocks of 64 channels together,
// with pitch channels each. Guarded, it writes nothing where `fallback` is set.
__device__ __forceinline__ void sum_splits(const float* sums, float* out, int m, int n, int splits, const int* fallback, int guarded, const Divide& taps, const Divide& channels, const Divide& inner,
                                           int pitch) {
    follow();
    if (guarded && *fallback) return;
    const int padded = (inner.d * pitch + 63) / 64 * 64, count = m * channels.d * taps.d;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int line = taps(i), tap = i - line * taps.d, f = channels(line), channel = line - f * channels.d, outer = inner(tap);
        const float* p = sums + (i64)f * n + outer * padded + (tap - outer * inner.d) * pitch + channel;
        float sum = *p;
        for (int s = 1; s < splits; s++) sum += p[(i64)s * m * n];
        out[i] = sum;
    }
    admit();
}
extern "C" __global__ void __launch_bounds__(256)
    conv_hopper_sum(const float* sums, float* out, int m, int n, int splits, const int* fallback, int guarded, DIVIDE(taps), DIVIDE(channels), DIVIDE(inner), int pitch) {
    BODY(sum_splits(sums, out, m, n, splits, fallback, guarded, DIVIDE_OF(taps), DIVIDE_OF(channels), DIVIDE_OF(inner), pitch);)
}
