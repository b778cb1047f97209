// Attention of few queries to many keys (decoding): out and lse as in attention.cu. Bound by latency, and with many keys by memory.
//
// The keys that a tile of queries sees are split among blocks. The queries of all heads that share a head of keys are rows of one tile, so that keys and values are loaded
// once for ROWS rows. A group of lanes loads a key and its value, 16 bytes a lane, and keeps the maximum, the sum of exponentials and the weighted sum of values of each row over
// the keys that it loads (online softmax). These partial results are merged over the groups of a warp, then over warps, then over blocks, always in the same order. attention_spread
// loads elements one by one, for rows of q, k and v that are not whole pieces of 16 bytes, or more than 32 pieces.
//
// With an update, k and v are parts of a cache, with the same strides. Keys from the position on are read from the new rows, and the block that reads a key, or the last one for keys that no
// query sees, writes it to the cache. A position from which the rows do not fit changes nothing.
//
// Before a block waits for prerequisite kernels it prefetches its keys and values to L2, of the number of keys that is stored at that time: one that is still to change costs time alone.
//
// The CLUSTER blocks of a cluster, from compute capability 9.0 on, send their partial results to the first one. If a tile has one cluster, or one block, that writes the result. Otherwise it writes a
// partial result to scratch memory, as does each block where there are no clusters, and merge merges these.
#include "attention.cuh"
#include "inbox.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32, MOST = 256, CLUSTER = 8; // MOST elements of a row
#if __CUDA_ARCH__ >= 900
#define IN_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTER
#endif

__device__ __forceinline__ void load_as(float& to, float x) { to = x; }
__device__ __forceinline__ void store_as(float& to, float x) { to = x; }

// Piece is the part of a row that a lane holds: 16 contiguous bytes.
template <typename T> struct alignas(16) Piece {
    using E = T;
    static constexpr bool BUILT = true; // for this target
    static constexpr int WIDTH = 16 / sizeof(E);
    E x[WIDTH];
    // column is which element of the row x[e] is.
    static __device__ __forceinline__ int column(int e, int lane, int lanes) { return lane * WIDTH + e; }
    // load loads the elements of a row, zeros beyond its end.
    __device__ __forceinline__ void load(const E* row, int lane, int lanes, int dim) {
        const int c = lane * WIDTH;
        *reinterpret_cast<uint4*>(this) = c < dim ? *reinterpret_cast<const uint4*>(row + c) : make_uint4(0, 0, 0, 0);
    }
};

// Spread is the same for rows at any address: elements that are as far from each other as there are lanes.
template <typename T> struct Spread {
    using E = T;
#if __CUDA_ARCH__ == 900
    static constexpr bool BUILT = true;
#else
    static constexpr bool BUILT = sizeof(E) == 4; // elements of 16 bits where they were measured
#endif
    static constexpr int WIDTH = MOST / 32;
    E x[WIDTH];
    static __device__ __forceinline__ int column(int e, int lane, int lanes) { return e * lanes + lane; }
    __device__ __forceinline__ void load(const E* row, int lane, int lanes, int dim) {
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            x[e] = E{};
            if (column(e, lane, lanes) < dim) x[e] = row[column(e, lane, lanes)];
        }
    }
};

