// Convolutions of images of 1 or 3 channels with filters of 3 x 3 on devices of compute capability 9.0, and their gradients w.r.t. the filters, as conv.cu has them. The sums have so few
// terms that a thread keeps the window of a pixel in registers, where its products with all filters read it: the launch is bound by the memory of the outputs. For images of 3
// channels with 7 x 7 taps at a stride of 2, a thread keeps sums of a few pixels in registers instead; that launch is bound by FMA, and conv_few_split.cu's are faster for many filters.
//
// Sums over terms are by FMA in the order of the terms. Gradients are summed over a lane's pixels, then over lanes; matmul_vector.cu's combine adds up the splits.
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "conv_gather.cuh"

#if __CUDA_ARCH__ == 900
#define FEW_BODY(...) __VA_ARGS__
constexpr int FEW_FILTERS = 8, FEW_MOST = 64; // filters that a thread computes at a time, and of a block: as in conv_few.go

// The window of a pixel, of C channels and S x S taps, with 0 outside of the image.
template <int C, int S> __device__ __forceinline__ void window(float (&x)[C * S * S], const Gathered<float>& g, const Gathered<float>::Pixel& p, bool exists) {
    bool row[S], column[S];
#pragma unroll
    for (int i = 0; i < S; i++) {
        row[i] = exists && (unsigned)(p.y + i * g.rows.step) < (unsigned)g.rows.images;
        column[i] = (unsigned)(p.x + i * g.columns.step) < (unsigned)g.columns.images;
    }
    const float* const from = p.base + (p.y * g.width + p.x);
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < S; i++)
#pragma unroll
            for (int j = 0; j < S; j++) x[(c * S + i) * S + j] = row[i] && column[j] ? from[c * g.plane + i * g.rows.step * g.width + j * g.columns.step] : 0.f;
}

// A thread computes PIXELS pixels; blocks (x, y) have part y of the filters.
template <int C, int S, int PIXELS> __device__ __forceinline__ void outputs(const Gathered<float>& g, const float* __restrict__ filters, float* __restrict__ out, int m, int n, Rows a, Rows c) {
    constexpr int TERMS = C * S * S;
    __shared__ __align__(16) float w[TERMS][FEW_MOST];
    const int each = (m + gridDim.y * FEW_FILTERS - 1) / (gridDim.y * FEW_FILTERS) * FEW_FILTERS, first = blockIdx.y * each, mine = min(each, m - first);
    for (int i = threadIdx.x; i < TERMS * each; i += blockDim.x) {
        const int f = i / TERMS, t = i - f * TERMS;
        w[t][f] = f < mine ? filters[(i64)(first + f) * a.row + t] : 0.f;
    }
    const Phase v(g.rows, 0), h(g.columns, 0);
    const int q = (blockIdx.x * blockDim.x + threadIdx.x) * PIXELS;
    const bool last = c.row == 1 && m % FEW_FILTERS == 0; // the pixels of outputs have their channels contiguous
    float x[PIXELS][TERMS];
    i64 place[PIXELS];
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
        const auto pixel = g.pixel(0, v, h, min(q + p, n - 1));
        place[p] = pixel.place;
        window<C, S>(x[p], g, pixel, true);
    }
    const bool wide = g.pixels.d % PIXELS == 0 && c.row % PIXELS == 0 && reinterpret_cast<unsigned long long>(out) % (4 * PIXELS) == 0; // then the pixels are neighbours, of one image
    __syncthreads();
    admit();
    if (!last && q >= n) return;
    out += (i64)first * c.row;
