// attention and its gradients on the tensor cores from compute capability 8.0 on (mma.sync): see attention.cu and attention_backward.cu for the formulas.
//
// A block has four warps and 64 rows of its own in shared memory, 16 a warp: queries in attend and gradient_queries, keys in gradient_keys. The rows of the other side come
// STEP at a time by cp.async, into two stages: while one is multiplied, the next is on its way. Weights stay in registers as first operands. Nothing is added up by atomics.
//
// Operands are of one of four kinds: IN_BF16, IN_F16, and, of float32, IN_TF32 and IN_PARTS. IN_TF32 rounds them to TF32 as they are loaded. IN_PARTS, float32 accurate, makes each number the
// sum of two of TF32 and adds three products: what the product of the lesser parts would add is below 2^-22 of a term. The tensor cores round toward zero each time they add to an accumulator.
// The leading products have one of their own therefore, and FMA units add sums over STEP rows.
#pragma once
#include "async.cuh"
#include "attention_tensor.cuh"
#include "mma.cuh"

extern __shared__ __align__(128) unsigned char dynamic[];

enum { IN_TF32 = IN_F16 + 1, IN_PARTS };

template <int KIND> struct Stored { using Type = float; };
template <> struct Stored<IN_BF16> { using Type = u16; };
template <> struct Stored<IN_F16> { using Type = u16; };
template <int KIND> using Element = typename Stored<KIND>::Type;

// Sizes are the bytes of a row, and the rows of a stage in attend, gradient_queries and gradient_keys.
template <int KIND, int D> struct Sizes {
    static constexpr bool HALF = sizeof(Element<KIND>) == 2;
    static constexpr int ROW = D * sizeof(Element<KIND>);
    static constexpr int FORWARD = D < (HALF ? 256 : 128) ? 64 : 32, QUERIES = !HALF ? 2048 / D : D < 256 ? 64 : 16, KEYS = HALF ? 4096 / D : 2048 / D;
};

// Tile is ROWS rows of BYTES bytes in shared memory, 16-byte pieces of a row exchanged so that ldmatrix meets no bank twice.
template <int ROWS, int BYTES> struct Tile {
    static constexpr int THREADS = 128;
    static __device__ __forceinline__ u32 at(u32 memory, int row, int piece) { return memory + row * BYTES + (piece ^ row & 7) * 16; }
    // copy starts copies of rows t0 to t0 + ROWS - 1, 0 outside.
    template <typename E> static __device__ __forceinline__ void copy(u32 memory, const Rows<const E>& from, int t0) {
        constexpr int PIECES = BYTES / 16, STEP = THREADS / PIECES;
        const int first = threadIdx.x / PIECES, piece = threadIdx.x % PIECES, column = piece * (16 / (int)sizeof(E)), rows = column < from.dim ? from.count - t0 - first : 0;
        const E* x = from.x + (t0 + first) * from.stride + column;
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP, x += STEP * from.stride) copy_far(at(memory, first + r, piece), r < rows ? x : from.x, r < rows);
    }
    // first loads 16 rows from row on, 32 bytes of terms from 32 l on, as a first operand.
    static __device__ __forceinline__ void first(u32 (&d)[4], u32 memory, int row, int l) {
        const int lane = threadIdx.x % 32;
        load_matrices<false>(d, at(memory, row + lane % 16, 2 * l + lane / 16));
    }
    // columns loads rows as columns of a second operand: 16 rows, 32 bytes of terms from 32 l on.
    static __device__ __forceinline__ void columns(u32 (&d)[4], u32 memory, int row, int l) {
        const int lane = threadIdx.x % 32;
        load_matrices<false>(d, at(memory, row + lane % 8 + lane / 16 * 8, 2 * l + lane / 8 % 2));
    }
    // terms loads rows of 16-bit elements as terms of a second operand: 16 rows, 16 columns from 16 c on.
    static __device__ __forceinline__ void terms(u32 (&d)[4], u32 memory, int row, int c) {
        const int lane = threadIdx.x % 32;
        load_matrices<true>(d, at(memory, row + lane % 16, 2 * c + lane / 16));
    }
    // terms loads 8 rows of float32, 32 columns from 32 c on. The lane loads columns 4 (lane / 4) to 4 (lane / 4) + 3 of row 2 (lane % 4) into d[0] to d[3], and of the next row into d[4] to
    // d[7]: the order of a thread's terms in a tile of scores.
    static __device__ __forceinline__ void terms(u32 (&d)[8], u32 memory, int row, int c) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++)
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(d[4 * i]), "=r"(d[4 * i + 1]), "=r"(d[4 * i + 2]), "=r"(d[4 * i + 3])
                         : "r"(at(memory, row + lane % 4 * 2 + i, 8 * c + lane / 4)) : "memory");
    }
};

