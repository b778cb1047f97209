// Convolutions of 3 x 3 taps with stride 1 whose tiles are rows of an image with a halo: each element of a window is loaded once for all taps. TMA's im2col mode loads it once for each tap,
// and layers of few channels wait for these loads. Operands are float32 with channels last.
//
// A copy of `rows + 2` rows of `pitch = width + 2` pixels has a line of 128 bytes for each pixel. Outside of the image TMA writes zeros. The elements that tap (i, j) meets begin i pitch + j lines
// after the first: wgmma's descriptors may begin at any line, as the swizzle is one of addresses.
//stheno:targets sm_90a ptx
#include "follow.cuh"
#include "matmul_kinds.cuh"
#include "matmul_planes.cuh"

extern __shared__ unsigned char dynamic[];

// Other devices have other instructions: the entry points are empty there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__
#else
#define BODY(...)
#endif

// Halo has the sizes of a convolution, without gradients: pixels of `width` x `height` and how they meet images and taps of filters.
struct Halo {
    const uint2* rangesA; // the range of numbers of each block that has prepared the first of two float32 operands
    int blocksA;
    const uint2* rangesB;
    int blocksB;
    int* fallback;
    int m, n, chunk; // filters; columns of sums, and pixels of a split, for filters
    int channels, images, width, height, padY, padX;
    int first, down, across; // the filters' tap of the first tap here, and from a row and a column to the next
    i64 image;               // elements of the result between images,
    int filter, row, column;
    int plane; // from an image to the same one of the next matrix of a split
    int rows, stages; // of a tile; copies in flight
};

__device__ __forceinline__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }

// halo_barriers initializes three arrays of 8 barriers and returns where memory for copies begins, at a multiple of 1024 bytes.
__device__ __forceinline__ u32 halo_barriers(u32 first, u32 second, u32 third) {
    const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 8; i++) barrier_init(start + i * 8, first), barrier_init(start + 64 + i * 8, second), barrier_init(start + 128 + i * 8, third);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    return start + 1024;
}

// halo_descriptor is wgmma's descriptor of an operand with lines of 128 bytes, 8 of which are `stride` bytes before the next 8. With elements along m or n contiguous, blocks of 64 are `leading` bytes apart.
__device__ __forceinline__ u64 halo_descriptor(u32 address, u32 leading, u32 stride) { return (address & 0x3ffff) >> 4 | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62; }

// range_of is the range of numbers that `count` blocks have found, in all threads of a block.
__device__ __forceinline__ Range range_of(const uint2* ranges, int count) {
    __shared__ uint2 warps[16];
    Range range;
    for (int i = threadIdx.x; i < count; i += blockDim.x) range.add(ranges[i]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) range.exchange(d);
    range.finite = __all_sync(0xffffffff, range.finite);
    __syncthreads(); // all have read the range before
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = range.packed();
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) range.add(warps[w]);
    return range;
}

// halo_other reports whether float32 operands want another form than PLAIN, and sets `fallback`.
__device__ __forceinline__ bool halo_other(const Halo& w) {
    const Range range[2] = {range_of(w.rangesA, w.blocksA), range_of(w.rangesB, w.blocksB)};
    const Scales scales(range, true, 0);
    const bool other = __shfl_sync(0xffffffff, scales.lines >= 0 || scales.form != Scaling::PLAIN, 0); // all lanes have the same one; see uniform of conv_hopper.cu
    if (blockIdx.x == 0 && threadIdx.x == 0) *w.fallback = other;
    return other;
}

// ---- Gradients w.r.t. filters

#define L48                                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}"
#define D48 D32(0), D8(32), D8(40)
// wgmma_columns is wgmma for 64 x 96 elements of operands with elements along m and n contiguous.
__device__ __forceinline__ void wgmma_columns(float (&d)[48], u64 a, u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 " L48 ", %48, %49, p, 1, 1, 1, 1;\n}"
                 : D48 : "l"(a), "l"(b), "r"(add));
}

