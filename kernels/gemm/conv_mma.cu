// Convolution by mma.sync in one launch, on devices of compute capability 8.0 and later. On 9.0 it is for layers that conv_hopper.cu is slow for: those too small for the launches that
// prepare its operands, groups of few channels, and windows that TMA does not gather. Operands are float32 in memory, as in conv.cu, and rounded to TF32, BF16 or F16 as they are multiplied; sums are float32.
//
// A block computes a tile of C over one split of K; another launch adds up the splits. A thread gathers its part of the next K slices of the matrix and the images, 32 terms each, to
// registers, while those before are multiplied, and stores it rounded to shared memory. (cp.async, four bytes at a time, took 1.2 times as long.) Terms are in the order of the matrix in
// memory. Each item of one side, a tap of a channel or a pixel, is found once and read from shared memory by the threads of a warp: an element of the images takes two additions and two
// comparisons.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
#include "matmul_f16.cuh"
#include "conv_gather.cuh"

extern __shared__ float4 dynamic[];

constexpr int BK = 32; // terms of a K slice

#if __CUDA_ARCH__ >= 800
#define ON_AMPERE(...) __VA_ARGS__
#else
#define ON_AMPERE(...)
#endif
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#else
#define ON_HOPPER(...)
#endif

// to_tf32 rounds to nearest, ties to even. The instruction exists from compute capability 9.0 on; before, infinities and NaN keep their upper bits.
__device__ __forceinline__ u32 to_tf32(float x) {
#if __CUDA_ARCH__ >= 900
    return tf32(x);
#else
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) bits |= 0x400000; // a NaN stays one
    else if ((bits & 0x7f800000) != 0x7f800000) bits += 0xfff + (bits >> 13 & 1);
    return bits & 0xffffe000;
#endif
}

// Tiles are those of a launch: m rows of a matrix by n columns of k terms, in each group and phase, and splits of chunk terms each.
struct Tiles {
    const float* matrix;
    float* out;
    int m, n, k, chunk, groups;
    i64 count;
    Rows a, c;
    int across, kind; // across: lanes load rows of the matrix and columns, where terms are not contiguous; kind: TF32, BF16, F16
};

// Tile is the shape of a block's work: DOWN x ACROSS warps share a tile of BM x BN. A stage has SLICES K slices of A and B, each a panel of BM or BN lines for 64 bytes of terms: one in
// 16 bits, two in TF32.
template <int BM_, int BN_, int DOWN, int ACROSS, int SLICES_> struct Tile {
    static constexpr int BM = BM_, BN = BN_, SLICES = SLICES_, THREADS = DOWN * ACROSS * 32, WM = BM / DOWN, WN = BN / ACROSS, MT = WM / 16, NT = WN / 8;
    template <int LINES, int SIZE> using Side = Panel<LINES, SIZE, 1, false, LINES * 4>;

    // multiply adds the products of so many panels.
    template <int SIZE, bool F16> static __device__ __forceinline__ void multiply(float (&sum)[MT][NT][4], u32 a, u32 b, int panels) {
        using A = Side<BM, SIZE>;
        using B = Side<BN, SIZE>;
        const int warp = threadIdx.x / 32;
        const u32 placeA = A::template place<true>(warp % DOWN * WM), placeB = B::template place<false>(warp / DOWN * WN);
#pragma unroll 1
        for (int p = 0; p < panels; p++, a += BM * 64, b += BN * 64)
#pragma unroll
            for (int l = 0; l < 2; l++) { // 32 bytes of terms
                u32 x[MT][4], y[NT / 2][4];
#pragma unroll
                for (int i = 0; i < MT; i++) A::load(x[i], a, placeA, 0, i, l);
#pragma unroll
                for (int j = 0; j < NT / 2; j++) B::load(y[j], b, placeB, 0, j, l);
#pragma unroll
                for (int i = 0; i < MT; i++)
#pragma unroll
                    for (int j = 0; j < NT; j++) mma_of<SIZE, F16>(sum[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
            }
    }
};

enum Kind { KIND_TF32, KIND_BF16, KIND_F16 };

__device__ __forceinline__ u32 pair(int kind, float x, float y) { return kind == KIND_F16 ? half<true>(make_float2(x, y)) : half<false>(make_float2(x, y)); }
__device__ __forceinline__ void store_shared(u32 to, u32 x) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory"); }
__device__ __forceinline__ void store_shared(u32 to, u32 x, u32 y) { asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x), "r"(y) : "memory"); }
__device__ __forceinline__ void store_shared(u32 to, u32 x, u32 y, u32 z, u32 w) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
// at is where 16 bytes of a line are in a panel, as in Panel.
__device__ __forceinline__ u32 at(int line, int part) { return line * 64 + (part ^ (line >> 1 & 3)) * 16; }

