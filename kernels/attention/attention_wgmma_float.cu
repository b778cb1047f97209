// attention and its gradients for float32 operands with rows of up to 64 elements on compute capability 9.0: the kernels of attention_mma.cuh (see there for the kinds IN_TF32 and IN_PARTS and how they are
// accurate), with products of warpgroups (wgmma), whose second operands are tiles in shared memory.
//
// A block is GROUPS warpgroups with 64 rows of their own each, which stay in shared memory as they are and are converted to fragments. The rows of the other side come STEP at a time by cp.async into a
// stage. The block converts each of their elements once, into slabs: leading parts and, of IN_PARTS, rests, along the rows and, where rows are terms of a product, transposed, since wgmma reads TF32 along
// terms alone. It converts the slab of the next product while it waits for one.
//stheno:targets sm_90a ptx
#include "attention_mma.cuh"
#undef BODY
#include "attention_wgmma.cuh"

constexpr int STEP = 64; // rows of a stage

// multiply_tf32 starts d = a b, or d += a b where add is not 0: 64 x 64 elements over a warpgroup, 8 terms, a in registers as mma.sync has it.
__device__ __forceinline__ void multiply_tf32(float (&d)[32], const u32 (&a)[4], u64 b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 " LIST32 ", {%32, %33, %34, %35}, %36, p, 1, 1;\n}"
                 : D32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// copy_rows starts copies of 16-byte pieces of rows t0 to t0 + ROWS - 1 to where at says, 0 outside.
template <int GROUPS, int ROWS, typename At> __device__ __forceinline__ void copy_rows(const Rows<const float>& from, int t0, const At& at) {
    const int first = threadIdx.x / 16, piece = threadIdx.x % 16, rows = piece * 4 < from.dim ? from.count - t0 - first : 0;
    const float* x = from.x + (t0 + first) * from.stride + piece * 4;
#pragma unroll
    for (int r = 0; r < ROWS; r += 8 * GROUPS, x += 8 * GROUPS * from.stride) copy_far(at(first + r, piece), r < rows ? x : from.x, r < rows);
}

// Stage is STEP rows of 64 elements as cp.async copies them. The 16-byte pieces of a row are exchanged so that neither reads of rows nor of squares, see transpose, meet in a bank.
struct Stage {
    static constexpr int BYTES = STEP * 256;
    static __device__ __forceinline__ u32 at(u32 memory, int row, int piece) { return memory + row * 256 + (piece ^ (row >> 2 & 6 | row & 1)) * 16; }
    template <int GROUPS> static __device__ __forceinline__ void copy(u32 memory, const Rows<const float>& from, int t0) {
        copy_rows<GROUPS, STEP>(from, t0, [&](int row, int piece) { return at(memory, row, piece); });
    }
};

// Slab is ROWS rows of COLUMNS terms in shared memory as wgmma reads them: panels of 32 columns, 16-byte pieces exchanged. Of IN_PARTS, a slab of rests follows.
template <int KIND, int ROWS, int COLUMNS> struct Slab {
    static constexpr int SIZE = ROWS * COLUMNS * 4, BYTES = KIND == IN_PARTS ? 2 * SIZE : SIZE;
    static __device__ __forceinline__ u32 at(u32 memory, int row, int piece) { return memory + piece / 8 * (ROWS * 128) + row * 128 + ((piece ^ row) & 7) * 16; }
    // store converts and stores a piece.
    static __device__ __forceinline__ void store(u32 memory, int row, int piece, const float (&x)[4]) {
        Operand<KIND, 4> y;
#pragma unroll
        for (int i = 0; i < 4; i++) y.x[i] = __float_as_uint(x[i]);
        y.convert();
        const u32 to = at(memory, row, piece);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(y.x[0]), "r"(y.x[1]), "r"(y.x[2]), "r"(y.x[3]) : "memory");
        if constexpr (KIND == IN_PARTS)
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + SIZE), "r"(y.rest[0]), "r"(y.rest[1]), "r"(y.rest[2]), "r"(y.rest[3]) : "memory");
    }
    // terms is the offset in descriptors of 8 terms, rests that of the rests.
    static constexpr __device__ __forceinline__ u64 terms(int l) { return l / 4 * (ROWS * 128 >> 4) + l % 4 * 2; }
    static constexpr u64 rests = SIZE >> 4;
};

__device__ __forceinline__ void load_piece(float (&x)[4], u32 from) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(from) : "memory");
}