// halo_filters adds up the products of 64 filters' gradients and 32 channels of images for all taps, of a split's rows, of operands as three BF16 matrices: there are accumulators for 32 terms beside the sums, see Six of matmul_kinds.cuh.
__device__ __forceinline__ void halo_filters(const TensorMap* gradients, const TensorMap* images, float* out, const Halo& w) {
    const int width = w.width, pitch = width + 2, rows = w.rows, pixels = rows * width, lines = (rows + 2) * pitch, each = w.height / rows, stages = w.stages;
    const u32 planeA = pixels * 128, planeB = (lines * 64 + 1023) / 1024 * 1024, bytes = 3 * (planeA + planeB);
    const u32 memory = halo_barriers(1, 12, 1), full = memory - 1024, empty = full + 64;
    follow();
    if (halo_other(w)) return;
    const int down = (w.m + 63) / 64, across = (w.channels + 31) / 32, row0 = blockIdx.x % down * 64, block = blockIdx.x / down % across, split = blockIdx.x / (down * across);
    const int first = split * (w.chunk / pixels), count = min(w.images * each - first, w.chunk / pixels), group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) {
#pragma unroll 1
            for (int i = 0; i < count; i++) {
                const int stage = i % stages, tile = first + i, b = tile / each, y = (tile - b * each) * rows;
                const u32 to = memory + stage * bytes, bar = full + stage * 8;
                barrier_wait(empty + stage * 8, (i / stages & 1) ^ 1);
                barrier_expect(bar, 3 * (pixels * 128 + lines * 64));
#pragma unroll
                for (int p = 0; p < 3; p++) {
                    fetch<false>(to + p * planeA, gradients, bar, row0, 0, y, b + p * w.plane, 0);
                    fetch<false>(to + 3 * planeA + p * planeB, images, bar, block * 32, -w.padX, y - w.padY, b + p * w.plane, 0);
                }
            }
        }
        __syncwarp();
        return;
    }
    registers_up<152>();
    const int i0 = __shfl_sync(0xffffffff, group - 1, 0); // of the filter's rows
    float sum[48], part[48];
#pragma unroll
    for (int e = 0; e < 48; e++) sum[e] = part[e] = 0;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        const int stage = i % stages;
        barrier_wait(full + stage * 8, i / stages & 1);
        const u32 at = memory + stage * bytes;
        const u64 a = halo_descriptor(at, 0, 1024), b = ((at + 3 * planeA + i0 * pitch * 64) & 0x3ffff) >> 4 | (u64)(64 >> 4) << 16 | (u64)2 << 62;
        int x = 0, line = 0;
        const auto next = [&] {
            line += 8, x += 8;
            if (x == width) x = 0, line += 2;
        };
#pragma unroll 1
        for (int k = 0; k < pixels / 32; k++) {
            u64 of[2];
#pragma unroll
            for (int l = 0; l < 2; l++) {
                const int from = line;
                next();
                of[l] = b + from * 4 + ((u64)((line - from) * 4) << 32);
                next();
            }
            pin(part);
            wgmma_fence();
            constexpr int OF[6][2] = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
#pragma unroll
            for (int q = 0; q < 6; q++)
#pragma unroll
                for (int l = 0; l < 2; l++) wgmma_columns(part, a + OF[q][0] * (planeA >> 4) + (2 * k + l) * 128, of[l] + OF[q][1] * (planeB >> 4), q > 0 || l > 0);
            wgmma_commit();
            wgmma_wait<0>();
            pin(part);
            if (k == pixels / 32 - 1 && threadIdx.x % 32 == 0) arrive(empty + stage * 8);
#pragma unroll
            for (int e = 0; e < 48; e++) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(sum[e]) : "f"(part[e]));
        }
    }
    const int lane = threadIdx.x % 32, row = row0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    float* const to = out + (i64)split * w.m * w.n + block * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 12; i++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (row + 8 * r < w.m) *reinterpret_cast<float2*>(to + (i64)(row + 8 * r) * w.n + (i0 * 3 + i / 4) * ((w.channels + 63) / 64) * 64 + i % 4 * 8) = make_float2(sum[4 * i + 2 * r], sum[4 * i + 2 * r + 1]);
}

// ---- Outputs and gradients w.r.t. images

#define L68 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67}"
#define L72 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71}"
#define D68 D64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define D72 D64, D8(64)
// wgmma_lines is wgmma for tiles of outputs: 64 x 136 or 144 elements of operands with K contiguous, of SIZE bytes.
template <int SIZE, int SUMS> __device__ __forceinline__ void wgmma_lines(float (&d)[SUMS], u64 a, u64 b, int add) {
#define WGMMA_LINES(N, K, TYPES, LIST, REGISTERS, A, B, ADD, TRANS)                                                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" N "k" K ".f32." TYPES " " LIST ", " A ", " B ", p, 1, 1" TRANS ";\n}"            \
                 : REGISTERS : "l"(a), "l"(b), "r"(add))
    if constexpr (SIZE == 2) WGMMA_LINES("136", "16", "bf16.bf16", L68, D68, "%68", "%69", "%70", ", 0, 0");
    else if constexpr (SUMS == 68) WGMMA_LINES("136", "8", "tf32.tf32", L68, D68, "%68", "%69", "%70", "");
    else WGMMA_LINES("144", "8", "tf32.tf32", L72, D72, "%72", "%73", "%74", "");
}

