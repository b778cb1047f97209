// Convolutions of images of 3 channels with 7 x 7 taps at a stride of 2 on the tensor cores of compute capability 9.0, and their gradients w.r.t. the filters, in float32 as six BF16 products (see Six in
// matmul_kinds.cuh). A producer splits the elements of images once, in shared memory. wgmma reads them from registers: a window's row of 7 taps, and an eighth of 0, is contiguous, as are pixels.
//
// Where products of splits may lose bits or overflow, or numbers are not finite, a tile is computed by FMA.
//stheno:targets sm_90a ptx
#include "conv_gather.cuh"
#include "matmul_kinds.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SPLIT_BODY(...) __VA_ARGS__
constexpr int CHANNELS = 3, SIZE = 7, TERMS = CHANNELS * SIZE * SIZE, LINES = CHANNELS * SIZE, FILTERS = 64;
extern __shared__ unsigned char dynamic[];

__device__ __forceinline__ u32 load_shared(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ void store_shared(u32 at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

// split_next returns two numbers rounded to BF16 and subtracts what it returns.
__device__ __forceinline__ u32 split_next(float& low, float& high) {
    const u32 v = bf16x2(low, high);
    low -= __uint_as_float(v << 16), high -= __uint_as_float(v & 0xffff0000);
    return v;
}

// Magnitudes are the largest magnitude of some numbers and the least one of those other than 0, less 1, as bits.
struct Magnitudes {
    u32 most = 0, least = 0xffffffff;
    __device__ __forceinline__ void add(float x) {
        const u32 size = __float_as_uint(x) & 0x7fffffff;
        most = max(most, size), least = min(least, size - 1);
    }
    __device__ __forceinline__ void add(u32 more, u32 less) { most = max(most, more), least = min(least, less); }
    __device__ __forceinline__ void join() { most = __reduce_max_sync(0xffffffff, most), least = __reduce_min_sync(0xffffffff, least); } // of a warp
    __device__ __forceinline__ int low() const { return least == 0xffffffff ? 128 : Range::log(least + 1); }
    __device__ __forceinline__ int high() const { return Range::log(most); }
};
// plain reports whether products of splits are as exact as those of normal numbers, see Scales.
__device__ __forceinline__ bool plain(const Magnitudes& a, const Magnitudes& b) {
    return max(a.most, b.most) < Scales::HUGE_ && min(a.low(), b.low()) >= Scales::EXACT && a.low() + b.low() >= Scales::LEAST && a.high() + b.high() <= Scales::LARGEST;
}

// wgmma_bf16 is wgmma for 64 rows in registers by 64 columns of 16 terms in shared memory, in BF16.
__device__ __forceinline__ void wgmma_bf16(float (&d)[32], const u32 (&a)[4], u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " L32 ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
                 : D32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// In shared memory eight terms of 64 columns are CHUNK bytes: 16 of each. chunks returns the descriptor of two such chunks.
constexpr int CHUNK = FILTERS * 16;
__device__ __forceinline__ u64 chunks(u32 at) { return (at & 0x3ffff) >> 4 | (u64)(CHUNK >> 4) << 16 | (u64)(128 >> 4) << 32; }

// arrive is an arrival of each thread: racecheck does not follow the order of one for a warp.
__device__ __forceinline__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }

// ---- Outputs

// A block multiplies tiles of 64 pixels by 64 filters. A stage has what HIGH x WIDE pixels meet, in three parts: lines of PITCH pairs of elements. A warp has 16 pixels of a row.
constexpr int HIGH = 4, WIDE = 112, MEET = 2 * HIGH + SIZE - 2, PITCH = WIDE + 4, PART = CHANNELS * MEET * PITCH * 4, CHUNKS = LINES + 1, TAPS = CHUNKS * CHUNK, GROUPS = 3, THREADS = 128 * (GROUPS + 1), BATCH = 10; // lines whose loads are in flight
struct Tiles {
    int width, height, across, down, count;
    int b, x0, y0, columns; // of a tile: columns of 16 pixels
    __device__ Tiles(const Gathered<float>& g, int n) : width(g.pixelRow.d), height(g.pixels.d / width), across((width + WIDE - 1) / WIDE), down((height + HIGH - 1) / HIGH), count(n / g.pixels.d * across * down) {}
    __device__ __forceinline__ void set(int tile) {
        b = tile / (across * down), tile -= b * (across * down);
        x0 = tile % across * WIDE, y0 = tile / across * HIGH, columns = (min(width - x0, WIDE) + 15) / 16;
    }
};

__device__ __forceinline__ void outputs(const Gathered<float>& g, const float* __restrict__ filters, float* __restrict__ out, int m, int n, Rows a, Rows c) {
    const u32 start = (shared_address(dynamic) + 127) / 128 * 128, full = start, empty = start + 16, odd = start + 32, ranges = start + 64, taps = start + 256, stages = taps + 3 * TAPS;
    const int group = uniform(threadIdx.x / 128), warp = uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32, first = blockIdx.y * FILTERS;
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; s++) barrier_init(full + 8 * s, 128), barrier_init(empty + 8 * s, 128 * GROUPS);
    filters += (i64)first * a.row, out += (i64)first * c.row, m -= first;
    Magnitudes range;
    for (int i = threadIdx.x; i < FILTERS * CHUNKS * 4; i += THREADS) {
        const int f = i / (CHUNKS * 4), line = i / 4 % CHUNKS, j = i % 4 * 2;
        const float* const from = filters + f * a.row + line * SIZE + j;
        float low = f < m && line < LINES ? from[0] : 0, high = f < m && line < LINES && j + 1 < SIZE ? from[1] : 0;
        range.add(low), range.add(high);
#pragma unroll
        for (int p = 0; p < 3; p++) store_shared(taps + p * TAPS + line * CHUNK + f * 16 + j * 2, split_next(low, high));
    }
    range.join();
    if (lane == 0) store_shared(ranges + threadIdx.x / 32 * 8, range.most), store_shared(ranges + threadIdx.x / 32 * 8 + 4, range.least);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    Tiles tiles(g, n);
    if (group == 0) {
        registers_down<56>();
#pragma unroll 1
        for (int w = 0; w < THREADS / 32; w++) range.add(load_shared(ranges + w * 8), load_shared(ranges + w * 8 + 4));
        Ring<2> at;
#pragma unroll 1
        for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x, at.next()) {
            tiles.set(tile);
            const int y = 2 * tiles.y0 - g.rows.pad, x = 2 * (tiles.x0 + threadIdx.x) - g.columns.pad;
            const bool here = threadIdx.x < PITCH, low = here && (u32)x < (u32)g.columns.images, high = here && (u32)(x + 1) < (u32)g.columns.images;
            const float* const from = g.images + tiles.b * g.image;
            const int offset = y * g.width + x;
            u32 to = stages + at.stage * 3 * PART + threadIdx.x * 4;
            Magnitudes met;
#pragma unroll 1
            for (int first = 0; first < CHANNELS * MEET; first += BATCH) {
                float v[BATCH][2];
#pragma unroll
                for (int i = 0; i < BATCH; i++) {
                    const int line = first + i, channel = (line >= MEET) + (line >= 2 * MEET), place = offset + line * g.width + channel * (g.plane - MEET * g.width);
                    const bool has = line < CHANNELS * MEET && (u32)(y + line - channel * MEET) < (u32)g.rows.images;
                    v[i][0] = load_if(from, place, has && low), v[i][1] = load_if(from, place + 1, has && high);
                }
                if (first == 0) barrier_wait(empty + at.stage * 8, at.parity ^ 1);
#pragma unroll
                for (int i = 0; i < BATCH; i++, to += PITCH * 4) {
                    met.add(v[i][0]), met.add(v[i][1]);
#pragma unroll
                    for (int p = 0; p < 3; p++) {
                        const u32 part = split_next(v[i][0], v[i][1]);
                        if (here && first + i < CHANNELS * MEET) store_shared(to + p * PART, part);
                    }
                }
            }
            met.join();
            if (lane == 0) store_shared(odd + at.stage * 16 + warp * 4, !plain(met, range));
            arrive(full + at.stage * 8);
        }
        return;
    }
    registers_up<152>();
    Ring<2> at;
    int next = group - 1; // the first tile of 64 pixels of a stage
    const int q = lane / 4, l = lane % 4;
    const u64 b = chunks(taps);
#pragma unroll 1
    for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x, at.next()) {
        tiles.set(tile);
        const int all = tiles.columns * HIGH, inverse = (1 << 16) / tiles.columns + 1;
        barrier_wait(full + at.stage * 8, at.parity);
        u32 wrong = 0;
#pragma unroll
        for (int w = 0; w < 4; w++) wrong |= load_shared(odd + at.stage * 16 + w * 4);
        wrong = uniform(wrong);
#pragma unroll 1
        for (; 4 * next < all; next += GROUPS) {
            const int own = 4 * next + warp, row = own < all ? own * inverse >> 16 : 0, column = own < all ? (own - row * tiles.columns) * 16 : 0, y = tiles.y0 + row, x = tiles.x0 + column + q;
            float sum[32] = {}, part[32] = {}, low[32] = {};
            if (wrong) {
                const float* const from = g.images + tiles.b * g.image;
#pragma unroll 1
                for (int t = 0; t < TERMS; t++) {
                    const int i = t / SIZE % SIZE, h = 2 * y + i - g.rows.pad, at = 2 * x + t % SIZE - g.columns.pad;
                    const bool has = (u32)h < (u32)g.rows.images;
                    const float* const line = from + t / (SIZE * SIZE) * g.plane + h * g.width;
                    const float v[2] = {load_if(line, at, has && (u32)at < (u32)g.columns.images), load_if(line, at + 16, has && (u32)(at + 16) < (u32)g.columns.images)};
#pragma unroll
                    for (int e = 0; e < 16; e++) {
                        const int f = e / 2 * 8 + 2 * l + e % 2;
                        const float w = load_if(filters, f * a.row + t, f < m);
                        sum[e / 2 * 4 + e % 2] += w * v[0], sum[e / 2 * 4 + e % 2 + 2] += w * v[1];
                    }
                }
            } else {
                const u32 from = stages + at.stage * 3 * PART + (2 * row * PITCH + column + q + l) * 4;
                u32 x[2][3][4]; // of two steps of 16 terms
                const auto load = [&](int s) {
#pragma unroll
                    for (int p = 0; p < 3; p++)
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const int line = min(2 * s + e / 2, LINES - 1); // the last taps are 0
                            x[s % 2][p][e] = load_shared(from + p * PART + (line / SIZE * MEET + line % SIZE) * PITCH * 4 + e % 2 * 32);
                        }
                };
                load(0);
#pragma unroll
                for (int s = 0; s < CHUNKS / 2; s++) {
                    const u64 w = b + 2 * s * (CHUNK >> 4);
                    constexpr int NEXT = TAPS >> 4;
                    pin(part), pin(low);
                    wgmma_fence();
                    wgmma_bf16(low, x[s % 2][2], w, 1);
                    wgmma_bf16(low, x[s % 2][1], w + NEXT, 1);
                    wgmma_bf16(low, x[s % 2][0], w + 2 * NEXT, 1);
                    wgmma_bf16(low, x[s % 2][1], w, 1);
                    wgmma_bf16(low, x[s % 2][0], w + NEXT, 1);
                    wgmma_bf16(part, x[s % 2][0], w, s % 2);
                    wgmma_commit();
                    if (s % 2 == 1) wgmma_wait<1>();
                    if (s + 1 < CHUNKS / 2) load(s + 1);
                    if (s % 2 == 0 && s + 1 < CHUNKS / 2) continue;
                    wgmma_wait<0>(); // the tensor cores add up the largest products of two steps alone
                    pin(part), pin(low);
#pragma unroll
                    for (int e = 0; e < 32; e++) sum[e] += part[e];
                }
#pragma unroll
                for (int e = 0; e < 32; e++) sum[e] += low[e];
            }
            const bool here = own < all && y < tiles.height, has[2] = {here && x < tiles.width, here && x + 8 < tiles.width};
            float* to[2];
            to[0] = out + tiles.b * g.outerPixel + (i64)y * g.widthPixel + x + (i64)(2 * l) * c.row, to[1] = to[0] + c.row;
#pragma unroll
            for (int f = 0; f < FILTERS; f += 8)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    if (f + 2 * l + e < m) {
                        if (has[0]) to[e][0] = sum[f / 2 + e];
                        if (has[1]) to[e][8] = sum[f / 2 + e + 2];
                    }
                    to[e] += 8 * (i64)c.row;
                }
        }
        next -= (all + 3) / 4;
        arrive(empty + at.stage * 8);
    }
}
// ---- Filters