#pragma unroll 1
    for (int f = 0; f < mine; f += FEW_FILTERS, out += (i64)FEW_FILTERS * c.row) {
        float sum[FEW_FILTERS][PIXELS] = {};
#pragma unroll
        for (int t = 0; t < TERMS; t++) {
            float factor[FEW_FILTERS];
            *reinterpret_cast<float4*>(factor) = *reinterpret_cast<const float4*>(&w[t][f]);
            *reinterpret_cast<float4*>(factor + 4) = *reinterpret_cast<const float4*>(&w[t][f + 4]);
#pragma unroll
            for (int u = 0; u < FEW_FILTERS; u++)
#pragma unroll
                for (int p = 0; p < PIXELS; p++) sum[u][p] += factor[u] * x[p][t];
        }
        if (last) { // two lanes write eight filters of a pixel, a sector
            const bool odd = threadIdx.x & 1;
#pragma unroll
            for (int p = 0; p < PIXELS; p++) {
                const float4 low = {sum[0][p], sum[1][p], sum[2][p], sum[3][p]}, high = {sum[4][p], sum[5][p], sum[6][p], sum[7][p]};
                const float4 send = odd ? low : high;
                const float4 other = {__shfl_xor_sync(0xffffffffu, send.x, 1), __shfl_xor_sync(0xffffffffu, send.y, 1), __shfl_xor_sync(0xffffffffu, send.z, 1), __shfl_xor_sync(0xffffffffu, send.w, 1)};
                const int even = q + p - odd * PIXELS; // the even lane's pixel
                float* const to = out + (i64)even * m + 4 * odd;
                if (even < n) *reinterpret_cast<float4*>(to) = odd ? other : low;
                if (even + PIXELS < n) *reinterpret_cast<float4*>(to + (i64)PIXELS * m) = odd ? high : other;
            }
            continue;
        }
#pragma unroll
        for (int u = 0; u < FEW_FILTERS; u++) {
            if (f + u >= mine) break;
            float* const to = out + (i64)u * c.row;
            if (wide) {
                if constexpr (PIXELS == 4) *reinterpret_cast<float4*>(to + place[0]) = {sum[u][0], sum[u][1], sum[u][2], sum[u][3]};
                else *reinterpret_cast<float2*>(to + place[0]) = {sum[u][0], sum[u][1]};
            } else {
#pragma unroll
                for (int p = 0; p < PIXELS; p++)
                    if (q + p < n) to[place[p]] = sum[u][p];
            }
        }
    }
}

// Lanes whose numbers differ in D add up their first 2 D numbers; the lane with the higher number keeps the upper half.
template <int D> __device__ __forceinline__ void halve(float (&s)[32], int lane) {
    const bool upper = lane & D;
#pragma unroll
    for (int i = 0; i < D; i++) {
        const float other = __shfl_xor_sync(0xffffffffu, upper ? s[i] : s[i + D], D);
        s[i] = (upper ? s[i + D] : s[i]) + other;
    }
}

// A warp computes the gradients w.r.t. FILTERS filters, a lane the sums over every 32nd pixel of a split; a block has the filters of its four warps. The next pixel's gradients w.r.t. the
// outputs are loaded while those of a pixel are multiplied.
template <int C, int S, int FILTERS>
__device__ __forceinline__ void filters(const Gathered<float>& g, const float* __restrict__ outputs, float* __restrict__ out, int m, int k, int chunk, i64 count, Rows a, Rows c) {
    constexpr int TERMS = C * S * S;
    const int lane = threadIdx.x % 32, of = FILTERS * 4, across = (m + of - 1) / of, split = blockIdx.x / across, first = blockIdx.x % across * of + threadIdx.x / 32 * FILTERS;
    const int k0 = split * chunk, k1 = min(k - k0, chunk) + k0;
    const Phase v(g.rows, 0), h(g.columns, 0);
    float sum[FILTERS][TERMS] = {}, next[FILTERS];
    outputs += (i64)first * a.row;
    auto pixel = g.pixel(0, v, h, min(k0 + lane, k - 1));
    const auto load = [&](int q) {
        const i64 place = a.row == 1 ? (i64)q * m : pixel.place; // channels last, or one pixel
#pragma unroll
        for (int u = 0; u < FILTERS; u++) next[u] = q < k1 && first + u < m ? outputs[u * a.row + place] : 0.f;
    };
    load(k0 + lane);
#pragma unroll 1
    for (int from = k0; from < k1; from += 32) {
        float x[TERMS], dy[FILTERS];
        window<C, S>(x, g, pixel, from + lane < k1);
#pragma unroll
        for (int u = 0; u < FILTERS; u++) dy[u] = next[u];
        pixel = g.pixel(0, v, h, min(from + 32 + lane, k - 1));
        load(from + 32 + lane);
#pragma unroll
        for (int u = 0; u < FILTERS; u++)
#pragma unroll
            for (int t = 0; t < TERMS; t++) sum[u][t] += dy[u] * x[t];
    }
    admit();
    out += split * count + (i64)first * c.row;
#pragma unroll
    for (int from = 0; from < FILTERS * TERMS; from += 32) { // lane i adds up the sums of element from + i: at each step a lane keeps half of them
        float s[32];
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] = from + i < FILTERS * TERMS ? sum[(from + i) / TERMS][(from + i) % TERMS] : 0.f;
        halve<16>(s, lane), halve<8>(s, lane), halve<4>(s, lane), halve<2>(s, lane), halve<1>(s, lane);
        const int u = (from + lane) / TERMS;
        if (u < FILTERS && first + u < m) out[(i64)u * c.row + (from + lane) % TERMS] = s[0];
    }
}