// convert makes a slab of the rows of a stage.
template <int KIND, int GROUPS> __device__ __forceinline__ void convert(u32 slab, u32 stage) {
#pragma unroll
    for (int r = 0; r < STEP; r += 8 * GROUPS) {
        const int row = r + threadIdx.x / 16, piece = threadIdx.x % 16;
        float x[4];
        load_piece(x, Stage::at(stage, row, piece));
        Slab<KIND, STEP, 64>::store(slab, row, piece, x);
    }
}

// transpose makes a slab whose rows are the 64 columns of a stage. The even ones of 8 terms come first, as a thread has them in a tile of scores. A thread transposes squares of 4 x 4.
template <int KIND, int GROUPS> __device__ __forceinline__ void transpose(u32 slab, u32 stage) {
#pragma unroll
    for (int i = 0; i < STEP / 32 / GROUPS; i++) {
        const int number = i * GROUPS * 128 + threadIdx.x, odd = number % 2, eight = number / 2 % (STEP / 8), column = number / (STEP / 4);
        float x[4][4], y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) load_piece(x[j], Stage::at(stage, eight * 8 + 2 * j + odd, column));
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) y[j] = x[j][k];
            Slab<KIND, 64, STEP>::store(slab, column * 4 + k, 2 * eight + odd, y);
        }
    }
}

// converted makes slabs visible to wgmma, once all threads have written theirs.
__device__ __forceinline__ void converted() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// Sums are those of products in flight: of IN_PARTS, low sums the two products with a rest, see Low of attention_mma.cuh.
template <int KIND> struct Sums {
    static constexpr int N = 32;
    float low[KIND == IN_PARTS ? N : 1];
    // start starts COUNT products of 8 terms each, with those of a slab. Unless add, d is what they sum to.
    template <typename B, int COUNT> __device__ __forceinline__ void start(float (&d)[N], const Operand<KIND, 4> (&a)[COUNT], u64 b, bool add = false) {
        wgmma_fence();
#pragma unroll
        for (int l = 0; l < COUNT; l++) {
            if constexpr (KIND == IN_PARTS) {
                multiply_tf32(low, a[l].rest, b + B::terms(l), l > 0);
                multiply_tf32(low, a[l].x, b + B::terms(l) + B::rests, 1);
            }
            multiply_tf32(d, a[l].x, b + B::terms(l), add || l > 0);
        }
        wgmma_commit();
    }
    // complete waits for the products.
    __device__ __forceinline__ void complete(float (&d)[N]) {
        wgmma_wait<0>();
        pin(d);
        if constexpr (KIND == IN_PARTS) {
            pin(low);
            bool wrong = false; // the rest of an infinity or NaN is NaN: the leading products alone are the result then
#pragma unroll
            for (int i = 0; i < N; i++) wrong |= low[i] != low[i];
            if (__any_sync(~0u, wrong)) {
#pragma unroll
                for (int i = 0; i < N; i++) low[i] = low[i] == low[i] ? low[i] : 0;
            }
#pragma unroll
            for (int i = 0; i < N; i++) d[i] += low[i];
        }
    }
};

// Fragments are the block's 64 rows as first operands, converted from shared memory.
template <int KIND, int GROUPS> struct Fragments {
    Operand<KIND, 4> a[8];
    __device__ __forceinline__ void load(u32 own) {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
        for (int l = 0; l < 8; l++) {
            load_matrices<false>(a[l].x, Slab<IN_TF32, 64 * GROUPS, 64>::at(own, row, 2 * l + lane / 16));
            a[l].convert();
        }
    }
};

// start_scores starts s = a warpgroup's 64 rows times the STEP rows of a slab.
template <int KIND, int GROUPS> __device__ __forceinline__ void start_scores(Sums<KIND>& sums, float (&s)[32], const Fragments<KIND, GROUPS>& own, u32 slab) {
    sums.template start<Slab<KIND, STEP, 64>>(s, own.a, describe<STEP, false>(slab));
}