// A block computes gradients w.r.t. 64 filters, of a split's rows of pixels. A stage has up to BAND rows of 16 pixels: a line of images that they meet is four lines of PAIRS pairs of even and odd elements, from the
// first and from the second on, so that two contiguous pixels of each tap are a word. The rows of wgmma are the eight taps of LINES lines, of which one is not stored.
constexpr int BAND = 4, BANDS = 2 * BAND + SIZE - 2, PAIRS = 9, IMAGES = CHANNELS * BANDS * 4 * PAIRS * 4, GRADIENTS = BAND * 2 * CHUNK, BOTH = (3 * IMAGES + 127) / 128 * 128 + 3 * GRADIENTS, DEPTH = 4, PRODUCERS = 16;

__device__ __forceinline__ void filters(const Gathered<float>& g, const float* __restrict__ outputs, float* __restrict__ out, int m, int k, int chunk, i64 count, Rows a, Rows c) {
    const u32 start = (shared_address(dynamic) + 127) / 128 * 128, full = start, empty = start + 32, ranges = start + 128, stages = start + 128 + DEPTH * PRODUCERS * 16;
    const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32, across = (m + FILTERS - 1) / FILTERS, split = blockIdx.x / across, first = blockIdx.x % across * FILTERS;
    const int width = g.pixelRow.d, height = g.pixels.d / width, parts = (width + 15) / 16, end = min(k, (split + 1) * chunk) / width;
    if (threadIdx.x == 0)
        for (int s = 0; s < DEPTH; s++) barrier_init(full + 8 * s, 32 * PRODUCERS), barrier_init(empty + 8 * s, 128 * GROUPS);
    outputs += (i64)first * a.row, out += split * count + (i64)first * c.row, m -= first;
    __syncthreads();
    Ring<DEPTH> at;
    if (warp < PRODUCERS) {
        registers_down<48>();
        const bool vectors = ((reinterpret_cast<u64>(outputs) | 4 * (u64)g.outerPixel | 4 * g.widthPixel | 4 * a.row) & 15) == 0;
        static_assert(CHANNELS * BANDS * PAIRS <= 32 * PRODUCERS && FILTERS * 2 * BAND == 32 * PRODUCERS, "a thread splits six elements of a line and eight of gradients");
        const int line = threadIdx.x / PAIRS, pair = threadIdx.x - line * PAIRS, channel = line / BANDS, f = warp / 2 * 8 + lane % 8, eight = warp % 2 * 4 + lane / 8;
        int row = split * chunk / width, part = 0;
        float d[8];
        const auto load = [&](float (&d)[8]) {
            const int b = row / height, y = row - b * height, rows = min(min(end - row, height - y), BAND), pixel = 16 * part + eight % 2 * 8;
            const bool has = f < m && eight / 2 < rows;
            const float* const of = outputs + b * g.outerPixel + (i64)f * a.row + (y + eight / 2) * g.widthPixel + pixel;
            if (vectors && has && pixel + 8 <= width) {
                const float4 low = *reinterpret_cast<const float4*>(of), high = *reinterpret_cast<const float4*>(of + 4);
                d[0] = low.x, d[1] = low.y, d[2] = low.z, d[3] = low.w, d[4] = high.x, d[5] = high.y, d[6] = high.z, d[7] = high.w;
            } else {
#pragma unroll
                for (int e = 0; e < 8; e++) d[e] = load_if(of, e, has && pixel + e < width);
            }
        };
        bool more = row < end;
        if (more) load(d);
#pragma unroll 1
        for (; more; at.next()) {
            float v[6], next[8];
            const int b = row / height, y = row - b * height, h = 2 * y - g.rows.pad + line - channel * BANDS, x = 32 * part + 4 * pair - g.columns.pad;
            const float* const from = g.images + b * g.image;
#pragma unroll
            for (int e = 0; e < 6; e++) v[e] = load_if(from, channel * g.plane + h * g.width + x + e, channel < CHANNELS && (u32)h < (u32)g.rows.images && (u32)(x + e) < (u32)g.columns.images);
            if (++part == parts) part = 0, row += min(min(end - row, height - y), BAND);
            if (more = row < end; more) load(next);
            Magnitudes met, range;
#pragma unroll
            for (int e = 0; e < 6; e++) met.add(v[e]);
#pragma unroll
            for (int e = 0; e < 8; e++) range.add(d[e]);
            barrier_wait(empty + at.stage * 8, at.parity ^ 1);
            const u32 to = stages + at.stage * BOTH;
#pragma unroll
            for (int p = 0; p < 3; p++) {
                const u32 even = split_next(v[0], v[2]), odd = split_next(v[1], v[3]), last = split_next(v[4], v[5]), place = to + p * IMAGES + (line * 4 * PAIRS + pair) * 4;
                if (channel < CHANNELS) {
                    store_shared(place, even), store_shared(place + PAIRS * 4, odd);
                    store_shared(place + PAIRS * 8, __byte_perm(even, last, 0x5432)), store_shared(place + PAIRS * 12, __byte_perm(odd, last, 0x7632));
                }
                u32 w[4];
#pragma unroll
                for (int e = 0; e < 4; e++) w[e] = split_next(d[2 * e], d[2 * e + 1]);
                asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + BOTH - (3 - p) * GRADIENTS + eight * CHUNK + f * 16), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
            }
            met.join(), range.join();
            if (lane == 0) asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(ranges + (at.stage * PRODUCERS + warp) * 16), "r"(met.most), "r"(met.least), "r"(range.most), "r"(range.least) : "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            arrive(full + at.stage * 8);
#pragma unroll
            for (int e = 0; e < 8; e++) d[e] = next[e];
        }
        return;
    }
    registers_up<104>();
    const int q = lane / 4, l = lane % 4, line0 = (warp - PRODUCERS) * 2, line1 = line0 + 1; // of a filter
    const auto place = [&](int line) { return ((min(line, LINES - 1) / SIZE * BANDS + min(line, LINES - 1) % SIZE) * 4 * PAIRS + q % 4 * PAIRS + q / 4 + l) * 4; };
    const u32 from0 = stages + place(line0), from1 = stages + place(line1);
    float sum[32] = {};
