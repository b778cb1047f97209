// attention and its gradients on the tensor cores from compute capability 8.0 on (mma.sync), for 16-bit operands: see attention.cu and attention_backward.cu for the formulas.
//
// A block has four warps and 64 rows of its own in shared memory, 16 a warp: queries in attention_mma and attention_mma_dq, keys in attention_mma_dkv. The rows of the other side come
// STEP at a time by cp.async, into two stages: while one is multiplied, the next is on its way. Weights stay in registers as first operands. Nothing is added up by atomics.
#include "async.cuh"
#include "attention_tensor.cuh"
#include "mma.cuh"

extern __shared__ __align__(128) unsigned char dynamic[];

// Tile is ROWS rows of D elements in shared memory, 16-byte pieces of a row exchanged so that ldmatrix meets no bank twice.
template <int ROWS, int D> struct Tile {
    static constexpr int BYTES = ROWS * D * 2, THREADS = 128;
    static __device__ __forceinline__ u32 at(u32 memory, int row, int piece) { return memory + row * (D * 2) + (piece ^ row & 7) * 16; }
    // copy starts copies of rows t0 to t0 + ROWS - 1, 0 outside.
    static __device__ __forceinline__ void copy(u32 memory, const Rows<const u16>& from, int t0) {
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * D / 8; i += THREADS) {
            const int row = i / (D / 8), piece = i % (D / 8);
            const bool inside = t0 + row < from.count && piece * 8 < from.dim;
            copy_far(at(memory, row, piece), inside ? from.x + (t0 + row) * from.stride + piece * 8 : from.x, inside);
        }
    }
    // first loads 16 rows from row on, of terms 16 l on, as a first operand.
    static __device__ __forceinline__ void first(u32 (&d)[4], u32 memory, int row, int l) {
        const int lane = threadIdx.x % 32;
        load_matrices<false>(d, at(memory, row + lane % 16, 2 * l + lane / 16));
    }
    // columns loads rows as columns of a second operand: 16 rows, terms 16 l on.
    static __device__ __forceinline__ void columns(u32 (&d)[4], u32 memory, int row, int l) {
        const int lane = threadIdx.x % 32;
        load_matrices<false>(d, at(memory, row + lane % 8 + lane / 16 * 8, 2 * l + lane / 8 % 2));
    }
    // terms loads rows as terms of a second operand: 16 rows, 16 columns from 16 c on.
    static __device__ __forceinline__ void terms(u32 (&d)[4], u32 memory, int row, int c) {
        const int lane = threadIdx.x % 32;
        load_matrices<true>(d, at(memory, row + lane % 16, 2 * c + lane / 16));
    }
};

template <bool HALF> __device__ __forceinline__ void product(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (HALF)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// scores computes s = the warp's 16 rows of a tile of 64 times B rows.
template <bool HALF, int D, int B> __device__ __forceinline__ void scores(float (&s)[B / 2], u32 a, u32 b) {
    const int row = threadIdx.x / 32 * 16;
#pragma unroll
    for (int i = 0; i < B / 2; i++) s[i] = 0;
#pragma unroll
    for (int l = 0; l < D / 16; l++) {
        u32 x[4], y[4];
        Tile<64, D>::first(x, a, row, l);
#pragma unroll
        for (int n = 0; n < B / 16; n++) {
            Tile<B, D>::columns(y, b, 16 * n, l);
            product<HALF>(s + 8 * n, x, y[0], y[1]);
            product<HALF>(s + 8 * n + 4, x, y[2], y[3]);
        }
    }
}

// weigh_rows adds weights times B rows.
template <bool HALF, int D, int B> __device__ __forceinline__ void weigh_rows(float (&o)[D / 2], const u32 (&w)[B / 16][4], u32 b) {
#pragma unroll
    for (int l = 0; l < B / 16; l++)
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            u32 y[4];
            Tile<B, D>::terms(y, b, 16 * l, c);
            product<HALF>(o + 8 * c, w[l], y[0], y[1]);
            product<HALF>(o + 8 * c + 4, w[l], y[2], y[3]);
        }
}