// weigh_slab_seen is weigh_seen for a slab of columns: sums of a row of weights times the terms that seen(r, j) selects.
template <int KIND, typename Seen> __device__ __noinline__ void weigh_slab_seen(float* sum, const float* weights, u32 slab, const Seen& seen) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int j = 0; j < STEP; j++) {
        float weight[2];
#pragma unroll
        for (int r = 0; r < 2; r++) weight[r] = __shfl_sync(~0u, weights[j / 8 * 4 + 2 * r + j % 2], lane / 4 * 4 + j % 8 / 2);
#pragma unroll 1
        for (int i = 0; i < 16; i++) {
            const u32 at = Slab<KIND, 64, STEP>::at(slab, i / 2 * 8 + lane % 4 * 2 + i % 2, j / 8 * 2 + j % 2) + j % 8 / 2 * 4;
            float x, rest = 0;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
            if (KIND == IN_PARTS) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(rest) : "r"(at + Slab<KIND, 64, STEP>::SIZE) : "memory");
            x = rest == rest ? x + rest : x;
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (seen(r, j)) sum[i / 2 * 4 + 2 * r + i % 2] += weight[r] * x;
        }
    }
}

// Weighted starts weights times the STEP terms of a slab of 64 rows, columns of the result, and adds these sums to others. During the products the caller can work on something else.
template <int KIND> struct Weighted {
    Sums<KIND> sums;
    Operand<KIND, 4> a[STEP / 8];
    float sum[32];
    __device__ __forceinline__ void start(const float (&s)[32], u32 slab) {
#pragma unroll
        for (int l = 0; l < STEP / 8; l++) {
#pragma unroll
            for (int i = 0; i < 4; i++) a[l].x[i] = __float_as_uint(s[4 * l + i % 2 * 2 + i / 2]);
            a[l].convert();
        }
        sums.template start<Slab<KIND, 64, STEP>>(sum, a, describe<64, false>(slab));
    }
    // For whole and seen see weigh_rows.
    template <typename Seen = All> __device__ __forceinline__ void complete(float (&o)[32], const float (&s)[32], u32 slab, bool whole = true, Seen seen = {}) {
        sums.complete(sum);
        if (!whole) {
            bool wrong = false;
#pragma unroll
            for (int i = 0; i < 32; i++) wrong |= sum[i] != sum[i];
            if (__any_sync(~0u, wrong)) {
                float weights[32], exact[32] = {};
#pragma unroll
                for (int i = 0; i < 32; i++) weights[i] = s[i];
                weigh_slab_seen<KIND>(exact, weights, slab, seen);
#pragma unroll
                for (int i = 0; i < 32; i++) sum[i] = exact[i];
            }
        }
#pragma unroll
        for (int i = 0; i < 32; i++) o[i] += sum[i];
    }
};

// copy_own copies the rows of a block.
template <int GROUPS> __device__ __forceinline__ void copy_own(u32 memory, const Rows<const float>& from, int t0) {
    copy_rows<GROUPS, 64 * GROUPS>(from, t0, [&](int row, int piece) { return Slab<IN_TF32, 64 * GROUPS, 64>::at(memory, row, piece); });
}

// store_sums writes the warp's 16 rows of 64 sums, times a factor each. Two lanes exchange halves of 8 columns, so that each writes 16 bytes.
__device__ __forceinline__ void store_sums(const float (&o)[32], const float (&factor)[2], float* to, i64 stride, int rows, int dim) {
    const int lane = threadIdx.x % 32, odd = lane % 2, row = lane / 4 + 8 * odd;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = factor[i / 2] == 0 ? 0 : o[4 * j + i] * factor[i / 2];
        const float a = __shfl_xor_sync(~0u, odd ? x[0] : x[2], 1), b = __shfl_xor_sync(~0u, odd ? x[1] : x[3], 1);
        const int column = 8 * j + lane % 4 / 2 * 4;
        if (row < rows && column < dim) *reinterpret_cast<float4*>(to + row * stride + column) = odd ? float4{a, b, x[2], x[3]} : float4{x[0], x[1], a, b};
    }
}

// memory_start is the first multiple of 1024 in the block's dynamic shared memory, of which wgmma wants tiles to begin.
__device__ __forceinline__ u32 memory_start() { return ((u32)__cvta_generic_to_shared(dynamic) + 1023) / 1024 * 1024; }

// Position of a block: a tile of ROWS rows of a head. If causal, all heads begin with the tile that sees the most of the other side, so that the last blocks of a launch have the least to do.
template <int ROWS> struct BlockPlace {
    int batch, head, t0;
    __device__ __forceinline__ BlockPlace(int block, int rows, int heads, int batches, bool causal, bool last) {
        const int tiles = (rows + ROWS - 1) / ROWS, count = heads * batches, number = causal ? block % count : block / tiles, tile = causal ? block / count : block % tiles;
        batch = number / heads, head = number % heads, t0 = (last ? tiles - 1 - tile : tile) * ROWS;
    }
};