// halo_store writes a tile's sums, of `most` rows, from row `row` of filters on: with channels last eight lanes write a sector, else four, of pairs of pixels. Widths are even.
template <bool LAST, int SUMS> __device__ __forceinline__ void halo_store(const float (&sum)[SUMS], float* out, const Halo& w, int row, int most) {
    const int pitch = w.width + 2;
    int y = 0, x = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < SUMS / 4; i++) {
        if (x < w.width && y < most) {
            float* const to = out + (i64)row * w.filter + y * w.row + x * w.column;
            if (LAST) {
                if (row < w.m) to[0] = sum[4 * i], to[w.column] = sum[4 * i + 1];
                if (row + 8 < w.m) to[8] = sum[4 * i + 2], to[w.column + 8] = sum[4 * i + 3];
            } else {
                if (row < w.m) *reinterpret_cast<float2*>(to) = make_float2(sum[4 * i], sum[4 * i + 1]);
                if (row + 8 < w.m) *reinterpret_cast<float2*>(to + (i64)8 * w.filter) = make_float2(sum[4 * i + 2], sum[4 * i + 3]);
            }
        }
        if ((x += 8) >= pitch) x -= pitch, y++;
    }
}

// halo_pixels computes outputs of 64 filters, whose taps stay in shared memory. A tile is `rows` rows of an image with two pixels after each, which are computed and not written: 136 contiguous
// lines at most. Two warpgroups take turns: while one writes its tile, the other multiplies. `slots` copies of 32 channels of a tile are in flight.
__device__ __forceinline__ void halo_pixels(const TensorMap* filters, const TensorMap* images, float* out, const Halo& w) {
    const int width = w.width, pitch = width + 2, height = w.height, rows = w.rows, slots = w.stages, m = w.m, each = (height + rows - 1) / rows, tiles = w.images * each, slices = (w.channels + 31) / 32, down = (m + 63) / 64;
    const int row0 = blockIdx.x % down * 64, begin = blockIdx.x / down, step = gridDim.x / down;
    const u32 slot = (max((rows + 2) * pitch, 2 * pitch + 2 + 136) + 7) / 8 * 1024;
    const u32 kept = halo_barriers(1, 4, 1), full = kept - 1024, empty = full + 64, whole = full + 128, memory = kept + 9 * slices * 8192;
    follow();
    const int group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) {
            barrier_expect(whole, 9 * slices * 8192);
            for (int s = 0; s < slices; s++)
                for (int t = 0; t < 9; t++) fetch<false>(kept + (s * 9 + t) * 8192, filters, whole, s * 32, w.first + t / 3 * w.down + t % 3 * w.across, row0, 0, 0);
            Ring<8> at;
            for (int tile = begin; tile < tiles; tile += step) {
                const int b = tile / each, y = (tile - b * each) * rows;
                for (int s = 0; s < slices; s++) {
                    barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(full + at.stage * 8, (rows + 2) * pitch * 128);
                    fetch<false>(memory + at.stage * slot, images, full + at.stage * 8, s * 32, -w.padX, y - w.padY, b, 0);
                    if (++at.stage == slots) at.stage = 0, at.parity ^= 1;
                }
            }
        }
        __syncwarp();
        return;
    }
    registers_up<224>();
    const int g = __shfl_sync(0xffffffff, group - 1, 0), t = threadIdx.x % 128, lane = t % 32, row = row0 + t / 32 * 16 + lane / 4;
    barrier_wait(whole, 0);
    if (g == 1) turn_pass(1);
    int copy = g * slices; // number of the next copy that this warpgroup reads
