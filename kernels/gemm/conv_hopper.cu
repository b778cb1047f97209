// Convolution on the tensor cores of compute capability 9.0 (implicit GEMM): wgmma fed by TMA, which gathers windows of images in its im2col mode.
//
//	out[b][f][q] = sum over taps i and channels c of filters[f][i][c] images[b][q stride - pad + i dilation][c]
//
// prepare writes images and filters with their channels contiguous, in a form of the products of matmul_hopper.cu: BF16, F16, float32 that TMA rounds to TF32, or three BF16 matrices
// that add up to float32 numbers (split). Outputs and gradients w.r.t. images are tiles (Pixels) of 128 filters x BN pixels, K slices of a tap and BK channels each. TMA makes zeros of channels
// beyond the last and of what is outside of the images. Rows of a tile are contiguous pixels, as in the result. Gradients w.r.t. filters are tiles (Taps) of filters x channels of taps, whose
// terms are pixels; in TF32 one operand is transposed in shared memory (Turned). Where one block has all terms of a tile, it may write filters, else sums that conv_hopper_sum adds up.
//
// Small groups are multiplied as one, with zeros for the channels of other groups. Numbers of images that are not finite would meet these zeros: then `fallback` is set, too.
// Splits hold numbers of most ranges (Scales). For those that would need scaling, the kernel sets `fallback` and computes nothing, and a kernel of conv.cu, launched after it, computes
// the result.
//stheno:targets sm_90a ptx
#include "conv_kinds.cuh"
#include "conv_prepare.cuh"
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

// prepare_ranges writes the range of each block, too, and clears what the kernel after it counts arrivals in.
template <Kind KIND> __device__ __forceinline__ void prepare_ranges(const Planes& p, uint2* ranges, int* arrivals, int count) {
    follow();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) arrivals[i] = 0;
    __shared__ float memory[SQUARES * SQUARE_FLOATS];
    const bool lines = p.cols < SIDE && p.lines == 1 && p.wide == p.cols && p.stepX == 1 && p.before == 0;
    const bool plain = p.cols == 1 && p.count == 1 && p.rows == p.pitch && p.wide == 1 && p.lines == 1;
    Range range = plain ? prepare_plain<KIND>(p) : p.pitch <= 8 ? prepare_few<KIND>(p) : lines ? prepare_lines<KIND>(p, memory) : prepare<KIND>(p, memory);
    admit();
    if (KIND != SPLIT && !p.ranged) return;
    range.join();
    if (threadIdx.x == 0) ranges[blockIdx.y * gridDim.x + blockIdx.x] = range.packed();
}
// Blocks (x, 0) prepare the first operand, blocks (x, 1) the second.
#define OF(name) (blockIdx.y == 0 ? name##A : name##B)
#define PLANES(name) const float *x##name, void *to##name, int count##name, int rows##name, int cols##name, int pitch##name, int width##name, int lines##name, int wide##name, int before##name, \
    int stepY##name, int stepX##name, int groups##name, int after##name, int per##name, int blocks##name
#define PREPARE(name, KIND)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 5) conv_hopper_prepare_##name(PLANES(A), PLANES(B), uint2* ranges, int* arrivals, int count, int ranged) {      \
        BODY(prepare_ranges<KIND>({OF(x), OF(to), OF(count), OF(rows), OF(cols), OF(pitch), OF(width), OF(lines), OF(wide), OF(before), OF(stepY), OF(stepX), OF(groups), OF(after), OF(per), OF(blocks), ranged}, ranges, arrivals, count);)                \
    }
PREPARE(split, SPLIT)
PREPARE(bf16, HALF)
PREPARE(f16, HALF_F16)
PREPARE(tf32, WIDE)

// uniform returns a value that all threads of a warp have. The compiler then knows that they have the same one, and that they stay together in branches on it, so it keeps wgmma's descriptors in uniform registers.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

// warpgroup_sync waits for the threads of a consumer's warpgroup.
__device__ __forceinline__ void warpgroup_sync() { asm volatile("bar.sync %0, 128;" ::"r"(threadIdx.x / 128 + 4) : "memory"); }

// ---- Windows

// Phases are those of an axis of images whose gradient is computed: pixels at a distance of the stride meet the same taps. Phase k meets tap k, and each every-th after it. Its first window begins
// `most` elements before the first output; `step` is from one tap's element to the next.
struct Phases {
    int count, stride, dilation, pad, size, every, step, most, in;
    struct Phase {
        int taps, offset, first, at; // offset: the element of the first tap in a window, which is the last one of the filter; at: the first pixel
    };
    __device__ __forceinline__ Phase phase(int k) const {
        const int from = k * dilation - pad, at = (from % stride + stride) % stride, taps = (size - k + every - 1) / every;
        return {taps, most - (taps - 1) * step + (at - from) / stride, k + (taps - 1) * every, at};
    }
    __device__ __forceinline__ int pixels(int at) const { return (in - at + stride - 1) / stride; }
};