template <int KIND>
__device__ __forceinline__ void slab_attend(const float* q, Strides qs, const float* k, Strides ks, const float* v, Strides vs, float* out, Strides os, float* lse, int outputs, const Problem<float>& p, int batches) {
    constexpr int GROUPS = 1, ROWS = 64 * GROUPS;
    const u32 memQ = memory_start(), stageK = memQ + ROWS * 256, stageV = stageK + Stage::BYTES, slabK = stageV + Stage::BYTES, slabV = slabK + Slab<KIND, STEP, 64>::BYTES;
    follow();
    const BlockPlace<ROWS> at(blockIdx.x, p.queries, p.heads, batches, p.causal, true);
    const Span<ROWS> span(p, at.batch, at.t0); // keys beyond are 0, whatever memory holds
    const Rows<const float> queries(q, qs, at.batch, at.head, p.queries, p.dim), keys(k, ks, at.batch, at.head / p.group, span.high, p.dim), values(v, vs, at.batch, at.head / p.group, span.high, p.dim);
    const int lane = threadIdx.x % 32, row = at.t0 + threadIdx.x / 32 * 16 + lane / 4;
    const int limit[2] = {p.limit(at.batch, min(row, p.queries - 1)), p.limit(at.batch, min(row + 8, p.queries - 1))};
    const float scale = p.scale * LOG2E;
    float o[32] = {}, s[32], most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, factor[2];
    copy_own<GROUPS>(memQ, queries, at.t0);
    Stage::copy<GROUPS>(stageK, keys, 0);
    Stage::copy<GROUPS>(stageV, values, 0);
    commit();
    arrived<0>();
    __syncthreads();
    Fragments<KIND, GROUPS> own;
    if constexpr (KIND == IN_TF32) own.load(memQ);
    convert<KIND, GROUPS>(slabK, stageK);
    converted();
    Stage::copy<GROUPS>(stageK, keys, STEP);
    commit();
#pragma unroll 1
    for (int j0 = 0; j0 < span.high; j0 += STEP) {
        Sums<KIND> sums;
        if constexpr (KIND == IN_PARTS) own.load(memQ); // they take too many registers to keep
        start_scores(sums, s, own, slabK);
        transpose<KIND, GROUPS>(slabV, stageV);
        sums.complete(s);
        arrived<0>();
        converted();
        Stage::copy<GROUPS>(stageV, values, j0 + STEP);
        commit();
        const bool whole = j0 + STEP <= span.low;
        if (!whole) mask(s, limit, j0);
        weigh<true>(s, most, total, factor, scale);
#pragma unroll
        for (int i = 0; i < 32; i++) o[i] *= factor[i / 2 % 2];
        Weighted<KIND> weighted;
        weighted.start(s, slabV);
        convert<KIND, GROUPS>(slabK, stageK);
        weighted.complete(o, s, slabV, whole, [&](int r, int j) { return j0 + j < limit[r]; });
        arrived<0>();
        converted();
        Stage::copy<GROUPS>(stageK, keys, j0 + 2 * STEP);
        commit();
    }
    arrived<0>();
    finish_rows(factor, total, most, limit, lse, outputs & 2, ((i64)at.batch * p.heads + at.head) * p.queries, row, p);
    const int first = row - lane / 4;
    if (outputs & 1) store_sums(o, factor, out + at.batch * os.batch + at.head * os.head + first * os.row, os.row, p.queries - first, p.dim);
}