// Update is `count` new rows of the keys and values of each batch, whose batches are `batch` elements apart.
template <typename E> struct Update {
    const E *k, *v; // of the first head
    i64 batch;
    const i64* position; // one for all batches; if `each` is 1, one for each batch
    int each, count;
    // first is the key that the first of them is, or `keys` where they do not fit.
    __device__ __forceinline__ int first(int index, int keys) const {
        if (count == 0) return keys;
        const i64 at = position[index * each];
        return at < 0 || at > keys - count ? keys : (int)at;
    }
    // write writes those of a head that are keys from `begin` on, before `end`. Rows are whole pieces of 16 bytes.
    template <typename A> __device__ __forceinline__ void write(const A& a, int first, int index, int head, int begin, int end, int lane, int lanes, int group, int groups) const {
        if (first >= end || first + count <= begin) return;
#pragma unroll 1
        for (int i = group; i < count; i += groups) {
            const int j = first + i;
            if (j < begin || j >= end) continue;
            constexpr int PIECE = 16 / sizeof(E);
            for (int c = lane * PIECE; c < a.p.dim; c += lanes * PIECE) {
                const i64 from = index * batch + head * a.ks.head + i * a.ks.row + c, to = index * a.ks.batch + head * a.ks.head + j * a.ks.row + c;
                *reinterpret_cast<uint4*>(const_cast<E*>(a.k) + to) = *reinterpret_cast<const uint4*>(k + from);
                *reinterpret_cast<uint4*>(const_cast<E*>(a.v) + to) = *reinterpret_cast<const uint4*>(v + from);
            }
        }
    }
};

// Partial is attention to some of the keys: the maximum of the scores, the sum of exponentials of scores less that, and an element of the sum of values with these weights.
struct Partial {
    float top, total, sum;
    // keep stores it as element c of a row.
    __device__ __forceinline__ void keep(float* row, int c) const {
        row[2 + c] = sum;
        if (c == 0) row[0] = top, row[1] = total;
    }
};

// merge merges N partial results, in their order.
template <int N> __device__ __forceinline__ Partial merge(const Partial (&p)[N]) {
    Partial all = {-INFINITY, 0, 0};
#pragma unroll
    for (int i = 0; i < N; i++) all.top = max(all.top, p[i].top);
    const float from = all.top == -INFINITY ? 0.0f : all.top;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float factor = exp(p[i].top - from);
        all.total += p[i].total * factor, all.sum += p[i].sum * factor;
    }
    return all;
}

// Arguments are the kernels' arguments without scratch memory.
template <typename E> struct Arguments {
    const E *q, *k, *v;
    Strides qs, ks, vs;
    E* out;
    Strides os;
    float* lse;
    int outputs;
    Problem<float> p;
    Update<E> update;
    // write stores element c of a row of a tile, and the statistics with element 0.
    __device__ __forceinline__ void write(int batch, int head, int row, int c, const Partial& x, int limit) const {
        const int h = head * p.group + row / p.queries, query = row % p.queries;
        const bool none = limit == 0;
        if (outputs & 1) store_as(out[batch * os.batch + h * os.head + query * os.row + c], none ? 0.0f : x.sum * (1 / x.total));
        if (outputs & 2 && c == 0) lse[((i64)batch * p.heads + h) * p.queries + query] = none ? float(-INFINITY) : x.top + log(x.total);
    }
};

// Shared has partial results of a row by warp, and on the first block of a cluster those of R rows by block.
template <int R> struct Shared {
    float sums[WARPS][MOST], tops[WARPS], totals[WARPS];
#if __CUDA_ARCH__ >= 900
    float blockSums[CLUSTER][R][MOST], blockTops[CLUSTER][R], blockTotals[CLUSTER][R];
    u64 full;
#endif
};

#if __CUDA_ARCH__ >= 900
// push stores an element in the shared memory of the first block of a cluster (st.async) and counts its bytes at that block's mbarrier.
__device__ __forceinline__ void push(float* p, float v, u64* full) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(in_block(0, p)), "r"(__float_as_uint(v)), "r"(in_block(0, full)) : "memory");
}
#endif