#pragma unroll 1
    for (int pair = begin; pair < tiles; pair += 2 * step) {
        const int tile = pair + g * step;
        turn_wait(g);
        if (tile >= tiles) {
            turn_pass(g);
            break;
        }
        float sum[68];
        int last = 0;
#pragma unroll 1
        for (int s = 0; s < slices; s++, copy++) {
            const int stage = copy % slots;
            barrier_wait(full + stage * 8, copy / slots & 1);
            const u64 a = halo_descriptor(kept + s * 9 * 8192, 16, 1024), b = halo_descriptor(memory + stage * slot, 16, 1024);
            pin(sum);
            wgmma_fence();
#pragma unroll
            for (int tap = 0; tap < 9; tap++)
#pragma unroll
                for (int l = 0; l < 4; l++) wgmma_lines<4>(sum, a + tap * 512 + l * 2, b + (tap / 3 * pitch + tap % 3) * 8 + l * 2, s > 0 || tap > 0 || l > 0);
            wgmma_commit();
            pin(sum);
            if (s > 0) {
                wgmma_wait<1>();
                if (lane == 0) arrive(empty + last * 8);
            }
            last = stage;
        }
        turn_pass(g);
        wgmma_wait<0>();
        pin(sum);
        if (lane == 0) arrive(empty + last * 8);
        copy += slices; // the other warpgroup reads these
        const int b = tile / each, y0 = (tile - b * each) * rows, most = min(rows, height - y0);
        halo_store<true>(sum, out + b * w.image + (i64)y0 * w.row, w, row, most);
    }
    if (g == 0) turn_wait(0);
}

// halo_stream computes outputs of 64 filters from a ring of taps of 32 channels. A tile is two parts of `rows` rows, one for each warpgroup, of N contiguous lines at most. Its 32 channels are loaded
// while those before are multiplied. PLANES is 3 for float32 as three BF16 matrices, which are multiplied as in Six of matmul_kinds.cuh, in the form PLAIN; numbers that want another set `fallback`.
template <int SIZE, int PLANES, int N> __device__ __forceinline__ void halo_stream(const TensorMap* filters, const TensorMap* images, float* out, const Halo& w) {
    constexpr int LINE = 32 * SIZE, PLANE_A = 64 * LINE, STAGES = 6, SUMS = N / 2;
    constexpr bool SPLIT = PLANES == 3;
    const int width = w.width, pitch = width + 2, rows = w.rows, each = (w.height + 2 * rows - 1) / (2 * rows), down = (w.m + 63) / 64, items = w.images * each * down, slices = (w.channels + 31) / 32;
    const u32 plane = (max((2 * rows + 2) * pitch, (rows + 2) * pitch + 2 + N) * LINE + 1023) / 1024 * 1024;
    const u32 memory = halo_barriers(1, 8, 1), full = memory - 1024, empty = full + 64, copies = memory + STAGES * PLANES * PLANE_A; // barriers 6 and 7 are of copies
    follow();
    if constexpr (SPLIT) {
        if (halo_other(w)) return;
    }
    const int group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) {
            int next = blockIdx.x, slice = 0, copy = 0; // the next copy
            const auto load = [&] {
                if (next >= items) return;
                const int tile = next / down, b = tile / each, y = (tile - b * each) * 2 * rows;
                const u32 bar = full + (6 + copy % 2) * 8;
                barrier_wait(empty + (6 + copy % 2) * 8, (copy / 2 & 1) ^ 1);
                barrier_expect(bar, PLANES * (2 * rows + 2) * pitch * LINE);
#pragma unroll
                for (int p = 0; p < PLANES; p++) fetch<false>(copies + (copy % 2 * PLANES + p) * plane, images, bar, slice * 32, -w.padX, y - w.padY, b + p * w.plane, 0);
                copy++;
                if (++slice == slices) slice = 0, next += gridDim.x;
            };
            Ring<STAGES> at;
            load();
#pragma unroll 1
            for (int item = blockIdx.x; item < items; item += gridDim.x) {
                const int row0 = item % down * 64;
#pragma unroll 1
                for (int s = 0; s < slices; s++)
#pragma unroll 1
                    for (int t = 0; t < 9; t++, at.next()) {
                        if (t == STAGES) load(); // the ring is full of these channels' taps, so the copy before is free soon
                        barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                        barrier_expect(full + at.stage * 8, PLANES * PLANE_A);
#pragma unroll
                        for (int p = 0; p < PLANES; p++)
                            fetch<false>(memory + (at.stage * PLANES + p) * PLANE_A, filters, full + at.stage * 8, s * 32, w.first + t / 3 * w.down + t % 3 * w.across, row0, p, 0);
                    }
            }
        }
        __syncwarp();
        return;
    }
    registers_up<232>();
    const int g = __shfl_sync(0xffffffff, group - 1, 0), t = threadIdx.x % 128, lane = t % 32;
    const u64 swizzle = (u64)(SIZE == 2 ? 2 : 1) << 62 | (u64)(8 * LINE >> 4) << 32 | (u64)1 << 16;
    Ring<STAGES> at;
    int copy = 0;
    if (SPLIT && g == 1) turn_pass(1);