template <int KIND>
__device__ __forceinline__ void slab_gradient_queries(const float* q, Strides qs, const float* k, Strides ks, const float* v, Strides vs, const float* g, Strides gs, const float* lse, const float* delta, float* dq, Strides dqs,
                                                      const Problem<float>& p, int batches) {
    constexpr int GROUPS = 2, ROWS = 64 * GROUPS;
    const u32 memQ = memory_start(), memG = memQ + ROWS * 256, stageK = memG + ROWS * 256, stageV = stageK + Stage::BYTES, slabK = stageV + Stage::BYTES, slabV = slabK + Slab<KIND, STEP, 64>::BYTES,
              columnsK = slabV + Slab<KIND, STEP, 64>::BYTES;
    follow();
    const BlockPlace<ROWS> at(blockIdx.x, p.queries, p.heads, batches, p.causal, true);
    const Span<ROWS> span(p, at.batch, at.t0); // keys beyond are 0, whatever memory holds
    const Rows<const float> queries(q, qs, at.batch, at.head, p.queries, p.dim), gradients(g, gs, at.batch, at.head, p.queries, p.dim), keys(k, ks, at.batch, at.head / p.group, span.high, p.dim),
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
    float sum[32] = {}, s[32], x[32];
    copy_own<GROUPS>(memQ, queries, at.t0);
    copy_own<GROUPS>(memG, gradients, at.t0);
    Stage::copy<GROUPS>(stageK, keys, 0);
    Stage::copy<GROUPS>(stageV, values, 0);
    commit();
    arrived<0>();
    __syncthreads();
    Fragments<KIND, GROUPS> ownQ, ownG;
    if constexpr (KIND == IN_TF32) ownQ.load(memQ), ownG.load(memG);
    convert<KIND, GROUPS>(slabK, stageK);
    converted();
#pragma unroll 1
    for (int j0 = 0; j0 < span.high; j0 += STEP) {
        Sums<KIND> sums;
        if constexpr (KIND == IN_PARTS) ownQ.load(memQ);
        start_scores(sums, s, ownQ, slabK);
        convert<KIND, GROUPS>(slabV, stageV);
        sums.complete(s);
        converted();
        Stage::copy<GROUPS>(stageV, values, j0 + STEP);
        commit();
        if constexpr (KIND == IN_PARTS) ownG.load(memG);
        start_scores(sums, x, ownG, slabV);
        transpose<KIND, GROUPS>(columnsK, stageK);
        const bool whole = j0 + STEP <= span.low;
#pragma unroll
        for (int j = 0; j < 32; j++) s[j] = weight(s[j], scale, l[j / 2 % 2]);
        sums.complete(x);
        converted();
        Stage::copy<GROUPS>(stageK, keys, j0 + STEP);
        commit();
#pragma unroll
        for (int j = 0; j < 32; j++) {
            s[j] *= x[j] - d[j / 2 % 2];
            if (!whole && j0 + j / 4 * 8 + lane % 4 * 2 + j % 2 >= limit[j / 2 % 2]) s[j] = 0;
        }
        Weighted<KIND> weighted;
        weighted.start(s, columnsK);
        arrived<0>(); // a thread converts what it has copied
        convert<KIND, GROUPS>(slabK, stageK);
        weighted.complete(sum, s, columnsK);
        converted();
    }
    const float by[2] = {limit[0] > 0 ? p.scale : 0, limit[1] > 0 ? p.scale : 0};
    const int first = row - lane / 4;
    store_sums(sum, by, dq + at.batch * dqs.batch + at.head * dqs.head + first * dqs.row, dqs.row, p.queries - first, p.dim);
}