// line_of returns the line of a warp's u-th element where lanes are along terms: two lines in a row, so that lanes that are a pair exchange their terms.
template <int WARPS> __device__ __forceinline__ int line_of(int u) { return 2 * (threadIdx.x / 32) + u % 2 + u / 2 * (2 * WARPS); }

// store_terms stores a lane's term of EACH lines, and store_line EACH consecutive terms of a line from a term on, rounded.
template <int LINES, int EACH, int WARPS> __device__ __forceinline__ void store_terms(const float (&v)[EACH], u32 panel, int kind) {
    const int lane = threadIdx.x % 32;
    if (kind == KIND_TF32) {
#pragma unroll
        for (int u = 0; u < EACH; u++) store_shared(panel + lane / 16 * (LINES * 64) + at(line_of<WARPS>(u), lane / 4 % 4) + lane % 4 * 4, to_tf32(v[u]));
        return;
    }
    const bool odd = lane % 2;
#pragma unroll
    for (int u = 0; u < EACH; u += 2) {
        const float other = __shfl_xor_sync(0xffffffff, odd ? v[u] : v[u + 1], 1);
        store_shared(panel + at(line_of<WARPS>(u + odd), lane / 8) + lane / 2 % 4 * 4, odd ? pair(kind, other, v[u + 1]) : pair(kind, v[u], other));
    }
}
template <int LINES, int EACH> __device__ __forceinline__ void store_line(const float (&v)[EACH], u32 panel, int line, int term, int kind) {
    static_assert(EACH == 2 || EACH == 4 || EACH % 8 == 0); // a thread has whole words of 4, 8 or 16 bytes
    if (kind == KIND_TF32) {
        if constexpr (EACH == 2) store_shared(panel + term / 16 * (LINES * 64) + at(line, term / 4 % 4) + term % 4 * 4, to_tf32(v[0]), to_tf32(v[1]));
        else
#pragma unroll
            for (int u = 0; u < EACH; u += 4)
                store_shared(panel + (term + u) / 16 * (LINES * 64) + at(line, (term + u) / 4 % 4), to_tf32(v[u]), to_tf32(v[u + 1]), to_tf32(v[u + 2]), to_tf32(v[u + 3]));
        return;
    }
    if constexpr (EACH == 2) store_shared(panel + at(line, term / 8) + term % 8 * 2, pair(kind, v[0], v[1]));
    else if constexpr (EACH == 4) store_shared(panel + at(line, term / 8) + term % 8 * 2, pair(kind, v[0], v[1]), pair(kind, v[2], v[3]));
    else
#pragma unroll
        for (int u = 0; u < EACH; u += 8)
            store_shared(panel + at(line, (term + u) / 8), pair(kind, v[u], v[u + 1]), pair(kind, v[u + 2], v[u + 3]), pair(kind, v[u + 4], v[u + 5]), pair(kind, v[u + 6], v[u + 7]));
}