#pragma unroll 1
    for (int row = split * chunk / width, rows; row < end; row += rows) {
        const int b = row / height, y = row - b * height;
        rows = min(min(end - row, height - y), BAND);
#pragma unroll 1
        for (int part = 0; part < parts; part++, at.next()) {
            barrier_wait(full + at.stage * 8, at.parity);
            Magnitudes met, range;
            if (lane < PRODUCERS) {
                const u32 of = ranges + (at.stage * PRODUCERS + lane) * 16;
                met.add(load_shared(of), load_shared(of + 4)), range.add(load_shared(of + 8), load_shared(of + 12));
            }
            met.join(), range.join();
            if (uniform(plain(met, range))) {
                const u64 d = chunks(stages + at.stage * BOTH + BOTH - 3 * GRADIENTS);
                constexpr int NEXT = GRADIENTS >> 4;
#pragma unroll
                for (int s = 0; s < BAND; s += 2) { // two rows: 32 terms, which the tensor cores add up
                    float part[32];
                    u32 x[2][3][4];
#pragma unroll
                    for (int u = 0; u < 2; u++)
#pragma unroll
                        for (int p = 0; p < 3; p++)
#pragma unroll
                            for (int e = 0; e < 4; e++) x[u][p][e] = load_shared((e % 2 ? from1 : from0) + at.stage * BOTH + p * IMAGES + 2 * (s + u) * 4 * PAIRS * 4 + e / 2 * 16);
                    pin(part);
                    wgmma_fence();
#pragma unroll
                    for (int of = 0; of < 6; of++) // the least products first
#pragma unroll
                        for (int u = 0; u < 2; u++) {
                            constexpr int X[6] = {2, 1, 0, 1, 0, 0}, D[6] = {0, 1, 2, 0, 1, 0};
                            wgmma_bf16(part, x[u][X[of]], d + 2 * (s + u) * (CHUNK >> 4) + D[of] * NEXT, of + u > 0);
                        }
                    wgmma_commit();
                    wgmma_wait<0>();
                    pin(part);
#pragma unroll
                    for (int e = 0; e < 32; e++) sum[e] += part[e];
                }
            } else {
                const float* const from = g.images + b * g.image;
                const float* const of = outputs + b * g.outerPixel + (i64)y * g.widthPixel + 16 * part;
#pragma unroll 1
                for (int i = 0; i < 16 * rows; i++) {
                    const int r = i / 16, p = i % 16, x = 2 * (16 * part + p) + q - g.columns.pad;
                    if (16 * part + p >= width) continue;
                    const auto meet = [&](int line) {
                        const int h = 2 * (y + r) - g.rows.pad + line % SIZE;
                        return load_if(from, min(line / SIZE, CHANNELS - 1) * g.plane + h * g.width + x, line < LINES && q < SIZE && (u32)h < (u32)g.rows.images && (u32)x < (u32)g.columns.images);
                    };
                    const float v[2] = {meet(line0), meet(line1)};
#pragma unroll
                    for (int e = 0; e < 16; e++) {
                        const int f = e / 2 * 8 + 2 * l + e % 2;
                        const float d = load_if(of, f * a.row + r * g.widthPixel + p, f < m);
                        sum[e / 2 * 4 + e % 2] += d * v[0], sum[e / 2 * 4 + e % 2 + 2] += d * v[1];
                    }
                }
            }
            arrive(empty + at.stage * 8);
        }
    }