// Position of a block: a tile of 64 rows of a head. The last rows come first: they see the most keys if causal.
struct Place {
    int batch, head, t0;
    __device__ __forceinline__ Place(int rows, int heads, int batches, bool last) {
        const int tiles = (rows + 63) / 64, number = blockIdx.x / tiles, tile = blockIdx.x % tiles;
        batch = number / heads, head = number % heads, t0 = (last ? tiles - 1 - tile : tile) * 64;
    }
};

template <int D, bool HALF>
__device__ __forceinline__ void attend(const u16* q, Strides qs, const u16* k, Strides ks, const u16* v, Strides vs, u16* out, Strides os, float* lse, int outputs, const Problem<float>& p, int batches) {
    constexpr int STEP = 64, BYTES = STEP * D * 2;
    follow();
    const Place at(p.queries, p.heads, batches, true);
    const u32 memQ = (u32)__cvta_generic_to_shared(dynamic), memK = memQ + 64 * D * 2, memV = memK + 2 * BYTES;
    const Rows<const u16> queries(q, qs, at.batch, at.head, p.queries, p.dim), keys(k, ks, at.batch, at.head / p.group, p.keys, p.dim), values(v, vs, at.batch, at.head / p.group, p.keys, p.dim);
    const Span<64> span(p, at.batch, at.t0);
    const int lane = threadIdx.x % 32, row = at.t0 + threadIdx.x / 32 * 16 + lane / 4;
    const int limit[2] = {p.limit(at.batch, min(row, p.queries - 1)), p.limit(at.batch, min(row + 8, p.queries - 1))};
    const float scale = p.scale * LOG2E;
    float o[D / 2] = {}, s[STEP / 2], most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, factor[2];
    u32 w[STEP / 16][4];
    Tile<64, D>::copy(memQ, queries, at.t0);
    Tile<STEP, D>::copy(memK, keys, 0);
    commit();
    Tile<STEP, D>::copy(memV, values, 0);
    commit();
    int stage = 0;
#pragma unroll 1
    for (int j0 = 0; j0 < span.high; j0 += STEP, stage ^= 1) {
        const bool more = j0 + STEP < span.high;
        if (more) Tile<STEP, D>::copy(memK + (stage ^ 1) * BYTES, keys, j0 + STEP);
        commit();
        arrived<2>();
        __syncthreads();
        scores<HALF, D, STEP>(s, memQ, memK + stage * BYTES);
        if (j0 + STEP > span.low) mask(s, limit, j0);
        weigh(s, most, total, factor, scale);
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= factor[i / 2 % 2];
        pack<HALF>(w, s);
        if (more) Tile<STEP, D>::copy(memV + (stage ^ 1) * BYTES, values, j0 + STEP);
        commit();
        arrived<2>();
        __syncthreads();
        weigh_rows<HALF, D, STEP>(o, w, memV + stage * BYTES);
    }
    arrived<0>();
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        total[r] += __shfl_xor_sync(~0u, total[r], 2);
        const bool none = limit[r] == 0;
        factor[r] = none ? 0 : 1 / total[r];
        if (outputs & 2 && lane % 4 == 0 && row + 8 * r < p.queries)
            lse[((i64)at.batch * p.heads + at.head) * p.queries + row + 8 * r] = none ? -INFINITY : most[r] * p.scale + logf(total[r]);
    }
    const int first = row - lane / 4;
    if (outputs & 1) store_rows<HALF, D>(o, factor, memQ + threadIdx.x / 32 * 16 * D * 2, out + at.batch * os.batch + at.head * os.head + first * os.row, os.row, p.queries - first, p.dim);
}