// Windows says how pixels and taps meet elements of images, and where pixels are in a result.
struct Windows {
    int channels, columns, taps; // columns: taps of a row
    int strideY, strideX, padY, padX, dilationY, dilationX;
    int images, groups, group, plane; // of a group; from a group and from a matrix of a split to the next
    int first, down, across;          // the filters' tap of the first tap here, and from a row and a column to the next
    Divide pixels, width; // of an image
    i64 image;            // elements of the result between images,
    int filter, row, column;
    int merged; // whether groups are multiplied as one, whose zeros times numbers that are not finite are NaN
    int how;    // to write it: LAST has channels last; SPACED pixels are two elements apart, with a 0 between them; DIRECT sums are the filters
    Phases phasesY, phasesX; // `first` is the taps of a row of the filter if there are several
    enum { LAST = 1, SPACED, DIRECT };
    __device__ __forceinline__ int phases() const { return phasesY.count * phasesX.count; }

    // Corner is the element that the first tap of a pixel meets.
    struct Corner {
        int x, y, image;
    };
    __device__ __forceinline__ Corner corner(int pixel, int of) const {
        const int b = pixels(pixel), rest = pixel - b * pixels.d, y = width(rest), x = rest - y * width.d;
        return {x * strideX - padX, y * strideY - padY, b + of * group};
    }
    // copy starts the copy of channels of a tap, which is offsets from the first one, of the windows of a box of pixels.
    __device__ __forceinline__ void copy(u32 to, const TensorMap* map, u32 bar, int matrix, const Corner& at, int channel, int offsetY, int offsetX) const {
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to), "l"(map), "r"(bar),
                     "r"(channel), "r"(at.x), "r"(at.y), "r"(at.image + matrix * plane), "h"((u16)offsetX), "h"((u16)offsetY)
                     : "memory");
    }
};