#if __CUDA_ARCH__ >= 900
// prefetch prefetches the rows of a head from `begin` on, before `end`, to L2.
template <typename E> __device__ __forceinline__ void prefetch(const E* x, i64 row, int begin, int end, int dim) {
    constexpr int LINE = 128 / sizeof(E);
#pragma unroll 1
    for (int j = begin + threadIdx.x; j < end; j += THREADS)
#pragma unroll 1
        for (int c = 0; c < dim; c += LINE) asm volatile("prefetch.global.L2 [%0];" ::"l"(x + j * row + c));
}
// prefetch_keys prefetches the keys and values of a part, if a batch has one number of keys, of 8 bytes, or none.
template <typename A> __device__ __forceinline__ void prefetch_keys(const A& a, int batch, int head, int part, int parts) {
    i64 n = a.p.keys;
    if (a.p.counts.bytes) {
        if (a.p.counts.bytes != 8) return;
        asm volatile("ld.global.L1::no_allocate.b64 %0, [%1];" : "=l"(n) : "l"(a.p.counts.at + 8 * batch * a.p.countBatch));
    }
    const int most = (int)max(min(n, (i64)a.p.keys), 0ll), each = (most + parts - 1) / parts, begin = min(part * each, most), end = min(begin + each, most);
    prefetch(a.k + batch * a.ks.batch + head * a.ks.head, a.ks.row, begin, end, a.p.dim);
    prefetch(a.v + batch * a.vs.batch + head * a.vs.head, a.vs.row, begin, end, a.p.dim);
}
#endif