// small computes a tile of a split. With FILTERS, terms are pixels and columns are taps of channels; without it, terms are taps of channels and columns are pixels. A thread has elements of
// one column, or of one term if terms of FILTERS are contiguous.
template <bool FILTERS, typename F> __device__ __forceinline__ void small(const Gathered<float>& g, const Tiles& t) {
    constexpr int WARPS = F::THREADS / 32, EACH_A = F::BM * BK / F::THREADS, EACH_B = F::BN * BK / F::THREADS, PITCH = F::BN + 8; // so that a warp's pairs meet in no bank
    __shared__ Item items[F::THREADS > F::BN ? F::THREADS : F::BN]; // the terms of a K slice for each warp, or the columns of the tile
    using Pixel = typename Gathered<float>::Pixel;
    using Tap = typename Gathered<float>::Tap;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, down = (t.m + F::BM - 1) / F::BM, columns = (t.n + F::BN - 1) / F::BN;
    unsigned id = blockIdx.x;
    const int m0 = id % down * F::BM, n0 = (id /= down) % columns * F::BN, group = (id /= columns) % t.groups;
    const Phase v(g.rows, (id /= t.groups) % g.rows.phases), h(g.columns, (id /= g.rows.phases) % g.columns.phases);
    const int split = id / g.columns.phases, k0 = split * t.chunk, terms = max(min(t.k - k0, t.chunk), 0), end = k0 + terms;

    const float* const matrix = t.matrix + (i64)group * t.a.group + (i64)m0 * t.a.row;
    const int rows = t.m - m0, line = threadIdx.x % F::BM, lineTerm = threadIdx.x / F::BM * EACH_A, spot = threadIdx.x % F::BN, spotTerm = threadIdx.x / F::BN * EACH_B;
    const bool across = t.across, byTerm = FILTERS && !across; // byTerm: a lane has a term of several columns
    const float *column = nullptr, *const lines = across ? matrix + (i64)line * t.a.row : matrix + (i64)(2 * warp) * t.a.row;
    int y = 0, x = 0; // of the thread's column, or of its term
    if constexpr (FILTERS) {
        if (byTerm) {
            for (int i = threadIdx.x; i < F::BN; i += F::THREADS) items[i] = g.item(g.tap(v, h, min(n0 + i, t.n - 1)), n0 + i < t.n);
            __syncthreads();
        } else {
            const Item own = g.item(g.tap(v, h, min(n0 + spot, t.n - 1)), n0 + spot < t.n);
            column = g.images + group * g.group + own.offset, y = own.y, x = own.x;
        }
    } else {
        const Pixel p = g.pixel(group, v, h, min(n0 + spot, t.n - 1));
        column = p.base + (i64)p.y * g.width + p.x, y = p.y, x = p.x;
    }
    int from = k0;
    float a[F::SLICES][EACH_A], b[F::SLICES][EACH_B]; // of the next K slices
    const auto load = [&] {
#pragma unroll
        for (int d = 0; d < F::SLICES; d++, from += BK) {
            if (from >= end) break;
            const int term = min(from + lane, t.k - 1);
            bool has = from + lane < end;
            Item own;
            i64 place;
            if constexpr (FILTERS) {
                const Pixel p = g.pixel(group, v, h, term);
                place = p.place;
                own.place = has ? (int)p.place : -1;
                if (byTerm) column = p.base + (i64)p.y * g.width + p.x, y = has ? p.y : Item::NONE, x = p.x;
                else own.offset = (int)(p.base - g.images) - group * g.group + p.y * g.width + p.x, own.y = has ? p.y : Item::NONE, own.x = p.x;
            } else {
                const Tap tap = g.tap(v, h, term);
                own = g.item(tap, has);
                place = tap.place, has = has && tap.inside;
                own.place = has ? tap.place : -1;
            }
            if (!byTerm) {
                __syncwarp(); // all have read the terms before
                items[threadIdx.x] = own;
                __syncwarp();
            }
            if (!across) {
                const float* const p = lines + place;
                const int limit = has ? rows - 2 * warp : 0;
#pragma unroll
                for (int u = 0; u < EACH_A; u++) {
                    const int next = u % 2 + u / 2 * (2 * WARPS); // line_of without the warp
                    a[d][u] = load_if(p, (int)((u32)next * (u32)t.a.row), next < limit);
                }
            } else { // places are in 32 bits
#pragma unroll
                for (int u = 0; u < EACH_A; u++) {
                    const int of = items[warp * 32 + lineTerm + u].place;
                    a[d][u] = load_if(lines, of, of >= 0 && line < rows);
                }
            }
#pragma unroll
            for (int u = 0; u < EACH_B; u++) b[d][u] = g.meet(column, y, x, items[byTerm ? line_of<WARPS>(u) : warp * 32 + spotTerm + u]);
        }
    };
    const int panels = t.kind == KIND_TF32 ? 2 : 1; // of a slice
    const u32 memory = (u32)__cvta_generic_to_shared(dynamic), side = F::SLICES * panels * F::BM * 64, size = F::SLICES * panels * (F::BM + F::BN) * 64;
    const auto store = [&](u32 stage, int slices) {
#pragma unroll
        for (int d = 0; d < F::SLICES; d++) {
            if (d >= slices) break;
            const u32 toA = stage + d * panels * F::BM * 64, toB = stage + side + d * panels * F::BN * 64;
            if (!across) store_terms<F::BM, EACH_A, WARPS>(a[d], toA, t.kind);
            else store_line<F::BM>(a[d], toA, line, lineTerm, t.kind);
            if (byTerm) store_terms<F::BN, EACH_B, WARPS>(b[d], toB, t.kind);
            else store_line<F::BN>(b[d], toB, spot, spotTerm, t.kind);
        }
    };
    float sum[F::MT][F::NT][4];
#pragma unroll
    for (int i = 0; i < F::MT * F::NT * 4; i++) sum[i / (F::NT * 4)][i / 4 % F::NT][i % 4] = 0;
    follow();
    u32 stage = memory;
    int slices = 0;
#pragma unroll 1
    for (int left = terms;; left -= F::SLICES * BK) {
        if (left > 0) load(); // the next slices are in flight while those before are multiplied
        __syncthreads();      // those are stored, and all have multiplied those before them, whose stage comes next
        if (t.kind == KIND_TF32) F::template multiply<4, false>(sum, stage, stage + side, slices * panels);
        else if (t.kind == KIND_BF16) F::template multiply<2, false>(sum, stage, stage + side, slices * panels);
        else F::template multiply<2, true>(sum, stage, stage + side, slices * panels);
        if (left <= 0) break;
        stage = stage == memory ? memory + size : memory, slices = min((left + BK - 1) / BK, F::SLICES);
        store(stage, slices);
    }
    admit();

    // Sums go through shared memory, so that lanes write along pixels, or columns of filters.
    __syncthreads(); // all have multiplied the last slices
    float* const sums = reinterpret_cast<float*>(dynamic);
    const int row0 = warp % (F::BM / F::WM) * F::WM + lane / 4, col0 = warp / (F::BM / F::WM) * F::WN + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < F::MT * F::NT * 2; i++) {
        const int j = i / 2 % F::NT, k = i / 2 / F::NT, r = i % 2;
        *reinterpret_cast<float2*>(sums + (row0 + k * 16 + r * 8) * PITCH + col0 + j * 8) = make_float2(sum[k][j][2 * r], sum[k][j][2 * r + 1]);
    }
    i64 place = n0 + spot;
    bool inside = place < t.n;
    if constexpr (!FILTERS) {
        const Pixel p = g.pixel(group, v, h, min((int)place, t.n - 1));
        place = p.place, inside = inside && p.inside;
    }
    __syncthreads();
    float* const out = t.out + split * t.count + (i64)group * t.c.group + (i64)m0 * t.c.row + place;