template <int D, bool HALF>
__device__ __forceinline__ void gradient_queries(const u16* q, Strides qs, const u16* k, Strides ks, const u16* v, Strides vs, const u16* g, Strides gs, const float* lse, const float* delta, u16* dq,
                                                 const Problem<float>& p, int batches) {
    constexpr int STEP = 64, BYTES = STEP * D * 2;
    follow();
    const Place at(p.queries, p.heads, batches, true);
    const u32 memQ = (u32)__cvta_generic_to_shared(dynamic), memG = memQ + 64 * D * 2, ring = memG + 64 * D * 2;
    const Rows<const u16> queries(q, qs, at.batch, at.head, p.queries, p.dim), gradients(g, gs, at.batch, at.head, p.queries, p.dim), keys(k, ks, at.batch, at.head / p.group, p.keys, p.dim),
        values(v, vs, at.batch, at.head / p.group, p.keys, p.dim);
    const Span<64> span(p, at.batch, at.t0);
    const int lane = threadIdx.x % 32, row = at.t0 + threadIdx.x / 32 * 16 + lane / 4;
    const float scale = p.scale * LOG2E;
    float l[2], d[2];
    int limit[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const bool is = row + 8 * r < p.queries;
        const i64 number = ((i64)at.batch * p.heads + at.head) * p.queries + row + 8 * r;
        l[r] = is ? statistic(lse[number]) : INFINITY, d[r] = is ? delta[number] : 0, limit[r] = is ? p.limit(at.batch, row + 8 * r) : 0;
    }
    float sum[D / 2] = {}, s[STEP / 2], x[STEP / 2];
    u32 w[STEP / 16][4];
    Tile<64, D>::copy(memQ, queries, at.t0);
    Tile<64, D>::copy(memG, gradients, at.t0);
    Tile<STEP, D>::copy(ring, keys, 0);
    Tile<STEP, D>::copy(ring + BYTES, values, 0);
    commit();
    int stage = 0;
#pragma unroll 1
    for (int j0 = 0; j0 < span.high; j0 += STEP, stage ^= 1) {
        if (j0 + STEP < span.high) {
            Tile<STEP, D>::copy(ring + (stage ^ 1) * 2 * BYTES, keys, j0 + STEP);
            Tile<STEP, D>::copy(ring + (stage ^ 1) * 2 * BYTES + BYTES, values, j0 + STEP);
        }
        commit();
        arrived<1>();
        __syncthreads();
        const u32 k0 = ring + stage * 2 * BYTES;
        scores<HALF, D, STEP>(s, memQ, k0);
        scores<HALF, D, STEP>(x, memG, k0 + BYTES);
#pragma unroll
        for (int j = 0; j < STEP / 2; j++) {
            s[j] = weight(s[j], scale, l[j / 2 % 2]);
            if (j0 + STEP > span.low && j0 + j / 4 * 8 + lane % 4 * 2 + j % 2 >= limit[j / 2 % 2]) s[j] = 0;
            s[j] *= x[j] - d[j / 2 % 2];
        }
        pack<HALF>(w, s);
        weigh_rows<HALF, D, STEP>(sum, w, k0);
        __syncthreads();
    }
    arrived<0>();
    __syncthreads();
    const float by[2] = {p.scale, p.scale};
    const int first = row - lane / 4;
    store_rows<HALF, D>(sum, by, memQ + threadIdx.x / 32 * 16 * D * 2, dq + at.batch * gs.batch + at.head * gs.head + first * gs.row, gs.row, p.queries - first, p.dim);
}