__device__ __forceinline__ u32 tf32(float x) {
    u32 v = 0;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
#elif __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
#endif
    return v;
}

// Operand is a part of an operand of mma.sync in registers; of IN_PARTS, x are the leading 11 bits of numbers, and rest what is left, which mma.sync truncates to as many.
template <int KIND, int N> struct Operand {
    u32 x[N], rest[KIND == IN_PARTS ? N : 1];
    // convert converts float32 numbers.
    __device__ __forceinline__ void convert() {
        if constexpr (KIND == IN_TF32 || KIND == IN_PARTS) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float whole = __uint_as_float(x[i]);
                x[i] = tf32(whole);
                if constexpr (KIND == IN_PARTS) rest[i] = __float_as_uint(whole - __uint_as_float(x[i]));
            }
        }
    }
};

template <int KIND> __device__ __forceinline__ void mma(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (KIND == IN_F16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else if constexpr (KIND == IN_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// products adds to COUNT tiles of 16 x 8 the products of a with registers i F and i F + G of b. Of IN_PARTS, low sums the two products with a rest.
template <int KIND, int COUNT, int F, int G, int N> __device__ __forceinline__ void products(float* d, float* low, const Operand<KIND, 4>& a, const Operand<KIND, N>& b) {
    if constexpr (KIND == IN_PARTS) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) mma<KIND>(low + 4 * i, a.rest, b.x[i * F], b.x[i * F + G]);
#pragma unroll
        for (int i = 0; i < COUNT; i++) mma<KIND>(low + 4 * i, a.x, b.rest[i * F], b.rest[i * F + G]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) mma<KIND>(d + 4 * i, a.x, b.x[i * F], b.x[i * F + G]);
}

// Low has the sums of products with a rest of N sums, in IN_PARTS: mma.sync rounds toward zero each time it adds to an accumulator, so the leading products have their own.
template <int KIND, int N> struct Low {
    float x[KIND == IN_PARTS ? N : 1] = {};
    // add_to completes sums. The rest of an infinity or NaN is NaN: the leading products alone are the result then, as IEEE 754 defines it.
    __device__ __forceinline__ void add_to(float* d) const {
        if constexpr (KIND == IN_PARTS) {
#pragma unroll
            for (int i = 0; i < N; i++) d[i] = x[i] == x[i] ? d[i] + x[i] : d[i];
        }
    }
};

// scores computes s = the warp's 16 rows of a tile of 64 times B rows.
template <int KIND, int D, int B> __device__ __forceinline__ void scores(float (&s)[B / 2], u32 a, u32 b) {
    constexpr int ROW = Sizes<KIND, D>::ROW;
    const int row = threadIdx.x / 32 * 16;
#pragma unroll
    for (int i = 0; i < B / 2; i++) s[i] = 0;
    Low<KIND, B / 2> low;
#pragma unroll
    for (int l = 0; l < ROW / 32; l++) {
        Operand<KIND, 4> x, y;
        Tile<64, ROW>::first(x.x, a, row, l);
        x.convert();
#pragma unroll
        for (int n = 0; n < B / 16; n++) {
            Tile<B, ROW>::columns(y.x, b, 16 * n, l);
            y.convert();
            products<KIND, 2, 2, 1>(s + 8 * n, low.x + 8 * n, x, y);
        }
    }
    low.add_to(s);
}

// weigh_seen adds by FMA columns 32 c to 32 c + 31 of weights times those of B rows of float32 that seen(r, j) selects, row j for row r of the thread: 0 times an infinity would be NaN. It is
// rare, and a call, so that the loop that calls it keeps its registers.
template <int D, int B, typename Seen> __device__ __noinline__ void weigh_seen(float* sum, const float* weights, u32 b, int c, const Seen& seen) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int j = 0; j < B; j++) {
        float x[2][4];
#pragma unroll
        for (int e = 0; e < 2; e++)
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[e][0]), "=f"(x[e][1]), "=f"(x[e][2]), "=f"(x[e][3])
                         : "r"(Tile<B, D * 4>::at(b, j, 8 * c + lane % 4 * 2 + e)) : "memory");
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float weight = __shfl_sync(~0u, weights[j / 8 * 4 + 2 * r + j % 2], lane / 4 * 4 + j % 8 / 2);
            if (seen(r, j))
