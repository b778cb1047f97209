// Convolution by mma.sync in one launch, on devices of compute capability 9.0, for layers that conv_hopper.cu is slow for: those too small for the launches that prepare its operands,
// groups of few channels, and windows that TMA does not gather. Operands are float32 in memory, as in conv.cu, and rounded to TF32, BF16 or F16 as they are multiplied; sums are float32.
//
// A block computes a tile of C over one split of K. cp.async gathers K slices of 32 terms of the matrix and the images to shared memory, STAGES - 1 of them ahead of those that are
// multiplied. Terms are in the order of the matrix in memory. A lane finds how one item of images, a tap of a channel, meets them, and the lanes of a warp exchange these by shuffles:
// an element of the images takes an addition and two comparisons. The blocks of a cluster reduce the splits of K, in an order that does not depend on timing.
#include "matmul_mma_tile.cuh"
#include "conv_gather.cuh"

#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#define BLOCKS_OF_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define ON_HOPPER(...)
#define BLOCKS_OF_CLUSTER(n)
#endif

// Meeting is how an item of the images, a tap of a channel, meets pixels: elements from a pixel's first to it, and the rows and columns of images, 16 bits each.
struct Meeting {
    int offset, apart;
    static constexpr int NONE = (int)0x80000000; // meets no row
    __device__ __forceinline__ Meeting of(int lane) const { return {__shfl_sync(0xffffffff, offset, lane), __shfl_sync(0xffffffff, apart, lane)}; }
    __device__ __forceinline__ bool meets(int y, int x, int rows, int columns) const {
        return (u32)(y + (apart >> 16)) < (u32)rows && (u32)(x + (short)apart) < (u32)columns;
    }
};
// Tiles are those of a launch: m rows of a matrix by n columns of k terms, in each group and phase, and `parts` splits of chunk terms each.
struct Tiles {
    const float* matrix;
    float* out;
    int m, n, k, chunk, groups;
    i64 count;
    Rows a, c;
    int parts, across, kind; // across: lanes copy rows of the matrix, whose terms are not contiguous; kind: TF32, BF16, F16
};

// multiply adds the products of a K slice.
template <typename F, bool FILTERS, int SIZE, bool F16> __device__ __forceinline__ void multiply(float (&sum)[F::MT][F::NT][4], const float* s, bool across) {
    if (FILTERS) F::template multiply<SIZE, F16, true, true>(sum, s);
    else if (!across) F::template multiply<SIZE, F16, true, false>(sum, s);
    else F::template multiply<SIZE, F16, false, false>(sum, s);
}