// Pixels are the tiles of outputs and images: filters by pixels.
template <typename K_> struct Pixels {
    using K = K_;
    using L = Layout<K>;
    static constexpr bool NON_FINITE = true, SHARED = K::BN == 128 && L::BLOCKS == 1;
    const TensorMap *filters, *images;
    float* out;
    int m, n, chunk; // chunk: tiles of pixels that have all phases, one after the other
    Windows w;
    int m0, n0, group, channel, i, j, tap, phase, columns, offsetY, offsetX; // tap: of filters
    typename Windows::Corner corner[L::N / K::BN];

    __device__ __forceinline__ int tiles() const { return (m + L::M - 1) / L::M * ((n + L::N - 1) / L::N) * w.groups * w.phases(); }
    __device__ __forceinline__ int terms() const { return (w.channels + K::BK - 1) / K::BK * K::BK * w.taps; }
    // begin begins a tile at a K slice, and returns the tile's slices.
    __device__ __forceinline__ int begin(int tile, int slice) {
        const int down = (m + L::M - 1) / L::M, pixels = (n + L::N - 1) / L::N, slices = (w.channels + K::BK - 1) / K::BK, at = slice / slices, phases = w.phases();
        m0 = tile % down * L::M, tile /= down, group = tile / (pixels * phases), tile -= group * (pixels * phases);
        int taps = w.taps;
        columns = w.columns, offsetY = offsetX = phase = 0, tap = w.first;
        if (phases > 1) {
            const int from = tile / (chunk * phases) * chunk, each = min(chunk, pixels - from);
            tile -= from * phases, phase = tile / each, tile += from - phase * each;
            const Phases::Phase y = w.phasesY.phase(phase / w.phasesX.count), x = w.phasesX.phase(phase % w.phasesX.count);
            taps = y.taps * x.taps, columns = x.taps, offsetY = y.offset, offsetX = x.offset, tap = y.first * w.first + x.first;
        }
        n0 = tile * L::N, channel = (slice - at * slices) * K::BK, i = at / columns, j = at - i * columns, tap += i * w.down + j * w.across;
        return slices * taps;
    }
    __device__ __forceinline__ int bytes() const { return L::BYTES; }
    // prepare computes what all copies of the tile share, fetch starts the copies of its next slice, and bytes returns the bytes of a slice.
    __device__ __forceinline__ void prepare() {
#pragma unroll
        for (int half = 0; half < L::N / K::BN; half++) corner[half] = w.corner(n0 + half * K::BN, group);
    }
    __device__ __forceinline__ void fetch(u32 memory, int stage, u32 bar) {
#pragma unroll
        for (int p = 0; p < K::PLANES; p++) {
            ::fetch<false>(L::a(memory, stage, p), filters, bar, channel, tap, m0 + group * m, p, 0);
#pragma unroll
            for (int half = 0; half < L::N / K::BN; half++) w.copy(L::b(memory, stage, p, half), images, bar, p, corner[half], channel, offsetY + i * w.dilationY, offsetX + j * w.dilationX);
        }
        if ((channel += K::BK) < w.channels) return;
        channel = 0, tap += w.across;
        if (++j == columns) j = 0, i++, tap += w.down - columns * w.across;
    }
    // Place is where pixels of a tile are in a filter's part of the result.
    struct Place {
        int high, wide, origin; // pixels of the phase
    };
    __device__ __forceinline__ Place placing() const {
        if (w.phases() == 1) return {0x7fffffff, 0x7fffffff, 0};
        const int y = w.phasesY.phase(phase / w.phasesX.count).at, x = w.phasesX.phase(phase % w.phasesX.count).at;
        return {w.phasesY.pixels(y), w.phasesX.pixels(x), w.row / w.phasesY.stride * y + w.column / w.phasesX.stride * x};
    }
    // place is that of a pixel, -1 if there is none.
    __device__ __forceinline__ i64 place(const Place& of, int pixel) const {
        const int b = w.pixels(pixel), rest = pixel - b * w.pixels.d, y = w.width(rest), x = rest - y * w.width.d;
        return pixel < n && y < of.high && x < of.wide ? b * w.image + y * w.row + x * w.column + of.origin : -1;
    }
    // store writes a warpgroup's 64 rows, from a row and a column of the tile on.
    __device__ __forceinline__ void store(const K& sums, int row, int column, float* memory) const {
        const int t = threadIdx.x % 128, lane = t % 32;
        float* const out = this->out + (i64)group * m * w.filter;
        const Place of = placing();
        if (K::SIZE == 2 && K::PLANES == 1 && w.how == w.LAST) {
            store_last(sums, of, m0 + row, n0 + column, shared_address(memory));
            return;
        }
        row += m0 + t / 32 * 16;
        if (K::SIZE == 4 && w.how == w.LAST) {
            store_lines(sums, of, row, n0 + column, shared_address(memory) + t / 32 * L::STAGING);
            return;
        }
        if constexpr (L::BLOCKS == 2) {
            const bool pairs = w.column == 1 && w.width.d % 2 == 0 && w.row % 2 == 0 && w.filter % 2 == 0 && w.image % 2 == 0 && (reinterpret_cast<u64>(out) / 4 + of.origin) % 2 == 0;
            row += lane / 4;
#pragma unroll
            for (int i = 0; i < K::BN / 8; i++) {
                const int pixel = n0 + column + 8 * i + lane % 4 * 2;
                const i64 place0 = place(of, pixel), place1 = pairs ? place0 + 1 : place(of, pixel + 1);
                float* const to = out + (i64)row * w.filter;
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    if (row + 8 * r >= m) continue;
                    float* const at = to + (i64)(8 * r) * w.filter;
                    const float2 v = make_float2(sums.value(4 * i + 2 * r), sums.value(4 * i + 2 * r + 1));
                    if (pairs && place0 >= 0) *reinterpret_cast<float2*>(at + place0) = v;
                    if (!pairs && place0 >= 0) write(at + place0, v.x);
                    if (!pairs && place1 >= 0) write(at + place1, v.y);
                }
            }
            return;
        }
        memory += t / 32 * Part::SIZE;
#pragma unroll 1
        for (int part = 0; part < K::BN / 32; part++) {
            bring(sums, Exponents(), part, memory);
            const i64 at = place(of, n0 + column + part * 32 + lane);
            if (at < 0) continue;
            float* const to = out + at + (i64)row * w.filter;
#pragma unroll
            for (int r = 0; r < 16; r++)
                if (row + r < m) write(to + (i64)r * w.filter, memory[r * Part::LD + lane]);
        }
    }
    __device__ __forceinline__ void write(float* to, float x) const {
        if (w.how != w.SPACED) *to = x;
        else if (reinterpret_cast<u64>(to) % 8 == 0) *reinterpret_cast<float2*>(to) = make_float2(x, 0);
        else to[0] = x, to[1] = 0;
    }
    // store_lines writes a warp's 16 rows of float32 with channels last, some pixels at a time: lines of 64 bytes. The distance of lines, PITCH bytes, puts the threads of a store in different banks.
    __device__ __forceinline__ void store_lines(const K& sums, const Place& of, int row, int pixel, u32 memory) const {
        constexpr int PITCH = 16 * 4 + 16, SOME = L::BLOCKS == 2 ? 8 : 32;
        static_assert(SOME * PITCH <= L::STAGING, "lines fit in a quarter of the STAGING floats");
        const int lane = threadIdx.x % 32;
        const u32 to = memory + lane % 4 * 2 * PITCH + lane / 4 * 4, from = memory + lane / 4 * PITCH + lane % 4 * 16;
        row += lane % 4 * 4;
#pragma unroll
        for (int part = 0; part < K::BN; part += SOME) {
            __syncwarp();
#pragma unroll
            for (int i = 0; i < SOME / 2; i++)
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (i / 4 * 8 + i % 2) * PITCH + i / 2 % 2 * 32), "f"(sums.value(part / 2 + i)) : "memory");
            __syncwarp();
#pragma unroll
            for (int u = 0; u < SOME; u += 8) {
                const i64 at = place(of, pixel + part + u + lane / 4);
                float4 v;
                asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from + u * PITCH) : "memory");
                if (at >= 0 && row < m) *reinterpret_cast<float4*>(out + at + row) = v;
            }
        }
    }
    // store_last writes 16 bits with channels last, 32 pixels at a time: lines of 128 bytes.
    __device__ __forceinline__ void store_last(const K& sums, const Place& of, int row, int pixel, u32 memory) const {
        constexpr int PITCH = 64 * 2 + 16;
        const int t = threadIdx.x % 128, lane = t % 32, chunk = row + t % 8 * 8;
        const u32 to = memory + (lane % 8 + lane / 16 * 8) * PITCH + (t / 32 * 16 + lane / 8 % 2 * 8) * 2, from = memory + t / 8 * PITCH + t % 8 * 16;
#pragma unroll
        for (int part = 0; part < K::BN / 32; part++) {
            warpgroup_sync();
#pragma unroll
            for (int i = part * 16; i < part * 16 + 16; i += 8)
                asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + (i - part * 16) * 2 * PITCH), "r"(packed<K::F16>(sums.value(i), sums.value(i + 1))),
                             "r"(packed<K::F16>(sums.value(i + 2), sums.value(i + 3))), "r"(packed<K::F16>(sums.value(i + 4), sums.value(i + 5))), "r"(packed<K::F16>(sums.value(i + 6), sums.value(i + 7))) : "memory");
            warpgroup_sync();