#pragma unroll
                for (int i = 0; i < 8; i++) sum[i / 2 * 4 + 2 * r + i % 2] += weight * x[i % 2][i / 2];
        }
    }
}

// All selects all rows for each row of weights.
struct All {
    __device__ __forceinline__ bool operator()(int, int) const { return true; }
};

// weigh_rows adds weights times B rows to sums: columns in order, or of float32 as store has them. Unless whole, seen selects the rows of float32 for a row of weights, see weigh_seen.
template <int KIND, int D, int B, typename Seen = All> __device__ __forceinline__ void weigh_rows(float (&o)[D / 2], const float (&s)[B / 2], u32 b, bool whole = true, Seen seen = {}) {
    using T = Tile<B, Sizes<KIND, D>::ROW>;
    if constexpr (Sizes<KIND, D>::HALF) {
#pragma unroll
        for (int l = 0; l < B / 16; l++) {
            Operand<KIND, 4> x, y;
#pragma unroll
            for (int i = 0; i < 4; i++) x.x[i] = packed<KIND == IN_F16>(s[8 * l + 2 * i], s[8 * l + 2 * i + 1]);
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                T::terms(y.x, b, 16 * l, c);
                products<KIND, 2, 2, 1>(o + 8 * c, nullptr, x, y);
            }
        }
    } else {
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            float sum[16] = {};
            Low<KIND, 16> low;
#pragma unroll
            for (int l = 0; l < B / 8; l++) {
                Operand<KIND, 4> x;
                Operand<KIND, 8> y;
#pragma unroll
                for (int i = 0; i < 4; i++) x.x[i] = __float_as_uint(s[4 * l + i % 2 * 2 + i / 2]);
                x.convert();
                T::terms(y.x, b, 8 * l, c);
                y.convert();
                products<KIND, 4, 1, 4>(sum, low.x, x, y);
            }
            low.add_to(sum);
            if (!whole) {
                bool wrong = false;
#pragma unroll
                for (int i = 0; i < 16; i++) wrong |= sum[i] != sum[i];
                if (__any_sync(~0u, wrong)) {
                    float weights[B / 2], exact[16] = {};
#pragma unroll
                    for (int i = 0; i < B / 2; i++) weights[i] = s[i];
                    weigh_seen<D, B>(exact, weights, b, c, seen);
#pragma unroll
                    for (int i = 0; i < 16; i++) sum[i] = exact[i];
                }
            }
#pragma unroll
            for (int i = 0; i < 16; i++) o[16 * c + i] += sum[i];
        }
    }
}