// small computes a tile of a split. With FILTERS terms are pixels and columns are taps of channels, else the other way round.
template <bool FILTERS, typename F, int JOIN> __device__ __forceinline__ void small(const Gathered<float>& g, const Tiles& t) {
    constexpr int WARPS = F::THREADS / 32, EACH_A = F::BM * BK / F::THREADS, EACH_B = F::BN * BK / F::THREADS, PITCH = F::BN + 8; // so that a warp's vectors meet in no bank
    using A = typename F::A;
    using B = typename F::B;
    using Pixel = typename Gathered<float>::Pixel;
    using Tap = typename Gathered<float>::Tap;
    const int together = JOIN ? t.parts : 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ u64 full; // the barrier of the sums that other blocks send
    if (together > 1) open_inbox(&full, F::TILE * 16);
    const int down = (t.m + F::BM - 1) / F::BM, columns = (t.n + F::BN - 1) / F::BN;
    const unsigned total = down * columns * t.groups * g.rows.phases * g.columns.phases;
    unsigned id = blockIdx.x;
    int split = 0, rank = 0;
    if constexpr (JOIN > 0) {
        const int log = 31 - __clz(t.parts);
        rank = id % JOIN, id = id / JOIN * (JOIN >> log) + (rank >> log), split = rank & (t.parts - 1);
    } else
        split = id / total, id -= split * total;
    const bool idle = id >= total;
    if (idle) id = 0;
    const int m0 = id % down * F::BM, n0 = (id /= down) % columns * F::BN, group = (id /= columns) % t.groups;
    const Phase v(g.rows, (id /= t.groups) % g.rows.phases), h(g.columns, id / g.rows.phases);
    const int k0 = split * t.chunk, terms = idle ? 0 : max(min(t.k - k0, t.chunk), 0), end = k0 + terms;
    float* const memory = reinterpret_cast<float*>(dynamic);
    float* const inbox = memory + STAGES * F::STAGE;

    const float *const matrix = t.matrix + (i64)group * t.a.group + (i64)m0 * t.a.row, *pixel = nullptr;
    const int rows = t.m - m0, line = threadIdx.x % F::BM, lineTerm = threadIdx.x / F::BM * EACH_A, spot = threadIdx.x % F::BN, spotTerm = threadIdx.x / F::BN * EACH_B;
    int y = 0, x = 0;
    Meeting meeting{0, Meeting::NONE}; // of a lane: of a column of the warp, or of a term
    const auto meets = [&](const Tap& tap, bool has) { meeting = {tap.base + tap.i * g.width + tap.j, has && tap.inside ? tap.i << 16 | (tap.j & 0xffff) : Meeting::NONE}; };
    if constexpr (FILTERS) {
        const int column = n0 + warp + WARPS * (lane % EACH_B);
        meets(g.tap(v, h, min(column, t.n - 1)), column < t.n);
    } else {
        const Pixel p = g.pixel(group, v, h, min(n0 + spot, t.n - 1));
        pixel = p.base + (i64)p.y * g.width + p.x, y = p.y, x = p.x;
    }
    int from = k0;
    const auto fetch = [&](float* a, float* b) {
        const int term = min(from + lane, t.k - 1);
        bool has = from + lane < end;
        from += BK;
        i64 place;
        if constexpr (FILTERS) {
            const Pixel p = g.pixel(group, v, h, term);
            place = p.place, pixel = p.base + (i64)p.y * g.width + p.x, y = has ? p.y : Meeting::NONE / 2, x = p.x;
        } else {
            const Tap tap = g.tap(v, h, term);
            meets(tap, has);
            place = tap.place, has = has && tap.inside;
        }
        if (FILTERS || !t.across) {
            a += warp * A::template LD<true> + lane;
            const float* p = matrix + place + (i64)warp * t.a.row;
#pragma unroll
            for (int u = 0; u < EACH_A; u++, p += (i64)WARPS * t.a.row) async_copy(a + u * WARPS * A::template LD<true>, p, has && warp + u * WARPS < rows);
        } else { // places are those of taps, in 32 bits
            a += lineTerm * A::template LD<false> + line;
            const float* const p = matrix + (i64)line * t.a.row;
            const int at = has ? (int)place : -1;
#pragma unroll
            for (int u = 0; u < EACH_A; u++) {
                const int of = __shfl_sync(0xffffffff, at, lineTerm + u);
                async_copy(a + u * A::template LD<false>, p + of, of >= 0 && line < rows);
            }
        }
        b += FILTERS ? warp * B::template LD<true> + lane : spotTerm * B::template LD<false> + spot;
#pragma unroll
        for (int u = 0; u < EACH_B; u++) {
            const Meeting of = meeting.of(FILTERS ? u : spotTerm + u);
            async_copy(b + (FILTERS ? u * WARPS * B::template LD<true> : u * B::template LD<false>), pixel + of.offset, of.meets(y, x, g.rows.images, g.columns.images));
        }
    };
    float sum[F::MT][F::NT][4];
#pragma unroll
    for (int i = 0; i < F::VECTORS * 4; i++) sum[i / (F::NT * 4)][i / 4 % F::NT][i % 4] = 0;
    follow();
    float *s = memory, *into = memory;
    const auto next = [&](float* s) { return s == memory + (STAGES - 1) * F::STAGE ? memory : s + F::STAGE; };
#pragma unroll 1
    for (int left = terms + (STAGES - 1) * BK; left > 0; left -= BK) { // the terms that are not multiplied, once those are on their way
        if (left <= terms) {
            arrived<STAGES - 2>(); // this thread's copies of the stage; the barrier: everyone's
            __syncthreads();       // and everyone has multiplied the stage that is filled now
        }
        if (left > (STAGES - 1) * BK) {
            fetch(into, into + F::A::SIZE);
            into = next(into);
        }
        commit();
        if (left > terms) continue;
        if (t.kind == 0) multiply<F, FILTERS, 4, false>(sum, s, t.across);
        else if (t.kind == 1) multiply<F, FILTERS, 2, false>(sum, s, t.across);
        else multiply<F, FILTERS, 2, true>(sum, s, t.across);
        s = next(s);
    }
    admit();

    // Each block of the tile adds up an equal share of its rows; the others send it their sums.
    const int share = F::BM / together, log = 31 - __clz(share);
    if (together > 1) cluster_wait(); // all blocks have begun
#pragma unroll
    for (int i = 0; i < F::VECTORS; i++) {
        int row, col;
        F::place(i * F::THREADS + threadIdx.x, row, col);
        const int to = row >> log;
        float4* const at = reinterpret_cast<float4*>(inbox + (row + (together > 1 ? split - to : 0) * share) * PITCH + col);
        const float4 x = four(sum[i / F::NT][i % F::NT]);
        if (together > 1) send(rank - split + to, at, x, &full);
        else *at = x;
    }
    i64 place = n0 + spot;
    bool inside = !idle && place < t.n;
    if constexpr (!FILTERS) {
        const Pixel p = g.pixel(group, v, h, min((int)place, t.n - 1));
        place = p.place, inside = inside && p.inside;
    }
    if (together > 1) await_inbox(&full);
    else __syncthreads();
    const int first = together > 1 ? split * share : 0;
    float* const out = t.out + (JOIN ? 0 : split * t.count) + (i64)group * t.c.group + (i64)(m0 + first) * t.c.row + place;
#pragma unroll 1
    for (int row = threadIdx.x / F::BN; row < share; row += F::THREADS / F::BN) {
        float x = inbox[row * PITCH + spot];
#pragma unroll 2
        for (int part = 1; part < together; part++) x += inbox[(part * share + row) * PITCH + spot];
        if (inside && first + row < rows) out[(i64)row * t.c.row] = x;
    }
}