#pragma unroll 4
    for (int row = threadIdx.x / F::BN; row < F::BM; row += F::THREADS / F::BN)
        if (inside && row < rows) out[(i64)row * t.c.row] = sums[row * PITCH + spot];
}

#define ENTRY(name, ON, FILTERS, BLOCKS, ...)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(Tile<__VA_ARGS__>::THREADS, BLOCKS) conv_mma_##name(PARAMETERS(float), int across, int kind) {                        \
        ON(small<FILTERS, Tile<__VA_ARGS__>>(GATHERED(float), {matrix, out, m, n, k, chunk, groups, count, {groupA, rowA}, {groupC, rowC}, across, kind});) \
    }
// Devices, from 8.0 on or 9.0 alone, which has more room for images; blocks of an SM; tile, warps down and across, K slices of a stage.
ENTRY(windows, ON_HOPPER, false, 2, 64, 64, 2, 4, 2)
ENTRY(filters, ON_HOPPER, true, 2, 64, 64, 2, 4, 2)
ENTRY(windows_wide, ON_AMPERE, false, 2, 64, 128, 2, 4, 1)
ENTRY(filters_wide, ON_AMPERE, true, 2, 64, 128, 2, 4, 1)
ENTRY(windows_few, ON_AMPERE, false, 3, 32, 32, 2, 2, 4)
ENTRY(filters_few, ON_AMPERE, true, 3, 32, 32, 2, 2, 4)
ENTRY(windows_thin, ON_HOPPER, false, 2, 16, 128, 1, 8, 2)
ENTRY(filters_thin, ON_HOPPER, true, 2, 16, 128, 1, 8, 2)