// store writes the warp's 16 rows of D sums, times a factor each, past its part of a tile in shared memory if they are rounded.
template <int KIND, int D> __device__ __forceinline__ void store(const float (&o)[D / 2], const float (&factor)[2], u32 memory, Element<KIND>* to, i64 stride, int rows, int dim) {
    if constexpr (Sizes<KIND, D>::HALF) {
        store_rows<KIND == IN_F16, D>(o, factor, memory + threadIdx.x / 32 * 16 * D * 2, to, stride, rows, dim);
    } else {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int c = 0; c < D / 32; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = i / 2, row = lane / 4 + 8 * r, column = 32 * c + lane % 4 * 8 + i % 2 * 4;
                const float* x = o + 16 * c + i;
                if (row < rows && column < dim)
                    *reinterpret_cast<float4*>(to + row * stride + column) = factor[r] == 0 ? float4{} : float4{x[0] * factor[r], x[4] * factor[r], x[8] * factor[r], x[12] * factor[r]};
            }
    }
}

// finish_rows adds up what the lanes of a row hold of its total, and returns the factor of its sums. It writes statistics if `write`; `first` is the number of the head's first one.
__device__ __forceinline__ void finish_rows(float (&factor)[2], float (&total)[2], const float (&most)[2], const int (&limit)[2], float* lse, bool write, i64 first, int row, const Problem<float>& p) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        total[r] += __shfl_xor_sync(~0u, total[r], 2);
        const bool none = limit[r] == 0;
        factor[r] = none ? 0 : 1 / total[r];
        if (write && threadIdx.x % 4 == 0 && row + 8 * r < p.queries) lse[first + row + 8 * r] = none ? -INFINITY : most[r] * p.scale + logf(total[r]);
    }
}

// Position of a block: a tile of 64 rows of a head. The last rows come first: they see the most keys if causal.
struct Place {
    int batch, head, t0;
    __device__ __forceinline__ Place(int block, int rows, int heads, int batches, bool last) {
        const int tiles = (rows + 63) / 64, number = block / tiles, tile = block % tiles;
        batch = number / heads, head = number % heads, t0 = (last ? tiles - 1 - tile : tile) * 64;
    }
};

template <int KIND, int D>
__device__ __forceinline__ void attend(const Element<KIND>* q, Strides qs, const Element<KIND>* k, Strides ks, const Element<KIND>* v, Strides vs, Element<KIND>* out, Strides os, float* lse, int outputs, const Problem<float>& p, int batches) {
    constexpr int ROW = Sizes<KIND, D>::ROW, STEP = Sizes<KIND, D>::FORWARD, BYTES = STEP * ROW;
    follow();
    const Place at(blockIdx.x, p.queries, p.heads, batches, true);
    const u32 memQ = (u32)__cvta_generic_to_shared(dynamic), memK = memQ + 64 * ROW, memV = memK + 2 * BYTES;
    const Span<64> span(p, at.batch, at.t0); // keys beyond are 0, whatever memory holds
    const Rows<const Element<KIND>> queries(q, qs, at.batch, at.head, p.queries, p.dim), keys(k, ks, at.batch, at.head / p.group, span.high, p.dim), values(v, vs, at.batch, at.head / p.group, span.high, p.dim);
    const int lane = threadIdx.x % 32, row = at.t0 + threadIdx.x / 32 * 16 + lane / 4;
    const int limit[2] = {p.limit(at.batch, min(row, p.queries - 1)), p.limit(at.batch, min(row + 8, p.queries - 1))};
    const float scale = p.scale * LOG2E;
    float o[D / 2] = {}, s[STEP / 2], most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, factor[2];
    Tile<64, ROW>::copy(memQ, queries, at.t0);
    Tile<STEP, ROW>::copy(memK, keys, 0);
    commit();
    Tile<STEP, ROW>::copy(memV, values, 0);
    commit();
    int stage = 0;
#pragma unroll 1
    for (int j0 = 0; j0 < span.high; j0 += STEP, stage ^= 1) {
        const bool more = j0 + STEP < span.high;
        if (more) Tile<STEP, ROW>::copy(memK + (stage ^ 1) * BYTES, keys, j0 + STEP);
        commit();
        arrived<2>();
        __syncthreads();
        scores<KIND, D, STEP>(s, memQ, memK + stage * BYTES);
        const bool whole = j0 + STEP <= span.low;
        if (!whole) mask(s, limit, j0);
        weigh<true>(s, most, total, factor, scale);
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= factor[i / 2 % 2];
        if (more) Tile<STEP, ROW>::copy(memV + (stage ^ 1) * BYTES, values, j0 + STEP);
        commit();
        arrived<2>();
        __syncthreads();
        weigh_rows<KIND, D, STEP>(o, s, memV + stage * BYTES, whole, [&](int r, int j) { return j0 + j < limit[r]; });
    }
    arrived<0>();
    __syncthreads();
    finish_rows(factor, total, most, limit, lse, outputs & 2, ((i64)at.batch * p.heads + at.head) * p.queries, row, p);
    const int first = row - lane / 4;
    if (outputs & 1) store<KIND, D>(o, factor, memQ, out + at.batch * os.batch + at.head * os.head + first * os.row, os.row, p.queries - first, p.dim);
}