template <int KIND>
__device__ __forceinline__ void slab_gradient_keys(const float* q, Strides qs, const float* k, Strides ks, const float* v, Strides vs, const float* g, Strides gs, const float* lse, const float* delta, float* dk, float* dv, Strides ds, int outputs,
                                                   const Problem<float>& p, int batches) {
    constexpr int GROUPS = 2, ROWS = 64 * GROUPS;
    const u32 memK = memory_start(), memV = memK + ROWS * 256, stageQ = memV + ROWS * 256, stageG = stageQ + Stage::BYTES, slabQ = stageG + Stage::BYTES, slabG = slabQ + Slab<KIND, STEP, 64>::BYTES,
              columnsQ = slabG + Slab<KIND, STEP, 64>::BYTES, columnsG = columnsQ + Slab<KIND, 64, STEP>::BYTES;
    follow();
    const BlockPlace<ROWS> at(blockIdx.x, p.keys, p.heads / p.group, batches, p.causal, false);
    const Rows<const float> keys(k, ks, at.batch, at.head, p.keys, p.dim), values(v, vs, at.batch, at.head, p.keys, p.dim);
    const int lane = threadIdx.x % 32, key = at.t0 + threadIdx.x / 32 * 16 + lane / 4, last = (at.head + 1) * p.group;
    const float scale = p.scale * LOG2E;
    float sumK[32] = {}, sumV[32] = {}, s[32], x[32];
    // next goes on to the next step, of the queries of all heads that read the keys, whose queries see a key of the block, or to head last.
    auto next = [&](int& head, int& t0) {
        do {
            if ((t0 += STEP) >= p.queries) t0 = 0, head++;
        } while (head < last && Span<STEP>(p, at.batch, t0).high <= at.t0);
    };
    auto copy = [&](int head, int t0) {
        if (head < last) {
            Stage::copy<GROUPS>(stageQ, Rows<const float>(q, qs, at.batch, head, p.queries, p.dim), t0);
            Stage::copy<GROUPS>(stageG, Rows<const float>(g, gs, at.batch, head, p.queries, p.dim), t0);
        }
        commit();
    };
    int head = last - p.group, t0 = -STEP;
    next(head, t0);
    copy_own<GROUPS>(memK, keys, at.t0);
    copy_own<GROUPS>(memV, values, at.t0);
    copy(head, t0);
    arrived<0>();
    __syncthreads();
    convert<KIND, GROUPS>(slabQ, stageQ);
    converted();
#pragma unroll 1
    while (head < last) {
        // A lane loads what belongs to two queries, the others get it by shuffles.
        const i64 first = ((i64)at.batch * p.heads + head) * p.queries;
        float l[2], d[2];
        int limit[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int query = t0 + j * 32 + lane;
            const bool is = query < p.queries;
            l[j] = is ? lse[first + query] * LOG2E : INFINITY, d[j] = is ? delta[first + query] : 0, limit[j] = is ? p.limit(at.batch, query) : 0;
        }
        Sums<KIND> sums;
        Fragments<KIND, GROUPS> own; // (kept across steps in TF32, ptxas 12.9 overwrites them)
        own.load(memK);
        start_scores(sums, s, own, slabQ);
        convert<KIND, GROUPS>(slabG, stageG);
        sums.complete(s);
        converted();
        own.load(memV);
        start_scores(sums, x, own, slabG);
        transpose<KIND, GROUPS>(columnsG, stageG);
        transpose<KIND, GROUPS>(columnsQ, stageQ);
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int from = j % 4 * 8 + lane % 4 * 2 + e;
                const float lq = __shfl_sync(~0u, l[j / 4], from);
                const int most = __shfl_sync(~0u, limit[j / 4], from);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float& y = s[4 * j + 2 * r + e];
                    y = key + 8 * r < most ? weight(y, scale, lq) : 0;
                }
            }
        sums.complete(x);
        converted();
        next(head, t0);
        copy(head, t0);
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float dq = __shfl_sync(~0u, d[j / 4], j % 4 * 8 + lane % 4 * 2 + e);
#pragma unroll
                for (int r = 0; r < 2; r++) x[4 * j + 2 * r + e] = s[4 * j + 2 * r + e] * (x[4 * j + 2 * r + e] - dq);
            }
        {
            Weighted<KIND> weighted;
            weighted.start(s, columnsG);
            weighted.complete(sumV, s, columnsG);
        }
        Weighted<KIND> weighted;
        weighted.start(x, columnsQ);
        arrived<0>(); // a thread converts what it has copied
        convert<KIND, GROUPS>(slabQ, stageQ);
        weighted.complete(sumK, x, columnsQ);
        converted();
    }
    const float one[2] = {1, 1}, by[2] = {p.scale, p.scale};
    const int row = key - lane / 4;
    const i64 to = at.batch * ds.batch + at.head * ds.head + row * ds.row;
    if (outputs & 1) store_sums(sumK, by, dk + to, ds.row, p.keys - row, p.dim);
    if (outputs & 2) store_sums(sumV, one, dv + to, ds.row, p.keys - row, p.dim);
}

#define SLAB_ENTRIES(name, KIND)                                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(128, 2) attention_wgmma_##name(INPUTS(float), float* out, STRIDES(out), float* lse, const int outputs, PROBLEM(float)) {     \
        BODY(slab_attend<KIND>(INPUTS_OF, out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(float), batches);)                                                                   \
    }                                                                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 1) attention_wgmma_dq_##name(INPUTS(float), GRADIENTS(float), float* dq, STRIDES(dq), PROBLEM(float)) {                 \
        BODY(slab_gradient_queries<KIND>(INPUTS_OF, GRADIENTS_OF, dq, STRIDES_OF(dq), PROBLEM_OF(float), batches);)                                                           \
    }                                                                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 1) attention_wgmma_dkv_##name(INPUTS(float), GRADIENTS(float), float* dk, float* dv, STRIDES(d), const int outputs, PROBLEM(float)) { \
        BODY(slab_gradient_keys<KIND>(INPUTS_OF, GRADIENTS_OF, dk, dv, STRIDES_OF(d), outputs, PROBLEM_OF(float), batches);)                                                  \
    }
SLAB_ENTRIES(tf32, IN_TF32)
SLAB_ENTRIES(f32, IN_PARTS)