template <int D, bool HALF>
__device__ __forceinline__ void gradient_keys(const u16* q, Strides qs, const u16* k, Strides ks, const u16* v, Strides vs, const u16* g, Strides gs, const float* lse, const float* delta, u16* dk, u16* dv,
                                              Strides ds, int outputs, const Problem<float>& p, int batches) {
    constexpr int STEP = D == 64 ? 64 : 32, BYTES = STEP * D * 2;
    follow();
    const Place at(p.keys, p.heads / p.group, batches, false);
    const u32 memK = (u32)__cvta_generic_to_shared(dynamic), memV = memK + 64 * D * 2, ring = memV + 64 * D * 2;
    const Rows<const u16> keys(k, ks, at.batch, at.head, p.keys, p.dim), values(v, vs, at.batch, at.head, p.keys, p.dim);
    const int lane = threadIdx.x % 32, key = at.t0 + threadIdx.x / 32 * 16 + lane / 4, steps = (p.queries + STEP - 1) / STEP, count = steps * p.group;
    const float scale = p.scale * LOG2E;
    float sumK[D / 2] = {}, sumV[D / 2] = {}, s[STEP / 2], x[STEP / 2];
    u32 w[STEP / 16][4];
    // next is the first step from i on, of the queries of all heads that read the keys, whose queries see a key of the block.
    auto next = [&](int i) {
        while (i < count && Span<STEP>(p, at.batch, i % steps * STEP).high <= at.t0) i++;
        return i;
    };
    auto copy = [&](u32 to, int i) {
        const int head = at.head * p.group + i / steps;
        Tile<STEP, D>::copy(to, Rows<const u16>(q, qs, at.batch, head, p.queries, p.dim), i % steps * STEP);
        Tile<STEP, D>::copy(to + BYTES, Rows<const u16>(g, gs, at.batch, head, p.queries, p.dim), i % steps * STEP);
    };
    Tile<64, D>::copy(memK, keys, at.t0);
    Tile<64, D>::copy(memV, values, at.t0);
    int i = next(0), stage = 0;
    if (i < count) copy(ring, i);
    commit();
#pragma unroll 1
    for (; i < count; stage ^= 1) {
        const int following = next(i + 1), t0 = i % steps * STEP;
        if (following < count) copy(ring + (stage ^ 1) * 2 * BYTES, following);
        commit();
        arrived<1>();
        __syncthreads();
        const u32 q0 = ring + stage * 2 * BYTES;
        const i64 first = ((i64)at.batch * p.heads + at.head * p.group + i / steps) * p.queries;
        scores<HALF, D, STEP>(s, memK, q0);
        scores<HALF, D, STEP>(x, memV, q0 + BYTES);
#pragma unroll
        for (int j = 0; j < STEP / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int query = t0 + j * 8 + lane % 4 * 2 + e;
                const bool is = query < p.queries;
                const float l = is ? statistic(lse[first + query]) : INFINITY, d = is ? delta[first + query] : 0;
                const int limit = is ? p.limit(at.batch, query) : 0;
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float& y = s[4 * j + 2 * r + e];
                    y = key + 8 * r < limit ? weight(y, scale, l) : 0;
                    x[4 * j + 2 * r + e] = y * (x[4 * j + 2 * r + e] - d);
                }
            }
        pack<HALF>(w, s);
        weigh_rows<HALF, D, STEP>(sumV, w, q0 + BYTES);
        pack<HALF>(w, x);
        weigh_rows<HALF, D, STEP>(sumK, w, q0);
        __syncthreads();
        i = following;
    }
    arrived<0>();
    __syncthreads();
    const float one[2] = {1, 1}, by[2] = {p.scale, p.scale};
    const int row = key - lane / 4;
    const u32 own = memK + threadIdx.x / 32 * 16 * D * 2;
    const i64 to = at.batch * ds.batch + at.head * ds.head + row * ds.row;
    if (outputs & 1) store_rows<HALF, D>(sumK, by, own, dk + to, ds.row, p.keys - row, p.dim);
    if (outputs & 2) store_rows<HALF, D>(sumV, one, own, dv + to, ds.row, p.keys - row, p.dim);
}

// Older devices have other instructions, and for 9.0 there is attention_hopper.cu: the entry points are empty below 8.0.
#if __CUDA_ARCH__ >= 800
#define BODY(...) __VA_ARGS__
#else
#define BODY(...)
#endif
#define INPUTS const u16 *q, STRIDES(q), const u16 *k, STRIDES(k), const u16 *v, STRIDES(v)
#define INPUTS_OF q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v)
#define GRADIENTS const u16 *g, STRIDES(g), const float *lse, const float *delta
#define GRADIENTS_OF g, STRIDES_OF(g), lse, delta
#define ENTRIES(name, D, HALF)                                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_##name(INPUTS, u16* out, STRIDES(out), float* lse, const int outputs, PROBLEM(float)) {     \
        BODY(attend<D, HALF>(INPUTS_OF, out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(float), batches);)                                                       \
    }                                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_dq_##name(INPUTS, GRADIENTS, u16* dq, PROBLEM(float)) {                                     \
        BODY(gradient_queries<D, HALF>(INPUTS_OF, GRADIENTS_OF, dq, PROBLEM_OF(float), batches);)                                                               \
    }                                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_dkv_##name(INPUTS, GRADIENTS, u16* dk, u16* dv, STRIDES(d), const int outputs, PROBLEM(float)) { \
        BODY(gradient_keys<D, HALF>(INPUTS_OF, GRADIENTS_OF, dk, dv, STRIDES_OF(d), outputs, PROBLEM_OF(float), batches);)                                      \
    }
ENTRIES(64_bf16, 64, false)
ENTRIES(128_bf16, 128, false)
ENTRIES(64_f16, 64, true)
ENTRIES(128_f16, 128, true)