template <int KIND, int D>
__device__ __forceinline__ void gradient_queries(const Element<KIND>* q, Strides qs, const Element<KIND>* k, Strides ks, const Element<KIND>* v, Strides vs, const Element<KIND>* g, Strides gs, const float* lse, const float* delta, Element<KIND>* dq,
                                                 const Problem<float>& p, int batches) {
    constexpr int ROW = Sizes<KIND, D>::ROW, STEP = Sizes<KIND, D>::QUERIES, BYTES = STEP * ROW;
    follow();
    const Place at(blockIdx.x, p.queries, p.heads, batches, true);
    const u32 memQ = (u32)__cvta_generic_to_shared(dynamic), memG = memQ + 64 * ROW, ring = memG + 64 * ROW;
    const Span<64> span(p, at.batch, at.t0); // keys beyond are 0, whatever memory holds
    const Rows<const Element<KIND>> queries(q, qs, at.batch, at.head, p.queries, p.dim), gradients(g, gs, at.batch, at.head, p.queries, p.dim), keys(k, ks, at.batch, at.head / p.group, span.high, p.dim),
        values(v, vs, at.batch, at.head / p.group, span.high, p.dim);
    const int lane = threadIdx.x % 32, row = at.t0 + threadIdx.x / 32 * 16 + lane / 4;
    const float scale = p.scale * LOG2E;
    float l[2], d[2];
    int limit[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const bool is = row + 8 * r < p.queries;
        const i64 number = ((i64)at.batch * p.heads + at.head) * p.queries + row + 8 * r;
        l[r] = is ? lse[number] * LOG2E : INFINITY, d[r] = is ? delta[number] : 0, limit[r] = is ? p.limit(at.batch, row + 8 * r) : 0;
    }
    float sum[D / 2] = {}, s[STEP / 2], x[STEP / 2];
    Tile<64, ROW>::copy(memQ, queries, at.t0);
    Tile<64, ROW>::copy(memG, gradients, at.t0);
    Tile<STEP, ROW>::copy(ring, keys, 0);
    Tile<STEP, ROW>::copy(ring + BYTES, values, 0);
    commit();
    int stage = 0;
#pragma unroll 1
    for (int j0 = 0; j0 < span.high; j0 += STEP, stage ^= 1) {
        if (j0 + STEP < span.high) {
            Tile<STEP, ROW>::copy(ring + (stage ^ 1) * 2 * BYTES, keys, j0 + STEP);
            Tile<STEP, ROW>::copy(ring + (stage ^ 1) * 2 * BYTES + BYTES, values, j0 + STEP);
        }
        commit();
        arrived<1>();
        __syncthreads();
        const u32 k0 = ring + stage * 2 * BYTES;
        const bool whole = j0 + STEP <= span.low;
        scores<KIND, D, STEP>(s, memQ, k0);
        scores<KIND, D, STEP>(x, memG, k0 + BYTES);
#pragma unroll
        for (int j = 0; j < STEP / 2; j++) {
            s[j] = weight(s[j], scale, l[j / 2 % 2]) * (x[j] - d[j / 2 % 2]);
            if (!whole && j0 + j / 4 * 8 + lane % 4 * 2 + j % 2 >= limit[j / 2 % 2]) s[j] = 0;
        }
        weigh_rows<KIND, D, STEP>(sum, s, k0);
        __syncthreads();
    }
    arrived<0>();
    __syncthreads();
    const float by[2] = {limit[0] > 0 ? p.scale : 0, limit[1] > 0 ? p.scale : 0};
    const int first = row - lane / 4;
    store<KIND, D>(sum, by, memQ, dq + at.batch * gs.batch + at.head * gs.head + first * gs.row, gs.row, p.queries - first, p.dim);
}