#define RUN(FILTERS, JOIN, ...) small<FILTERS, Tile<__VA_ARGS__>, JOIN>(GATHERED(float), {matrix, out, m, n, k, chunk, groups, count, {groupA, rowA}, {groupC, rowC}, parts, across, kind});
#define ENTRIES(name, FILTERS, JOIN, ...)                                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(Tile<__VA_ARGS__>::THREADS) conv_mma_##name(PARAMETERS(float), int parts, int across, int kind) { ON_HOPPER(RUN(FILTERS, 0, __VA_ARGS__)) } \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(JOIN) __launch_bounds__(Tile<__VA_ARGS__>::THREADS) conv_mma_joined_##name(PARAMETERS(float), int parts, int across, int kind) {   \
        ON_HOPPER(RUN(FILTERS, JOIN, __VA_ARGS__))                                                                                                                               \
    }
// Blocks of a cluster; tile, warps down and across.
ENTRIES(windows, false, 8, 64, 64, 2, 2)
ENTRIES(filters, true, 8, 64, 64, 2, 2)
ENTRIES(windows_few, false, 8, 32, 32, 2, 2)
ENTRIES(filters_few, true, 8, 32, 32, 2, 2)
ENTRIES(windows_thin, false, 8, 16, 128, 1, 4)
ENTRIES(filters_thin, true, 8, 16, 128, 1, 4)