// tile computes R rows from row0 on, for the keys of part `part` of parts.
template <typename P, int R> __device__ __forceinline__ void tile(Shared<R>& m, const Arguments<typename P::E>& a, int batch, int head, int row0, int part, int parts, bool joined, float* partial) {
    using E = typename P::E;
    constexpr int W = P::WIDTH, KEYS = 4; // in flight
    const Problem<float>& p = a.p;
    const int rows = min(R, p.group * p.queries - row0);
    int lanes = 1;
    while (lanes < 32 && lanes * W < p.dim) lanes *= 2;
    const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = THREADS / lanes;
#if __CUDA_ARCH__ >= 900
    const int rank = part % CLUSTER;
    if (joined) open_inbox(&m.full, rank == 0 ? CLUSTER * rows * (p.dim + 2) * (int)sizeof(float) : 0);
    prefetch_keys(a, batch, head, part, parts);
#endif
    follow();
    const int fresh = a.update.first(batch, p.keys), stale = fresh + a.update.count; // keys between these are new rows
    int limit[R], most = 0;
#pragma unroll
    for (int r = 0; r < R; r++) {
        limit[r] = r < rows ? p.limit(batch, (row0 + r) % p.queries) : 0;
        most = max(most, limit[r]);
    }
    float q[R][W], sum[R][W] = {}, top[R], total[R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
        top[r] = -INFINITY;
        const int row = row0 + min(r, rows - 1);
        const E* const from = a.q + batch * a.qs.batch + (head * p.group + row / p.queries) * a.qs.head + row % p.queries * a.qs.row;
        P x;
        x.load(from, lane, lanes, p.dim);
#pragma unroll
        for (int e = 0; e < W; e++) load_as(q[r][e], x.x[e]);
    }
    const int each = (most + parts - 1) / parts, begin = min(part * each, most), end = min(begin + each, most);
    const E *const k = a.k + batch * a.ks.batch + head * a.ks.head, *const v = a.v + batch * a.vs.batch + head * a.vs.head;
    const E *const newK = a.update.k + batch * a.update.batch + head * a.ks.head, *const newV = a.update.v + batch * a.update.batch + head * a.ks.head;
#pragma unroll 1
    for (int j0 = begin; j0 < end; j0 += groups * KEYS) { // the same for all lanes, which exchange sums
        P x[KEYS], y[KEYS];
#pragma unroll
        for (int u = 0; u < KEYS; u++) {
            const int j = min(j0 + u * groups + group, end - 1);
            const bool isNew = j >= fresh && j < stale;
            x[u].load(isNew ? newK + (j - fresh) * a.ks.row : k + j * a.ks.row, lane, lanes, p.dim);
            y[u].load(isNew ? newV + (j - fresh) * a.ks.row : v + j * a.vs.row, lane, lanes, p.dim);
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float score[KEYS], high = top[r];
            bool seen[KEYS];
#pragma unroll
            for (int u = 0; u < KEYS; u++) {
                score[u] = 0;
#pragma unroll
                for (int e = 0; e < W; e++) {
                    float b;
                    load_as(b, x[u].x[e]);
                    score[u] += q[r][e] * b;
                }
            }
#pragma unroll 1
            for (int d = lanes / 2; d > 0; d /= 2)
#pragma unroll
                for (int u = 0; u < KEYS; u++) score[u] += __shfl_xor_sync(~0u, score[u], d);
#pragma unroll
            for (int u = 0; u < KEYS; u++) {
                seen[u] = j0 + u * groups + group < min(end, limit[r]);
                score[u] *= p.scale;
                if (seen[u]) high = max(high, score[u]);
            }
            const float from = high == -INFINITY ? 0.0f : high, factor = exp(top[r] - from);
            top[r] = high, total[r] *= factor;
#pragma unroll
            for (int e = 0; e < W; e++) sum[r][e] *= factor;
#pragma unroll
            for (int u = 0; u < KEYS; u++) {
                const float weight = exp(score[u] - from);
                if (!seen[u]) continue;
                total[r] += weight;
#pragma unroll
                for (int e = 0; e < W; e++) {
                    float b;
                    load_as(b, y[u].x[e]);
                    sum[r][e] += weight * b;
                }
            }
        }
    }
    a.update.write(a, fresh, batch, head, begin, part == parts - 1 ? p.keys : end, lane, lanes, group, groups);
#if __CUDA_ARCH__ >= 900
    if (joined) cluster_wait(); // all blocks have begun
#endif
    const int warp = threadIdx.x / 32, c0 = threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < rows; r++) { // one after the other: the code is large
        float high = top[0], count = total[0], acc[W];
#pragma unroll
        for (int e = 0; e < W; e++) acc[e] = sum[0][e];
#pragma unroll
        for (int i = 1; i < R; i++) {
            if (i != r) continue;
            high = top[i], count = total[i];
#pragma unroll
            for (int e = 0; e < W; e++) acc[e] = sum[i][e];
        }
#pragma unroll 1
        for (int d = lanes; d < 32; d *= 2) {
            const float other = __shfl_xor_sync(~0u, high, d), both = max(high, other), from = both == -INFINITY ? 0.0f : both, f = exp(high - from), g = exp(other - from);
            high = both, count = count * f + __shfl_xor_sync(~0u, count, d) * g;
#pragma unroll
            for (int e = 0; e < W; e++) acc[e] = acc[e] * f + __shfl_xor_sync(~0u, acc[e], d) * g;
        }
        if (r > 0) __syncthreads(); // all have read the row before
        if (threadIdx.x % 32 < lanes) {
            if (lane == 0) m.tops[warp] = high, m.totals[warp] = count;
#pragma unroll
            for (int e = 0; e < W; e++) m.sums[warp][P::column(e, lane, lanes)] = acc[e];
        }
        __syncthreads();
        if (c0 >= p.dim) continue;
        Partial list[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++) list[w] = {m.tops[w], m.totals[w], m.sums[w][c0]};
        const Partial all = merge(list);
#if __CUDA_ARCH__ >= 900
        if (joined) {
            push(&m.blockSums[rank][r][c0], all.sum, &m.full);
            if (c0 == 0) push(&m.blockTops[rank][r], all.top, &m.full), push(&m.blockTotals[rank][r], all.total, &m.full);
            continue;
        }
#endif
        if (parts == 1) a.write(batch, head, row0 + r, c0, all, p.limit(batch, (row0 + r) % p.queries));
        else all.keep(partial + ((i64)blockIdx.x * R + r) * (p.dim + 2), c0);
    }
#if __CUDA_ARCH__ >= 900
    if (!joined || rank > 0 || c0 >= p.dim) return;
    await_inbox(&m.full);