// A block computes those of dk (1) and dv (2) that are set in PARTS.
template <int KIND, int D, int PARTS>
__device__ __forceinline__ void gradient_keys(const Element<KIND>* q, Strides qs, const Element<KIND>* k, Strides ks, const Element<KIND>* v, Strides vs, const Element<KIND>* g, Strides gs, const float* lse, const float* delta, Element<KIND>* dk, Element<KIND>* dv,
                                              Strides ds, int outputs, const Problem<float>& p, int batches) {
    constexpr int ROW = Sizes<KIND, D>::ROW, STEP = Sizes<KIND, D>::KEYS, BYTES = STEP * ROW, LANES = STEP < 32 ? STEP : 32;
    follow();
    if (PARTS != 3 && !(outputs & PARTS)) return;
    const Place at(D < 256 ? blockIdx.x : blockIdx.x / 2, p.keys, p.heads / p.group, batches, false);
    const u32 memK = (u32)__cvta_generic_to_shared(dynamic), memV = memK + 64 * ROW, ring = memV + 64 * ROW;
    const Rows<const Element<KIND>> keys(k, ks, at.batch, at.head, p.keys, p.dim), values(v, vs, at.batch, at.head, p.keys, p.dim);
    const int lane = threadIdx.x % 32, key = at.t0 + threadIdx.x / 32 * 16 + lane / 4, steps = (p.queries + STEP - 1) / STEP, count = steps * p.group;
    const float scale = p.scale * LOG2E;
    float sumK[PARTS & 1 ? D / 2 : 1] = {}, sumV[PARTS & 2 ? D / 2 : 1] = {}, s[STEP / 2], x[STEP / 2];
    // next is the first step from i on, of the queries of all heads that read the keys, whose queries see a key of the block.
    auto next = [&](int i) {
        while (i < count && Span<STEP>(p, at.batch, i % steps * STEP).high <= at.t0) i++;
        return i;
    };
    auto copy = [&](u32 to, int i) {
        const int head = at.head * p.group + i / steps;
        Tile<STEP, ROW>::copy(to, Rows<const Element<KIND>>(q, qs, at.batch, head, p.queries, p.dim), i % steps * STEP);
        Tile<STEP, ROW>::copy(to + BYTES, Rows<const Element<KIND>>(g, gs, at.batch, head, p.queries, p.dim), i % steps * STEP);
    };
    Tile<64, ROW>::copy(memK, keys, at.t0);
    Tile<64, ROW>::copy(memV, values, at.t0);
    int i = next(0), stage = 0;
    if (i < count) copy(ring, i);
    commit();
#pragma unroll 1
    for (; i < count; stage ^= 1) {
        const int following = next(i + 1), t0 = i % steps * STEP;
        if (following < count) copy(ring + (stage ^ 1) * 2 * BYTES, following);
        commit();
        // A lane loads what belongs to a query, the others get it by shuffles.
        const i64 first = ((i64)at.batch * p.heads + at.head * p.group + i / steps) * p.queries;
        float l[STEP / LANES], d[STEP / LANES];
        int limit[STEP / LANES];
#pragma unroll
        for (int j = 0; j < STEP / LANES; j++) {
            const int query = t0 + j * LANES + lane % LANES;
            const bool is = query < p.queries;
            l[j] = is ? lse[first + query] * LOG2E : INFINITY, d[j] = is ? delta[first + query] : 0, limit[j] = is ? p.limit(at.batch, query) : 0;
        }
        arrived<1>();
        __syncthreads();
        const u32 q0 = ring + stage * 2 * BYTES;
        scores<KIND, D, STEP>(s, memK, q0);
        if constexpr (PARTS & 1) scores<KIND, D, STEP>(x, memV, q0 + BYTES);
#pragma unroll
        for (int j = 0; j < STEP / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int from = j * 8 % LANES + lane % 4 * 2 + e, k = j * 8 / LANES;
                const float lq = __shfl_sync(~0u, l[k], from), dq = __shfl_sync(~0u, d[k], from);
                const int most = __shfl_sync(~0u, limit[k], from);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float& y = s[4 * j + 2 * r + e];
                    y = key + 8 * r < most ? weight(y, scale, lq) : 0;
                    if constexpr (PARTS & 1) x[4 * j + 2 * r + e] = y * (x[4 * j + 2 * r + e] - dq);
                }
            }
        if constexpr (PARTS & 2) weigh_rows<KIND, D, STEP>(sumV, s, q0 + BYTES);
        if constexpr (PARTS & 1) weigh_rows<KIND, D, STEP>(sumK, x, q0);
        __syncthreads();
        i = following;
    }
    arrived<0>();
    __syncthreads();
    const float one[2] = {1, 1}, by[2] = {p.scale, p.scale};
    const int row = key - lane / 4;
    const i64 to = at.batch * ds.batch + at.head * ds.head + row * ds.row;
    if constexpr (PARTS & 1)
        if (outputs & 1) store<KIND, D>(sumK, by, memK, dk + to, ds.row, p.keys - row, p.dim);
    if constexpr (PARTS & 2)
        if (outputs & 2) store<KIND, D>(sumV, one, memK, dv + to, ds.row, p.keys - row, p.dim);
}