#pragma unroll 1
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        float sum[SUMS], part[SPLIT ? SUMS : 4];
        if constexpr (SPLIT) {
#pragma unroll
            for (int e = 0; e < SUMS; e++) sum[e] = part[e] = 0;
        }
        int last = -1;
#pragma unroll 1
        for (int s = 0; s < slices; s++, copy++) {
            barrier_wait(full + (6 + copy % 2) * 8, copy / 2 & 1);
            const u64 first = swizzle | ((copies + copy % 2 * PLANES * plane + g * rows * pitch * LINE) & 0x3ffff) >> 4;
#pragma unroll 1
            for (int tap = 0; tap < 9; tap++, at.next()) {
                const u64 a = swizzle | ((memory + at.stage * PLANES * PLANE_A) & 0x3ffff) >> 4, b = first + (tap / 3 * pitch + tap % 3) * (LINE >> 4);
                barrier_wait(full + at.stage * 8, at.parity);
                if constexpr (SPLIT) {
                    turn_wait(g);
                    pin(part);
                    wgmma_fence();
                    constexpr int OF[6][2] = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
#pragma unroll
                    for (int q = 0; q < 6; q++)
#pragma unroll
                        for (int l = 0; l < 2; l++) wgmma_lines<SIZE>(part, a + OF[q][0] * (PLANE_A >> 4) + l * 2, b + OF[q][1] * (plane >> 4) + l * 2, q > 0 || l > 0);
                    wgmma_commit();
                    turn_pass(g);
                    wgmma_wait<0>();
                    pin(part);
                    if (lane == 0) {
                        arrive(empty + at.stage * 8);
                        if (tap == 8) arrive(empty + (6 + copy % 2) * 8);
                    }
#pragma unroll
                    for (int e = 0; e < SUMS; e++) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(sum[e]) : "f"(part[e]));
                } else {
                    pin(sum);
                    wgmma_fence();
#pragma unroll
                    for (int l = 0; l < 4; l++) wgmma_lines<SIZE>(sum, a + l * 2, b + l * 2, s > 0 || tap > 0 || l > 0);
                    wgmma_commit();
                    pin(sum);
                    if (last >= 0) {
                        wgmma_wait<1>();
                        if (lane == 0) {
                            arrive(empty + last * 8);
                            if (tap == 0) arrive(empty + (6 + (copy + 1) % 2) * 8);
                        }
                    }
                    last = at.stage;
                }
            }
        }
        if constexpr (!SPLIT) {
            wgmma_wait<0>();
            pin(sum);
            if (lane == 0) arrive(empty + last * 8), arrive(empty + (6 + (copy + 1) % 2) * 8);
        }
        const int tile = item / down, b = tile / each, y0 = (tile - b * each) * 2 * rows + g * rows;
        halo_store<!SPLIT>(sum, out + b * w.image + (i64)y0 * w.row, w, item % down * 64 + t / 32 * 16 + lane / 4, min(rows, w.height - y0));
    }
    if (SPLIT && g == 0) turn_wait(0);
}

#define HALO(name, THREADS, ...)                                                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_halo_##name(const __grid_constant__ TensorMap filters, const __grid_constant__ TensorMap pictures, float* out, const uint2* rangesA, int blocksA, const uint2* rangesB, \
                                                                              int blocksB, int* fallback, int m, int n, int chunk, int channels, int images, int width, int height, int padY, int padX, int first, int down, int across, \
                                                                              i64 image, int filter, int row, int column, int plane, int rows, int stages) { \
        BODY(__VA_ARGS__(&filters, &pictures, out, {rangesA, blocksA, rangesB, blocksB, fallback, m, n, chunk, channels, images, width, height, padY, padX, first, down, across, image, filter, row, column, plane, rows, stages});) \
    }
HALO(f32, 384, halo_stream<2, 3, 136>)
HALO(tf32, 384, halo_stream<4, 1, 144>)
HALO(kept_tf32, 384, halo_pixels)
HALO(filters_f32, 512, halo_filters)