#pragma unroll
    for (int e = 0; e < 32; e++) {
        const int f = e / 4 * 8 + 2 * l + e % 2, line = line0 + e / 2 % 2;
        if (f < m && q < SIZE && line < LINES) out[(i64)f * c.row + line * SIZE + q] = sum[e];
    }
}
// ---- Images

// A block computes gradients w.r.t. HALF x 2 columns of two rows of images at a time, for whose 2 x 2 pixels gradients w.r.t. four columns of outputs are multiplied by the taps of 64 filters. The 48 columns of wgmma
// are a channel, a row of two, one of four pairs of rows, which a line of outputs meets, and a column of two. The sums of a pair of rows move on among four lanes, from line to line of outputs.
constexpr int HALF = 112, STEP = 120, PAIR = FILTERS / 2, LINE = PAIR * STEP * 4, COLUMNS = 48, EIGHT = COLUMNS * 16, MATRIX = 4 * FILTERS / 8 * EIGHT, IMAGE_THREADS = 384;

__device__ __forceinline__ void wgmma_bf16(float (&d)[24], const u32 (&a)[4], u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %29, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27}, %28, p, 1, 1, 0;\n}"
                 : D8(0), D8(8), D8(16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void gradients(const Gathered<float>& g, const float* __restrict__ filters, float* __restrict__ out, int k, Rows c) {
    const u32 start = (shared_address(dynamic) + 127) / 128 * 128, full = start, empty = start + 16, odd = start + 32, ranges = start + 64, taps = start + 256, stages = taps + 3 * MATRIX;
    const int group = uniform(threadIdx.x / 128), warp = uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32, count = k / g.taps.d;
    const int columns = (g.columns.pixels + 1) / 2, rows = (g.rows.pixels + 1) / 2, across = (columns + HALF - 1) / HALF, b = blockIdx.x / across, x0 = blockIdx.x % across * HALF;
    const int each = (rows + gridDim.y - 1) / gridDim.y, y0 = blockIdx.y * each, end = min(y0 + each, rows), offsetY = (g.rows.pad + 1) / 2, offsetX = (g.columns.pad + 1) / 2; // of pairs
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; s++) barrier_init(full + 8 * s, 128), barrier_init(empty + 8 * s, 256);
    Magnitudes range;
    for (int i = threadIdx.x; i < FILTERS * 2 * COLUMNS; i += IMAGE_THREADS) { // four terms of a column: contiguous filters of a tap
        const int n = i % COLUMNS, f = i / COLUMNS % 32 * 2, step = i / COLUMNS / 32, t = n / 16 * SIZE * SIZE + (n / 8 % 2 + n / 2 % 4 * 2 - 1) * SIZE + 2 * step + n % 2 - 1;
        const bool has = n / 8 % 2 + n / 2 % 4 > 0 && step + n % 2 > 0;
        float low = load_if(filters, f * TERMS + t, has && f < count), high = load_if(filters, (f + 1) * TERMS + t, has && f + 1 < count);
        range.add(low), range.add(high);
#pragma unroll
        for (int p = 0; p < 3; p++) store_shared(taps + p * MATRIX + ((f / 16 * 4 + step) * 2 + f / 8 % 2) * EIGHT + n * 16 + f % 8 * 2, split_next(low, high));
    }
    range.join();
    if (lane == 0) store_shared(ranges + threadIdx.x / 32 * 8, range.most), store_shared(ranges + threadIdx.x / 32 * 8 + 4, range.least);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const float* const from = g.images + b * g.image;
    Ring<2> at;
    if (group == 0) {
        registers_down<104>();
#pragma unroll 1
        for (int w = 0; w < IMAGE_THREADS / 32; w++) range.add(load_shared(ranges + w * 8), load_shared(ranges + w * 8 + 4));
        const int x = x0 + offsetX - 3 + threadIdx.x;
        const bool here = threadIdx.x < STEP;
#pragma unroll 1
        for (int y = y0 + offsetY - 3; y < end + offsetY; y++, at.next()) {
            const bool has = here && (u32)x < (u32)g.columns.images && (u32)y < (u32)g.rows.images;
            u32 to = stages + at.stage * 3 * LINE + threadIdx.x * 4;
            Magnitudes met;
#pragma unroll 1
            for (int f = 0; f < FILTERS; f += 32) {
                float v[32];
#pragma unroll
                for (int e = 0; e < 32; e++) v[e] = load_if(from + (i64)(f + e) * g.plane, y * g.width + x, has && f + e < count);
                if (f == 0) barrier_wait(empty + at.stage * 8, at.parity ^ 1);
#pragma unroll
                for (int e = 0; e < 32; e += 2, to += STEP * 4) {
                    met.add(v[e]), met.add(v[e + 1]);
#pragma unroll
                    for (int p = 0; p < 3; p++) {
                        const u32 part = split_next(v[e], v[e + 1]);
                        if (here) store_shared(to + p * LINE, part);
                    }
                }
            }
            met.join();
            if (lane == 0) store_shared(odd + at.stage * 16 + warp * 4, !plain(met, range));
            arrive(full + at.stage * 8);
        }
        return;
    }
    registers_up<200>();
    const int q = lane / 4, l = lane % 4, column = ((group - 1) * 4 + warp) * 16 + q, x = x0 + column; // pairs of columns x and x + 8
    const bool vectors = (g.outerPixel | c.row | g.widthPixel) % 2 == 0 && reinterpret_cast<u64>(out) % 8 == 0;
    const u64 matrix = (taps & 0x3ffff) >> 4 | (u64)(EIGHT >> 4) << 16 | (u64)(128 >> 4) << 32;
    float sum[24] = {};
#pragma unroll 1
    for (int y = y0 + offsetY - 3; y < end + offsetY; y++, at.next()) {
#pragma unroll
        for (int e = 0; e < 24; e++) {
            const float next = __shfl_down_sync(0xffffffff, sum[e], 1);
            sum[e] = l == 3 ? 0 : next;
        }
        barrier_wait(full + at.stage * 8, at.parity);
        u32 wrong = 0;
#pragma unroll
        for (int w = 0; w < 4; w++) wrong |= load_shared(odd + at.stage * 16 + w * 4);
        if (uniform(wrong)) {
#pragma unroll 1
            for (int i = 0; i < 4 * count; i++) {
                const int f = i / 4, j = 2 * (i % 4) - 1, at = x + offsetX - i % 4;
                const float* const line = from + (i64)f * g.plane;
                const bool has = (u32)y < (u32)g.rows.images;
                const float v[2] = {load_if(line, y * g.width + at, has && (u32)at < (u32)g.columns.images), load_if(line, y * g.width + at + 8, has && (u32)(at + 8) < (u32)g.columns.images)};
#pragma unroll
                for (int n = 0; n < 6; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int row = 2 * l + n % 2 - 1;
                        if (row < 0 || j + e < 0) continue;
                        const float w = filters[f * TERMS + n / 2 * SIZE * SIZE + row * SIZE + j + e];
                        sum[4 * n + e] += w * v[0], sum[4 * n + e + 2] += w * v[1];
                    }
            }
        } else {
            const u32 of = stages + at.stage * 3 * LINE + (l * STEP + (column < HALF ? column : q)) * 4; // warps beyond the last column read the first ones: a line ends there
            float low[24] = {}, part[24];
            u32 a[4][3][4]; // of four steps: 16 filters of a column of outputs
            const auto load = [&](int s) {
#pragma unroll
                for (int p = 0; p < 3; p++)
#pragma unroll
                    for (int e = 0; e < 4; e++) a[s % 4][p][e] = load_shared(of + p * LINE + ((s / 4 * 8 + e / 2 * 4) * STEP + 3 - s % 4 + e % 2 * 8) * 4);
            };
            load(0), load(1);
#pragma unroll
            for (int s = 0; s < 16; s += 2) {
                pin(part), pin(low);
                wgmma_fence();
#pragma unroll
                for (int u = s; u < s + 2; u++) {
                    const u64 w = matrix + 2 * u * (EIGHT >> 4);
                    constexpr int NEXT = MATRIX >> 4;
                    wgmma_bf16(low, a[u % 4][2], w, 1);
                    wgmma_bf16(low, a[u % 4][1], w + NEXT, 1);
                    wgmma_bf16(low, a[u % 4][0], w + 2 * NEXT, 1);
                    wgmma_bf16(low, a[u % 4][1], w, 1);
                    wgmma_bf16(low, a[u % 4][0], w + NEXT, 1);
                    wgmma_bf16(part, a[u % 4][0], w, u > s);
                }
                wgmma_commit();
                if (s + 2 < 16) load(s + 2), load(s + 3);
                wgmma_wait<0>();
                pin(part), pin(low);
#pragma unroll
                for (int e = 0; e < 24; e++) sum[e] += part[e];
            }
#pragma unroll
            for (int e = 0; e < 24; e++) sum[e] += low[e];
        }
        arrive(empty + at.stage * 8);
        if (y - offsetY < y0 || l > 0) continue; // the first lane of four has the pair of rows that has met all
#pragma unroll
        for (int n = 0; n < 6; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int row = 2 * (y - offsetY) + n % 2, to = 2 * (x + 8 * r);
                if (row >= g.rows.pixels || column + 8 * r >= HALF || to >= g.columns.pixels) continue;
                float* const pixel = out + b * g.outerPixel + (i64)(n / 2) * c.row + (i64)row * g.widthPixel + to;
                if (vectors) *reinterpret_cast<float2*>(pixel) = make_float2(sum[4 * n + 2 * r], sum[4 * n + 2 * r + 1]);
                else if (pixel[0] = sum[4 * n + 2 * r]; to + 1 < g.columns.pixels) pixel[1] = sum[4 * n + 2 * r + 1];
            }
    }
}
#else
#define SPLIT_BODY(...)
#endif

extern "C" __global__ void __launch_bounds__(512, 1) conv_few_split_3x7_f32(PARAMETERS(float)) {
    follow();
    SPLIT_BODY(outputs(GATHERED(float), matrix, out, m, n, {groupA, rowA}, {groupC, rowC});)
}
extern "C" __global__ void __launch_bounds__(896, 1) conv_few_split_filters_3x7_f32(PARAMETERS(float)) {
    follow();
    SPLIT_BODY(filters(GATHERED(float), matrix, out, m, k, chunk, count, {groupA, rowA}, {groupC, rowC});)
}
extern "C" __global__ void __launch_bounds__(384, 1) conv_few_split_images_3x7_f32(PARAMETERS(float)) {
    follow();
    SPLIT_BODY(gradients(GATHERED(float), matrix, out, k, {groupC, rowC});)
}