#pragma unroll
            for (int u = 0; u < 2; u++) {
                const i64 at = place(of, pixel + part * 32 + t / 8 + 16 * u);
                uint4 v;
                asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from + 16 * u * PITCH) : "memory");
                if (at >= 0 && chunk < m) *reinterpret_cast<uint4*>(reinterpret_cast<u16*>(out) + at + chunk) = v;
            }
        }
    }
};

// Taps are the tiles of filters: filters by blocks of 64 channels of a tap, of the terms of a split. Sums of splits are [split][group][m][n], n of 64 for each block.
template <typename K_> struct Taps {
    using K = K_;
    using L = Layout<K>;
    static constexpr bool SHARED = K::SHARED, NON_FINITE = false; // after the last pixel, windows are those of the next matrix of a split, to be multiplied by 0
    const TensorMap *filters, *images;
    float* out;
    int m, n, chunk; // pixels of a split
    Windows w;
    int m0, n0, part, pixel; // pixel: of those of all groups
    int channel[L::N / 64], offsetY[L::N / 64], offsetX[L::N / 64]; // of blocks of 64 columns

    __device__ __forceinline__ int tiles() const { return (m + L::M - 1) / L::M * ((n + L::N - 1) / L::N) * w.groups * ((terms() + chunk - 1) / chunk); }
    __device__ __forceinline__ int terms() const { return w.images * w.pixels.d; }
    __device__ __forceinline__ int begin(int tile, int slice) {
        const int down = (m + L::M - 1) / L::M, across = (n + L::N - 1) / L::N;
        m0 = tile % down * L::M, n0 = tile / down % across * L::N, part = tile / down / across;
        const int split = part / w.groups, slices = (min(terms() - split * chunk, chunk) + K::BK - 1) / K::BK;
        pixel = (part - split * w.groups) * w.group * w.pixels.d + split * chunk + slice * K::BK;
        return slices;
    }
    __device__ __forceinline__ int blocks() const { return min((n - n0) / 64, L::N / 64); } // of 64 columns: what beyond them is multiplied is not stored
    __device__ __forceinline__ int bytes() const { return L::BYTES - (L::N / 64 - blocks()) * K::BK * 128 * K::PLANES; }
    __device__ __forceinline__ void prepare() {
        const int each = (w.channels + 63) / 64;
#pragma unroll
        for (int u = 0; u < L::N / 64; u++) {
            const int block = min(n0 / 64 + u, n / 64 - 1), tap = block / each, i = tap / w.columns;
            channel[u] = (block - tap * each) * 64, offsetY[u] = i * w.dilationY, offsetX[u] = (tap - i * w.columns) * w.dilationX;
        }
    }
    __device__ __forceinline__ void fetch(u32 memory, int stage, u32 bar) {
        const typename Windows::Corner corner = w.corner(pixel, 0);
#pragma unroll
        for (int p = 0; p < K::PLANES; p++) {
#pragma unroll
            for (int u = 0; u < L::M / 64; u++) ::fetch<false>(L::a(memory, stage, p) + u * K::BK * 128, filters, bar, m0 + u * 64, pixel, p, 0, 0);
#pragma unroll
            for (int u = 0; u < L::N / 64; u++)
                if (u < blocks()) w.copy(L::b(memory, stage, p, u * 64 / K::BN) + u * 64 % K::BN * K::BK * 2, images, bar, p, corner, channel[u], offsetY[u], offsetX[u]);
        }
        pixel += K::BK;
    }
    // place is that of a column in a filter of the result, -1 if there is none: see conv_hopper_sum. With DIRECT `first` taps are blocks together, of `across` channels each, of which a filter
    // has `down`, and a filter has `filter` taps.
    __device__ __forceinline__ int place(int column) const {
        if (column >= n) return -1;
        if (w.how != w.DIRECT) return column;
        const int each = (w.channels + 63) / 64, block = column / 64, outer = block / each, all = (block - outer * each) * 64 + column % 64, inner = all / w.across, channel = all - inner * w.across;
        return inner < w.first && channel < w.down ? channel * w.filter + outer * w.first + inner : -1;
    }
    __device__ __forceinline__ void store(const K& sums, int row, int column, float* memory) const {
        const int t = threadIdx.x % 128, lane = t % 32, width = w.how == w.DIRECT ? w.down * w.filter : n; // of a filter
        row += m0 + t / 32 * 16;
        float* const to = out + (i64)part * m * width;
        memory += t / 32 * Part::SIZE;
#pragma unroll 1
        for (int part = 0; part < K::BN / 32; part++) {
            bring(sums, Exponents(), part, memory);
            const int at = place(n0 + column + part * 32 + lane);
            if (at < 0) continue;
#pragma unroll
            for (int r = 0; r < 16; r++)
                if (row + r < m) to[(i64)(row + r) * width + at] = memory[r * Part::LD + lane];
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
template <typename K, bool SHARED> struct Order : Walk<K::BK> {
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

// Ranges are those that some blocks have found of an operand each.
struct Ranges {
    const uint2* ranges;
    int blocks;
};

// run runs a block: one producer warp and two consumer warpgroups, as in matmul_hopper.cu. Blocks share tiles of kinds whose warpgroups
// have 64 x 128 sums (stream-K).
template <typename Work> __device__ __forceinline__ void run(Work work, const Ranges& a, const Ranges& b, int* fallback, const Shares& shares) {
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
    if (work.w.merged && K::PLANES == 1) {
        const Range range = range_of(b.ranges, b.blocks);
        const bool infinite = !range.finite || range.most >= (K::F16 ? 0x477ff000u : 0x7f7f8000u); // rounded
        if (blockIdx.x == 0 && threadIdx.x == 0) *fallback = infinite;
        if (infinite) return;
    }
    if (K::PLANES == 3) {
        const Range range[2] = {range_of(a.ranges, a.blocks), range_of(b.ranges, b.blocks)};
        const Scales scales(range, true, 0);
        const bool scaled = uniform(scales.lines >= 0 || (!Work::NON_FINITE || work.w.merged) && scales.form != Scaling::PLAIN);
        if (blockIdx.x == 0 && threadIdx.x == 0) *fallback = scaled;
        if (scaled) return;
        form = uniform(scales.form == Scaling::PLAIN && work.terms() < 448 ? (int)Scaling::APART : scales.form); // see Six::form
    }
    Order<K, Work::SHARED> order(shares, work.tiles(), work.terms());
    // The producer is the first warpgroup, which leaves registers to the others, or of two blocks of an SM the last warp.
    const int group = uniform(threadIdx.x / 128), producer = L::BLOCKS == 2 ? 2 : 0;
    if (group == producer) {
        if constexpr (L::BLOCKS == 1) registers_down<40>();
        if (threadIdx.x == producer * 128) {
            Ring<STAGES> at;
#pragma unroll 1
            for (Section part; order.next(part);) {
                int steps = work.begin(part.tile, part.k0 / K::BK);
                if (part.steps > 0) steps = part.steps;
                work.prepare();
#pragma unroll 1
                for (int l = 0; l < steps; l++, at.next()) {
                    barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(full + at.stage * 8, work.bytes());
                    work.fetch(memory, at.stage, full + at.stage * 8);
                }
            }
        }
        __syncwarp();
    } else {
        if constexpr (L::BLOCKS == 1) registers_up<232>();
        const int number = L::BLOCKS == 2 ? group : group - 1;
        Stages<K> stages{};
        stages.full = full, stages.empty = empty, stages.memory = memory, stages.group = number, stages.line = number * 64;
        float* const own = reinterpret_cast<float*>(dynamic + (memory - shared_address(dynamic)) + L::ALL) + number * L::STAGING;
        if (K::TURNS && number == 1) turn_pass(1);
#pragma unroll 1
        for (Section part; order.next(part);) {
            int steps = work.begin(part.tile, 0);
            if (part.steps > 0) steps = part.steps;
            K sums;
            sums.run(stages, steps, form);
            if constexpr (Work::SHARED) {
                if (part.parts > 1 && !gather<2>(sums.sum, shares, part, number, number)) continue;
            }
            work.store(sums, number * L::ROWS, number * L::COLUMNS, own);
        }
        if (K::TURNS && number == 0) turn_wait(0);
    }
}

// TurnedTaps are tiles of filters in TF32, see Turned.
template <typename K_> struct TurnedTaps : Taps<K_> {
    using K = K_;
    using L = Layout<K>;
    __device__ __forceinline__ void fetch(u32 to, u32 bar) {
        const typename Windows::Corner corner = this->w.corner(this->pixel, 0);
        const int blocks = this->blocks(), filters = min((this->m - this->m0 + 31) / 32, L::M / 32);
        barrier_expect(bar, (2 * blocks + filters) * K::BOX);
#pragma unroll
        for (int u = 0; u < L::M / 32; u++)
            if (u < filters) ::fetch<false>(to + u * K::BOX, this->filters, bar, this->m0 + u * 32, this->pixel, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < 2 * K::GROUPS; u++)
            if (u < 2 * blocks) this->w.copy(to + (L::M / 32 + u) * K::BOX, this->images, bar, 0, corner, this->channel[u / 2] + u % 2 * 32, this->offsetY[u / 2], this->offsetX[u / 2]);
        this->pixel += K::BK;
    }
    // store writes a warpgroup's channels: a thread has two that are contiguous of each filter.
    __device__ __forceinline__ void store(const K& sums, int group) const {
        const int lane = threadIdx.x % 32, column = this->n0 + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4 * 2, filter = this->m0 + lane % 4 * 2;
        const bool direct = this->w.how == Windows::DIRECT;
        const int width = direct ? this->w.down * this->w.filter : this->n, first = this->place(column), second = this->place(column + 1);
        if (first < 0) return;
        float* to = this->out + ((i64)this->part * this->m + filter) * width + first;
        int left = this->m - filter; // filters
#pragma unroll
        for (int j = 0; j < K::BN / 8; j++, to += 8 * (i64)width, left -= 8) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float* const line = to + e * width;
                if (e >= left) continue;
                if (!direct) {
                    *reinterpret_cast<float2*>(line) = make_float2(sums.sum[4 * j + e], sums.sum[4 * j + e + 2]);
                    continue;
                }
                *line = sums.sum[4 * j + e];
                if (second >= 0) line[second - first] = sums.sum[4 * j + e + 2];
            }
        }
    }
};

// run_turned runs a block, see Turned.
template <typename Work> __device__ __forceinline__ void run_turned(Work work) {
    using K = typename Work::K;
    using L = typename Work::L;
    constexpr int STAGES = L::STAGES;
    const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, full = start, ready = start + 64, empty = start + 128, memory = start + 1024;
    if (threadIdx.x == 0) {
        map_ahead(work.filters), map_ahead(work.images);
        for (int i = 0; i < STAGES; i++) barrier_init(full + i * 8, 1), barrier_init(ready + i * 8, 2), barrier_init(empty + i * 8, K::GROUPS * 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    follow();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4, turning = warp - K::GROUPS * 4;
    Ring<STAGES> at;
    if (turning == 2) {
        if (lane > 0) return;
#pragma unroll 1
        for (int tile = blockIdx.x; tile < work.tiles(); tile += gridDim.x) {
            const int steps = work.begin(tile, 0);
            work.prepare();
#pragma unroll 1
            for (int l = 0; l < steps; l++, at.next()) {
                barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                work.fetch(memory + at.stage * L::BYTES, full + at.stage * 8);
            }
        }
        return;
    }
    if (turning >= 0) {
#pragma unroll 1
        for (int tile = blockIdx.x; tile < work.tiles(); tile += gridDim.x) {
            const int steps = work.begin(tile, 0);
#pragma unroll 1
            for (int l = 0; l < steps; l++, at.next()) {
                barrier_wait(full + at.stage * 8, at.parity);
                turn<K::BN>(memory + at.stage * L::BYTES, turning);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                __syncwarp();
                if (lane == 0) barrier_arrive(ready + at.stage * 8, 0);
            }
        }
        return;
    }
    const int chunk = warp % 2 * 4 + lane / 8;
    const u32 own = (K::BN / 32 + 2 * group + warp % 4 / 2) * K::BOX + lane % 4 * 256 + (chunk ^ lane % 4 * 2) * 16 + lane / 4 % 2 * 8;
    const u64 swizzle = (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16;
#pragma unroll 1
    for (int tile = blockIdx.x; tile < work.tiles(); tile += gridDim.x) {
        const int steps = work.begin(tile, 0);
        const bool idle = group >= work.blocks();
        K sums;
#pragma unroll 1
        for (int l = 0; l < steps; l++, at.next()) {
            barrier_wait(full + at.stage * 8, at.parity);
            if (!idle) {
                const u32 stage = memory + at.stage * L::BYTES;
                const u64 b = swizzle | (stage & 0x3ffff) >> 4;
                u32 a[8][4];
#pragma unroll
                for (int half = 0; half < 2; half++) {
#pragma unroll
                    for (int s = 4 * half; s < 4 * half + 4; s++) {
                        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a[s][0]), "=r"(a[s][1]) : "r"(stage + own + s * 1024) : "memory");
                        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a[s][2]), "=r"(a[s][3]) : "r"((stage + own ^ 16) + 128 + s * 1024) : "memory");
                    }
                    if (half == 0) barrier_wait(ready + at.stage * 8, at.parity);
                    pin(sums.sum);
                    wgmma_fence();
#pragma unroll
                    for (int s = 4 * half; s < 4 * half + 4; s++) wgmma_rows(sums.sum, a[s], b + half * (K::BN * 128 >> 4) + s % 4 * 2, l > 0 || s > 0);
                    wgmma_commit();
                }
                pin(sums.sum);
                wgmma_wait<0>();
                pin(sums.sum);
            }
            if (lane == 0) barrier_arrive(empty + at.stage * 8, 0);
        }
        if (!idle) work.store(sums, group);
    }
}

#define PHASES(name) int count##name, int stride##name##P, int dilation##name##P, int pad##name##P, int size##name, int every##name, int step##name, int most##name, int in##name
#define PHASES_OF(name) {count##name, stride##name##P, dilation##name##P, pad##name##P, size##name, every##name, step##name, most##name, in##name}
#define WINDOWS                                                                                                                                         \
    int channels, int columns, int taps, int strideY, int strideX, int padY, int padX, int dilationY, int dilationX, int images, int groups, int group, int plane, int first, int down, int across, DIVIDE(pixels), \
        DIVIDE(width), i64 image, int filter, int row, int column, int merged, int how, PHASES(Y), PHASES(X)
#define WINDOWS_OF                                                                                                                                      \
    {channels, columns, taps, strideY, strideX, padY, padX, dilationY, dilationX, images, groups, group, plane, first, down, across, DIVIDE_OF(pixels), DIVIDE_OF(width), image, filter, row, column, merged, how, PHASES_OF(Y), PHASES_OF(X)}
#define MAPS const __grid_constant__ TensorMap filters, const __grid_constant__ TensorMap pictures
#define RANGES(name) const uint2 *ranges##name, int blocks##name
#define SHARES int shared, float *parts, int *arrivals
#define PIXELS(name, BLOCKS, ...)                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(BLOCKS == 2 ? 288 : 384, BLOCKS) conv_hopper_##name(MAPS, float* out, RANGES(A), RANGES(B), int* fallback, SHARES, int m, int n, int chunk, WINDOWS) { \
        BODY(run(Pixels<__VA_ARGS__>{&filters, &pictures, out, m, n, chunk, WINDOWS_OF}, {rangesA, blocksA}, {rangesB, blocksB}, fallback, {shared, parts, arrivals});)                                           \
    }