// The same with stride and dilation 1: a warp computes the gradients w.r.t. 64 filters, a lane those of two, of every fourth row of a split, 32 pixels at a time. The gradients w.r.t. their outputs
// and the windows pass through shared memory, where lanes read the same elements of windows; a step to the next pixel reads one column of them. The sums of four warps are added up in their order.
constexpr int FEW_WARPS = 4, FEW_WIDE = 32;
template <int C> __device__ __forceinline__ void filters_rows(const Gathered<float>& g, const float* __restrict__ outputs, float* __restrict__ out, int m, int k, int chunk, i64 count, Rows a, Rows c) {
    constexpr int COLUMN = 3 * C, PITCH = (COLUMN + 3) / 4 * 4, COLUMNS = FEW_WIDE + 3, TERMS = 9 * C; // a column: the elements of a window with one x
    __shared__ float gradients[FEW_WARPS][64 * 33];
    __shared__ __align__(16) float windows[FEW_WARPS][COLUMNS * PITCH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, across = (m + 63) / 64, split = blockIdx.x / across, first = blockIdx.x % across * 64, width = g.pixelRow.d, height = g.pixels.d / width;
    const int row0 = split * (chunk / width), rows = min(k / width - row0, chunk / width);
    const bool last = a.row == 1;
    float sum[2][TERMS] = {};
    float* const dy = gradients[warp];
    float* const x = windows[warp];
#pragma unroll 1
    for (int row = row0 + warp; row < row0 + rows; row += FEW_WARPS) {
        const int b = row / height, y = row - b * height;
        const float* const from = g.images + b * g.image;
#pragma unroll 1
        for (int x0 = 0; x0 < width; x0 += FEW_WIDE) {
            const int pixels = min(width - x0, FEW_WIDE);
            __syncwarp();
            if (last) {
                const float* const of = outputs + ((i64)row * width + x0) * m + first + lane;
                const bool low = first + lane < m, high = first + lane + 32 < m;
#pragma unroll 8
                for (int p = 0; p < FEW_WIDE; p++) {
                    dy[lane * 33 + p] = low && p < pixels ? of[(i64)p * m] : 0.f;
                    dy[(lane + 32) * 33 + p] = high && p < pixels ? of[(i64)p * m + 32] : 0.f;
                }
            } else {
                const float* const of = outputs + (i64)first * a.row + b * g.outerPixel + y * g.widthPixel + x0 + lane;
#pragma unroll 16
                for (int f = 0; f < 64; f++) dy[f * 33 + lane] = lane < pixels && first + f < m ? of[(i64)f * a.row] : 0.f;
            }
#pragma unroll
            for (int part = 0; part < COLUMNS; part += 32) {
                const int column = part + lane, at = x0 + column - g.columns.pad;
#pragma unroll
                for (int e = 0; e < COLUMN; e++) {
                    const int h = y - g.rows.pad + e % 3;
                    if (column < COLUMNS) x[column * PITCH + e] = (unsigned)h < (unsigned)g.rows.images && (unsigned)at < (unsigned)g.columns.images ? from[e / 3 * g.plane + h * g.width + at] : 0.f;
                }
            }
            __syncwarp();
            float of[3][PITCH]; // three columns
            const auto load = [&](float (&to)[PITCH], int column) {
#pragma unroll
                for (int e = 0; e < PITCH; e += 4) *reinterpret_cast<float4*>(to + e) = *reinterpret_cast<const float4*>(x + column * PITCH + e);
            };
            load(of[0], 0), load(of[1], 1);
#pragma unroll 1
            for (int p = 0; p < pixels; p += 3) {
#pragma unroll
                for (int u = 0; u < 3; u++) {
                    load(of[(u + 2) % 3], p + u + 2);
                    if (p + u < pixels) {
                        const float low = dy[lane * 33 + p + u], high = dy[(lane + 32) * 33 + p + u];
#pragma unroll
                        for (int t = 0; t < TERMS; t++) {
                            const float v = of[(u + t % 3) % 3][t / 9 * 3 + t / 3 % 3];
                            sum[0][t] += low * v, sum[1][t] += high * v;
                        }
                    }
                }
            }
        }
    }
    admit();
    __syncthreads();
    float* const parts = &gradients[0][0]; // [warp][64][TERMS]
    constexpr int EACH = sizeof(gradients) / sizeof(float) / (64 * TERMS); // warps whose sums have room
    out += split * count + (i64)first * c.row;
    const int most = min(64, m - first) * TERMS;
    for (int from = 0; from < FEW_WARPS; from += EACH) {
        __syncthreads();
        if (warp >= from && warp < from + EACH)
#pragma unroll
            for (int u = 0; u < 2; u++)
#pragma unroll
                for (int t = 0; t < TERMS; t++) parts[((warp - from) * 64 + lane + 32 * u) * TERMS + t] = sum[u][t];
        __syncthreads();
        for (int i = threadIdx.x; i < most; i += 32 * FEW_WARPS) {
            float all = from == 0 ? 0.f : out[i / TERMS * (i64)c.row + i % TERMS];
            for (int w = 0; w < min(EACH, FEW_WARPS - from); w++) all += parts[w * 64 * TERMS + i];
            out[i / TERMS * (i64)c.row + i % TERMS] = all;
        }
    }
}
constexpr int FEW_SIDE = 16; // pixels or squares of pixels of a side of a block

// A block computes the gradients w.r.t. 32 x 32 pixels of C channels at a stride of 2 with S x S taps, S and the padding odd. A thread has four squares of 2 x 2 pixels, one below the other, which meet the same
// outputs: of these, copies of four filters and their taps are in flight while four are multiplied.
constexpr int FEW_TOGETHER = 4; // filters of a stage
template <int C, int S>
__device__ __forceinline__ void squares(const Gathered<float>& g, const float* __restrict__ filters, float* __restrict__ out, int k, Rows c) {
    constexpr int MEET = (S + 1) / 2, LINES = FEW_SIDE + MEET - 1, PITCH = 20, TERMS = C * S * S, TAPS = (TERMS + 3) / 4 * 4, THREADS = FEW_SIDE * FEW_SIDE / 4;
    static_assert(LINES <= PITCH && 4 * PITCH % 32 == FEW_SIDE, "two rows of threads read different banks");
    struct Stage {
        float outputs[FEW_TOGETHER][LINES * PITCH], taps[FEW_TOGETHER][TAPS];
    };
    __shared__ __align__(16) Stage stages[2];
    const int across = (g.columns.pixels + 2 * FEW_SIDE - 1) / (2 * FEW_SIDE), down = (g.rows.pixels + 2 * FEW_SIDE - 1) / (2 * FEW_SIDE), count = k / g.taps.d; // of filters
    const int tile = blockIdx.x % (across * down), b = blockIdx.x / (across * down), x0 = tile % across * FEW_SIDE, y0 = tile / across * FEW_SIDE;
    const int top = y0 + (g.rows.pad - 1) / 2 - MEET + 2, left = x0 + (g.columns.pad - 1) / 2 - MEET + 2;
    const float* const base = g.images + b * g.image;
    const auto fetch = [&](int from) {
        Stage& to = stages[from / FEW_TOGETHER % 2];
#pragma unroll 2
        for (int i = threadIdx.x; i < LINES * LINES; i += THREADS) {
            const int y = i / LINES, x = i - y * LINES;
            const bool has = (unsigned)(top + y) < (unsigned)g.rows.images && (unsigned)(left + x) < (unsigned)g.columns.images;
            const float* at = base + (has ? (top + y) * g.width + left + x : 0);
#pragma unroll
            for (int f = 0; f < FEW_TOGETHER; f++) async_copy(&to.outputs[f][y * PITCH + x], at + (i64)min(from + f, count - 1) * g.plane, has && from + f < count);
        }
        for (int i = threadIdx.x; i < FEW_TOGETHER * TERMS; i += THREADS) {
            const int f = i / TERMS;
            const bool has = from + f < count;
            async_copy(&to.taps[f][i - f * TERMS], filters + (has ? (i64)from * TERMS + i : 0), has);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    const int x = threadIdx.x % FEW_SIDE, y = threadIdx.x / FEW_SIDE * 4;
    float sum[C][4][2][2] = {};
    fetch(0);
#pragma unroll 1
    for (int from = 0; from < count; from += FEW_TOGETHER) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads(); // all have multiplied the stage before
        if (from + FEW_TOGETHER < count) fetch(from + FEW_TOGETHER);
        const Stage& of = stages[from / FEW_TOGETHER % 2];
#pragma unroll 1
        for (int f = 0; f < FEW_TOGETHER; f++) {
            float v[MEET + 3][MEET];
#pragma unroll
            for (int i = 0; i < MEET + 3; i++)
#pragma unroll
                for (int j = 0; j < MEET; j++) v[i][j] = of.outputs[f][(y + i) * PITCH + x + j];
#pragma unroll
            for (int t = 0; t < TERMS; t++) { // of odd taps the upper and left pixel meets the nearest output last but one, of even ones the other pixel meets the last
                const float w = of.taps[f][t];
                const int i = t / S % S, j = t % S;
#pragma unroll
                for (int n = 0; n < 4; n++) sum[t / (S * S)][n][1 - i % 2][1 - j % 2] += w * v[n + MEET - 1 - (i + 1) / 2][MEET - 1 - (j + 1) / 2];
            }
        }
    }
    admit();
    const int column = 2 * (x0 + x);
    if (column >= g.columns.pixels) return;
#pragma unroll
    for (int channel = 0; channel < C; channel++)
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int row = 2 * (y0 + y) + n;
            if (row >= g.rows.pixels) break;
            float* const to = out + b * g.outerPixel + (i64)channel * c.row + (i64)row * g.widthPixel + column;
            to[0] = sum[channel][n / 2][n % 2][0];
            if (column + 1 < g.columns.pixels) to[1] = sum[channel][n / 2][n % 2][1];
        }
}
#else
#define FEW_BODY(...)
#endif

#define FEW(NAME, C, S, PIXELS, FILTERS)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) conv_few_##NAME##_f32(PARAMETERS(float)) {                       \
        follow();                                                                                                      \
        FEW_BODY(outputs<C, S, PIXELS>(GATHERED(float), matrix, out, m, n, {groupA, rowA}, {groupC, rowC});)           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) conv_few_filters_##NAME##_f32(PARAMETERS(float)) {               \
        follow();                                                                                                      \
        FEW_BODY(filters<C, S, FILTERS>(GATHERED(float), matrix, out, m, k, chunk, count, {groupA, rowA}, {groupC, rowC});) \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) conv_few_rows_##NAME##_f32(PARAMETERS(float)) {                  \
        follow();                                                                                                      \
        FEW_BODY(filters_rows<C>(GATHERED(float), matrix, out, m, k, chunk, count, {groupA, rowA}, {groupC, rowC});)   \
    }

FEW(1x3, 1, 3, 4, 8)
FEW(3x3, 3, 3, 2, 4)
extern "C" __global__ void __launch_bounds__(64, 8) conv_few_images_3x7_f32(PARAMETERS(float)) {
    follow();
    FEW_BODY(squares<3, 7>(GATHERED(float), matrix, out, k, {groupC, rowC});)
}
