// Convolutions of images of 1 or 3 channels with filters of 3 x 3 on devices of compute capability 9.0, and their gradients w.r.t. the filters, as conv.cu has them. The sums have so few
// terms that a thread keeps the window of a pixel in registers, where its products with all filters read it: the launch is bound by the memory of the outputs.
//
// Sums over terms are by FMA in the order of the terms. Gradients are summed over a lane's pixels, then over lanes; matmul_vector.cu's combine adds up the splits.
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
    if (q >= n) return;
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
    const auto load = [&](bool exists) {
#pragma unroll
        for (int u = 0; u < FILTERS; u++) next[u] = exists && first + u < m ? outputs[u * a.row + pixel.place] : 0.f;
    };
    load(k0 + lane < k1);
#pragma unroll 1
    for (int from = k0; from < k1; from += 32) {
        float x[TERMS], dy[FILTERS];
        window<C, S>(x, g, pixel, from + lane < k1);
#pragma unroll
        for (int u = 0; u < FILTERS; u++) dy[u] = next[u];
        pixel = g.pixel(0, v, h, min(from + 32 + lane, k - 1));
        load(from + 32 + lane < k1);
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
    }

FEW(1x3, 1, 3, 4, 8)
FEW(3x3, 3, 3, 2, 4)