#define TAPS(name, ...)                                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(384, 1) conv_hopper_filters_##name(MAPS, float* out, RANGES(A), RANGES(B), int* fallback, SHARES, int m, int n, int chunk, WINDOWS) { \
        BODY(run(Taps<__VA_ARGS__>{&filters, &pictures, out, m, n, chunk, WINDOWS_OF}, {rangesA, blocksA}, {rangesB, blocksB}, fallback, {shared, parts, arrivals});)                                      \
    }
#define TURNED(name, GROUPS, BN)                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 96, 1) conv_hopper_filters_##name(MAPS, float* out, RANGES(A), RANGES(B), int* fallback, SHARES, int m, int n, int chunk, WINDOWS) { \
        BODY(run_turned(TurnedTaps<Turned<GROUPS, BN>>{{&filters, &pictures, out, m, n, chunk, WINDOWS_OF}});)                                                    \
    }
PIXELS(f32, 1, Six<0, 0, 1>)
PIXELS(f32_narrow, 1, Six<0, 0, 0>)
PIXELS(bf16, 1, Plain<0, 0, 2, 256, 1>)
PIXELS(bf16_mid, 1, Plain<0, 0, 2, 192, 1>)
PIXELS(bf16_one, 1, Plain<0, 0, 2, 128, 1>)
PIXELS(bf16_narrow, 1, Plain<0, 0, 2, 128, NARROW>)
PIXELS(bf16_narrow_pair, 2, Plain<0, 0, 2, 64, NARROW_PAIR>)
PIXELS(f16, 1, Plain<0, 0, 2, 256, 1, true>)
PIXELS(f16_mid, 1, Plain<0, 0, 2, 192, 1, true>)
PIXELS(f16_one, 1, Plain<0, 0, 2, 128, 1, true>)
PIXELS(f16_narrow, 1, Plain<0, 0, 2, 128, NARROW, true>)
PIXELS(f16_narrow_pair, 2, Plain<0, 0, 2, 64, NARROW_PAIR, true>)
PIXELS(tf32_one, 1, Plain<0, 0, 4, 128, 1>)
PIXELS(tf32_narrow, 1, Plain<0, 0, 4, 128, NARROW>)
PIXELS(tf32_narrow_pair, 2, Plain<0, 0, 4, 64, NARROW_PAIR>)
TAPS(f32, Six<1, 1, 1>)
TAPS(f32_narrow, Six<1, 1, 0>)
TURNED(tf32, 2, 128)
TURNED(tf32_narrow, 3, 64)
TAPS(bf16_one, Plain<1, 1, 2, 128, 1>)
TAPS(bf16_mid, Plain<1, 1, 2, 192, 1>)
TAPS(bf16_narrow, Plain<1, 1, 2, 128, NARROW>)
TAPS(f16_one, Plain<1, 1, 2, 128, 1, true>)
TAPS(f16_mid, Plain<1, 1, 2, 192, 1, true>)
TAPS(f16_narrow, Plain<1, 1, 2, 128, NARROW, true>)