#pragma unroll 1
    for (int r = 0; r < rows; r++) {
        Partial list[CLUSTER];
#pragma unroll
        for (int b = 0; b < CLUSTER; b++) list[b] = {m.blockTops[b][r], m.blockTotals[b][r], m.blockSums[b][r][c0]};
        if (parts == CLUSTER) a.write(batch, head, row0 + r, c0, merge(list), p.limit(batch, (row0 + r) % p.queries));
        else merge(list).keep(partial + ((i64)(blockIdx.x / CLUSTER) * R + r) * (p.dim + 2), c0);
    }
#endif
}

constexpr int ROWS = 4; // in a tile; a variant computes tiles of one row

#define PARAMETERS(E) \
    const E *q, STRIDES(q), const E *k, STRIDES(k), const E *v, STRIDES(v), E *out, STRIDES(out), float *lse, const int outputs, PROBLEM(float), const int parts, const int joined, float *partial, \
        const E *newK, const E *newV, const i64 newBatch, const i64 *position, const int positionEach, const int newCount
#define ARGUMENTS(E) \
    Arguments<E> { q, k, v, STRIDES_OF(q), STRIDES_OF(k), STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(float), {newK, newV, newBatch, position, positionEach, newCount} }
#define SPLIT(name, Row)                                                                                                                                    \
    extern "C" __global__ void IN_CLUSTER __launch_bounds__(THREADS) attention_##name(PARAMETERS(Row::E)) {                                                 \
        if (!Row::BUILT) return follow();                                                                                                                   \
        __shared__ Shared<ROWS> m;                                                                                                                          \
        admit();                                                                                                                                            \
        const Arguments<Row::E> a = ARGUMENTS(Row::E);                                                                                                      \
        const int rows = group * queries, most = rows == 1 ? 1 : ROWS, tiles = (rows + most - 1) / most, part = blockIdx.x % parts, id = blockIdx.x / parts; \
        const int row0 = id % tiles * most, all = heads / group, head = id / tiles % all, batch = id / tiles / all;                                         \
        if (batch >= batches) follow(); /* a block that fills a cluster */                                                                                  \
        else if (rows == 1) tile<Row, 1>(reinterpret_cast<Shared<1>&>(m), a, batch, head, row0, part, parts, joined, partial);                              \
        else tile<Row, ROWS>(m, a, batch, head, row0, part, parts, joined, partial);                                                                        \
    }
#define ATTENTION(name, E)                                                                                                                                  \
    SPLIT(split_##name, Piece<E>)                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS) attention_merge_##name(PARAMETERS(E)) {                                                           \
        follow();                                                                                                                                           \
        const Arguments<E> a = ARGUMENTS(E);                                                                                                                \
        const int rows = group * queries, most = rows == 1 ? 1 : ROWS, tiles = (rows + most - 1) / most, row = blockIdx.x % rows, id = blockIdx.x / rows;    \
        const int c = threadIdx.x, all = heads / group, batch = id / all, count = joined ? parts / CLUSTER : parts;                                         \
        if (c >= dim) return;                                                                                                                               \
        const float* from = partial + ((i64)(id * tiles + row / most) * count * most + row % most) * (dim + 2);                                             \
        Partial list[2] = {{-INFINITY, 0, 0}};                                                                                                              \
        for (int i = 0; i < count; i++, from += (i64)most * (dim + 2)) {                                                                                    \
            list[1] = {from[0], from[1], from[2 + c]};                                                                                                      \
            list[0] = merge(list);                                                                                                                          \
        }                                                                                                                                                   \
        a.write(batch, id % all, row, c, list[0], a.p.limit(batch, row % queries));                                                                         \
    }
ATTENTION(f32, float)
ATTENTION(bf16, BF16)
ATTENTION(f16, F16)
SPLIT(spread_f32, Spread<float>)
SPLIT(spread_bf16, Spread<BF16>)
SPLIT(spread_f16, Spread<F16>)