// gradients_of_keys computes dk and dv in a block, and of rows of 256 elements, whose sums would take all registers, in two blocks.
template <int KIND, int D, typename... Args> __device__ __forceinline__ void gradients_of_keys(const Args&... args) {
    if constexpr (D < 256)
        gradient_keys<KIND, D, 3>(args...);
    else if (blockIdx.x % 2)
        gradient_keys<KIND, D, 2>(args...);
    else
        gradient_keys<KIND, D, 1>(args...);
}

// From 10.0 on, FMA units are as fast as three products of TF32: the entry points of IN_PARTS are empty.
template <int KIND> constexpr bool COMPUTED = KIND != IN_PARTS || __CUDA_ARCH__ < 1000;

// Older devices have other instructions: the entry points are empty below 8.0.
#if __CUDA_ARCH__ >= 800
#define BODY(...) __VA_ARGS__
#else
#define BODY(...)
#endif
#define INPUTS(E) const E *q, STRIDES(q), const E *k, STRIDES(k), const E *v, STRIDES(v)
#define INPUTS_OF q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v)
#define GRADIENTS(E) const E *g, STRIDES(g), const float *lse, const float *delta
#define GRADIENTS_OF g, STRIDES_OF(g), lse, delta
#define ENTRIES(name, KIND, D, E)                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_##name(INPUTS(E), E* out, STRIDES(out), float* lse, const int outputs, PROBLEM(float)) {    \
        BODY(if constexpr (COMPUTED<KIND>) attend<KIND, D>(INPUTS_OF, out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(float), batches);)                         \
    }                                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_dq_##name(INPUTS(E), GRADIENTS(E), E* dq, PROBLEM(float)) {                                 \
        BODY(if constexpr (COMPUTED<KIND>) gradient_queries<KIND, D>(INPUTS_OF, GRADIENTS_OF, dq, PROBLEM_OF(float), batches);)                                 \
    }                                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128) attention_mma_dkv_##name(INPUTS(E), GRADIENTS(E), E* dk, E* dv, STRIDES(d), const int outputs, PROBLEM(float)) { \
        BODY(if constexpr (COMPUTED<KIND>) gradients_of_keys<KIND, D>(INPUTS_OF, GRADIENTS_OF, dk, dv, STRIDES_OF(d), outputs, PROBLEM_OF(float), batches);)    \
    }