// conv_hopper_clear writes zeros to count elements, in lines that are `next` elements apart, of images of which no tap meets some pixels.
extern "C" __global__ void __launch_bounds__(256) conv_hopper_clear(float* out, int count, DIVIDE(width), int next) {
    follow();
    const Divide width DIVIDE_OF(width);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int line = width(i);
        out[(i64)line * next + i - line * width.d] = 0;
    }
    admit();
}

// ---- Filters

// conv_hopper_sum writes filters[f][channel][tap], of m filters, from sums [split][m][n], see Taps. `inner` taps side by side are blocks of 64 channels together, with pitch channels each. `blocks` groups of `per`
// filters are one: those of a group have sums for their own channels among all.
// A block writes `some` channels of a filter at a time, 4096 elements at most, through shared memory. Guarded, it writes nothing where `fallback` is set.
// V is one or four channels, which a thread loads at once.
template <typename V>
__device__ __forceinline__ void sum_splits(const float* sums, float* out, float* memory, int m, int n, int splits, int taps, int channels, int per, int blocks, const Divide& inner, int pitch, const Divide& some) {
    constexpr int TURN = 4, WIDE = sizeof(V) / 4; // elements of a thread whose loads are in flight together
    union Sum {
        V v;
        float s[WIDE];
    };
    const int padded = (inner.d * pitch + 63) / 64 * 64, across = (channels + some.d - 1) / some.d, all = taps * some.d;
    const int parts = min(max(WIDE * (int)blockDim.x / all, 1), splits); // of the splits, each summed by other threads
    const i64 next = (i64)m * n;
    for (int i = blockIdx.x; i < m * across; i += gridDim.x) {
        const int f = i / across, first = (i - f * across) * some.d, count = min(channels - first, some.d);
        __syncthreads(); // all have read what was there before
        for (int from = threadIdx.x * WIDE; from < parts * all; from += TURN * WIDE * blockDim.x) {
            const V* p[TURN];
            Sum sum[TURN];
            int to[TURN], has[TURN], part[TURN];
#pragma unroll
            for (int u = 0; u < TURN; u++) {
                const int at = from + u * WIDE * blockDim.x;
                part[u] = parts == 1 ? 0 : at / all;
                const int tap = some(at - part[u] * all), channel = at - part[u] * all - tap * some.d, outer = inner(tap);
                has[u] = at < parts * all ? min(count - channel, WIDE) : 0; // where none, what is read is not used
                p[u] = reinterpret_cast<const V*>(sums + (has[u] > 0 ? (i64)f * n + outer * padded + (tap - outer * inner.d) * pitch + f / per % blocks * channels + first + channel + part[u] * next : 0));
                sum[u].v = *p[u], to[u] = part[u] * all + channel * taps + tap;
            }
            for (int s = parts; s < splits; s += parts) {
#pragma unroll
                for (int u = 0; u < TURN; u++) {
                    p[u] += parts * next / WIDE;
                    Sum more;
                    more.v = part[u] + s < splits ? *p[u] : V();
#pragma unroll
                    for (int e = 0; e < WIDE; e++) sum[u].s[e] += more.s[e];
                }
            }
#pragma unroll
            for (int u = 0; u < TURN; u++)
#pragma unroll
                for (int e = 0; e < WIDE; e++) {
                    const int place = to[u] + e * taps;
                    if (e < has[u]) memory[place + place / 32] = sum[u].s[e];
                }
        }
        __syncthreads();
        float* const to = out + ((i64)f * channels + first) * taps;
#pragma unroll 2
        for (int at = threadIdx.x; at < count * taps; at += blockDim.x) {
            float sum = memory[at + at / 32];
            for (int part = 1, from = at + all; part < parts; part++, from += all) sum += memory[from + from / 32];
            to[at] = sum;
        }
    }
    admit();
}
// sum_quads is sum_splits for single groups with TAPS taps that no block has together. A thread adds up every parts-th split of four channels, whose taps are contiguous in the result. Sums of a
// warp's threads are added up by shuffles, those of warps through shared memory.
constexpr int SUM_THREADS = 256;
template <int TAPS> __device__ __forceinline__ void sum_quads(const float* sums, float* out, float4* memory, int m, int n, int splits, int channels) {
    constexpr int AHEAD = TAPS == 1 ? 4 : 1; // splits whose loads are in flight together
    const int quads = channels / 4, all = m * quads;
    int parts = 1;
    while (2 * parts <= min(splits, 64)) parts *= 2;
    const int each = SUM_THREADS / parts, part = threadIdx.x / each, stored = min(parts, SUM_THREADS / 32); // sums of a quad in shared memory
    const i64 next = (i64)m * n;
    for (int first = blockIdx.x * each; first < all; first += gridDim.x * each) {
        const int quad = first + threadIdx.x % each, f = quad / quads;
        float v[4 * TAPS] = {};
        if (quad < all) {
            const float* const p = sums + (i64)f * n + (quad - f * quads) * 4;
#pragma unroll 1
            for (int s = part; s < splits; s += AHEAD * parts) {
                float4 x[AHEAD][TAPS];
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
#pragma unroll
                    for (int t = 0; t < TAPS; t++) x[u][t] = s + u * parts < splits ? *reinterpret_cast<const float4*>(p + (s + u * parts) * next + t * (n / TAPS)) : make_float4(0, 0, 0, 0);
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
#pragma unroll
                    for (int t = 0; t < TAPS; t++) v[t] += x[u][t].x, v[TAPS + t] += x[u][t].y, v[2 * TAPS + t] += x[u][t].z, v[3 * TAPS + t] += x[u][t].w;
            }
        }
        for (int d = each; d < 32; d *= 2)
#pragma unroll
            for (int i = 0; i < 4 * TAPS; i++) v[i] += __shfl_xor_sync(0xffffffff, v[i], d);
        __syncthreads(); // all have read what was there before
        if (each >= 32 || threadIdx.x % 32 < each) {
            float4* const to = memory + ((each < 32 ? threadIdx.x / 32 : part) * each + threadIdx.x % each) * TAPS;
#pragma unroll
            for (int i = 0; i < TAPS; i++) to[i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
        }
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < min(each, all - first) * TAPS; i += SUM_THREADS) {
            float4 sum = memory[i];
#pragma unroll 1
            for (int p = 1; p < stored; p++) {
                const float4 x = memory[p * each * TAPS + i];
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
            reinterpret_cast<float4*>(out)[(i64)first * TAPS + i] = sum;
        }
    }
    admit();
}
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    conv_hopper_sum(const float* sums, float* out, int m, int n, int splits, const int* fallback, int guarded, int taps, int channels, int per, int blocks, DIVIDE(inner), int pitch, DIVIDE(some)) {
    BODY(__shared__ float4 quads[SUM_THREADS * 9]; float* const memory = &quads[0].x; follow(); if (guarded && *fallback) return; // at least 4096 + 128 floats
         const Divide within DIVIDE_OF(inner); const Divide each DIVIDE_OF(some);
         const bool single = within.d == 1 && blocks == 1 && channels % 4 == 0 && reinterpret_cast<u64>(out) % 16 == 0;
         if (single && taps == 1) sum_quads<1>(sums, out, quads, m, n, splits, channels);
         else if (single && taps == 9) sum_quads<9>(sums, out, quads, m, n, splits, channels);
         else if (each.d % 4 == 0 && (blocks == 1 || channels % 4 == 0)) sum_splits<float4>(sums, out, memory, m, n, splits, taps, channels, per, blocks, within, pitch, each);
         else sum_splits<float>(sums, out, memory, m, n, splits, taps, channels, per, blocks, within, pitch, each);)
}
