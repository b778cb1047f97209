// attention: out[b][h][i] = Σ_j w[j] v[b][h / group][j], w = softmax over the keys j that query i sees of scale q[b][h][i] . k[b][h / group][j]
// lse[b][h][i] = log Σ_j exp(scale q . k), -Inf where a query sees no key; there out is 0.
//
// A block computes SIDE queries of a head. It goes through the keys SIDE at a time and keeps of each query the running maximum, the sum of exponentials and
// the weighted sum of rows of v (online softmax). The keys beyond the largest limit of the queries are left out. Bound by the FMA units.
//
// Where tiles of queries are fewer than the GPU computes at a time, `parts` blocks share the keys of a tile. Each writes this state of its queries to scratch memory: the maximum, the sum
// of exponentials and the weighted sum, row by row and part by part. attention_parts merges the parts of a row, always in the same order.
#include "attention.cuh"

template <typename T, int R, int S>
__device__ __forceinline__ void attention(const void* q, Strides qs, const void* k, Strides ks, const void* v, Strides vs, void* out, Strides os, T* lse, int outputs, int stored,
                                          const Problem<T>& p, int batches, int parts, T* partial) {
    using B = Block<T, R>;
    __shared__ typename B::Memory m;
    follow();
    const int tiles = (p.queries + B::SIDE - 1) / B::SIDE, heads = batches * p.heads, part = blockIdx.x % parts, id = blockIdx.x / parts, slice = id % SLICES(S), c0 = slice * S * B::WIDE;
    const int block = id / SLICES(S), number = block % heads, t0 = (tiles - 1 - block / heads) * B::SIDE, batch = number / p.heads, head = number % p.heads;
    const Head<T> queries(q, qs, batch, head, p.queries, p.dim, stored), keys(k, ks, batch, head / p.group, p.keys, p.dim, stored),
        values(v, vs, batch, head / p.group, p.keys, p.dim, stored);
    B::limits(m, p, batch, t0);
    T sum[R][S][4] = {}, most[R], total[R];
#pragma unroll
    for (int r = 0; r < R; r++) most[r] = -INFINITY, total[r] = 0;
    const int each = ((m.ends[1] + B::SIDE - 1) / B::SIDE + parts - 1) / parts * B::SIDE, end = min((part + 1) * each, m.ends[1]);
#pragma unroll 1
    for (int j0 = part * each; j0 < end; j0 += B::SIDE) {
        const bool whole = j0 + B::SIDE <= m.ends[0];
        T s[R][R] = {};
        if (end - j0 > 16 * (R / 2)) B::scores(s, m, queries, t0, keys, j0);
        else B::template scores<R / 2>(s, m, queries, t0, keys, j0); // few keys
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int limit = m.limits[B::y() * R + r] - j0;
            T high = most[r], add = 0;
#pragma unroll
            for (int c = 0; c < R; c++) {
                s[r][c] *= p.scale;
                if (B::x() + 16 * c < limit) high = max(high, s[r][c]);
            }
#pragma unroll
            for (int d = 8; d > 0; d /= 2) high = max(high, __shfl_xor_sync(~0u, high, d));
            const T from = high == -INFINITY ? T(0) : high, factor = exp(most[r] - from);
            most[r] = high;
#pragma unroll
            for (int c = 0; c < R; c++) {
                s[r][c] = B::x() + 16 * c < limit ? exp(s[r][c] - from) : T(0);
                add += s[r][c];
            }
#pragma unroll
            for (int d = 8; d > 0; d /= 2) add += __shfl_xor_sync(~0u, add, d);
            total[r] = total[r] * factor + add;
#pragma unroll
            for (int c = 0; c < S; c++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[r][c][e] *= factor;
        }
        if (outputs & 1) {
            B::keep(m, s);
            B::accumulate(sum, m, values, j0, c0, whole, [&](int row, int column) { return j0 + column < m.limits[row]; }, end - j0);
        }
    }
    if (parts > 1) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int query = t0 + B::y() * R + r;
            if (query >= p.queries) break;
            T* const row = partial + (((i64)number * p.queries + query) * parts + part) * (p.dim + 2);
            if (slice == 0 && B::x() == 0) row[0] = most[r], row[1] = total[r];
#pragma unroll
            for (int c = 0; c < S; c++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int column = c0 + c * B::WIDE + 4 * B::x() + e;
                    if (column < p.dim) row[2 + column] = sum[r][c][e];
                }
        }
        return;
    }
    T factor[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int row = B::y() * R + r;
        const bool none = m.limits[row] == 0;
        factor[r] = none ? T(0) : 1 / total[r];
        if (outputs & 2 && slice == 0 && B::x() == 0 && t0 + row < p.queries) lse[(i64)number * p.queries + t0 + row] = none ? T(-INFINITY) : most[r] + log(total[r]);
    }
    if (outputs & 1) B::store(Head<T>(out, os, batch, head, p.queries, p.dim, stored), m, t0, c0, sum, factor);
}

// merge_parts merges the parts of rows. A thread has an element of a row.
template <typename T>
__device__ __forceinline__ void merge_parts(const T* partial, int parts, void* out, Strides os, T* lse, int outputs, int stored, const Problem<T>& p, int batches) {
    follow();
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, row = i / p.dim, column = i % p.dim, query = row % p.queries, number = row / p.queries, head = number % p.heads, batch = number / p.heads;
    if (batch >= batches) return;
    const T* const from = partial + (i64)row * parts * (p.dim + 2);
    T most = -INFINITY, total = 0, sum = 0;
    for (int part = 0; part < parts; part++) most = max(most, from[part * (p.dim + 2)]);
    const T base = most == -INFINITY ? T(0) : most;
#pragma unroll 1
    for (int part = 0; part < parts; part++) {
        const T *const x = from + part * (p.dim + 2), factor = exp(x[0] - base);
        total += x[1] * factor, sum += x[2 + column] * factor;
    }
    const bool none = p.limit(batch, query) == 0;
    if (outputs & 1) Head<T>(out, os, batch, head, p.queries, p.dim, stored).write(query * os.row + column, none ? T(0) : sum * (1 / total));
    if (outputs & 2 && column == 0) lse[row] = none ? T(-INFINITY) : most + log(total);
}

#define PARAMETERS(T)                                                                                                                                          \
    const void *q, STRIDES(q), const void *k, STRIDES(k), const void *v, STRIDES(v), void *out, STRIDES(out), T *lse, const int outputs, PROBLEM(T), const int parts, T *partial, const int stored
#define ATTENTION(name, T, R, S)                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) attention_##name(PARAMETERS(T)) {                                                                        \
        attention<T, R, S>(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(T), batches, parts, partial); \
    }                                                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) attention_parts_##name(PARAMETERS(T)) {                                                                  \
        merge_parts<T>(partial, parts, out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(T), batches);                                                     \
    }
ATTENTION(f32, float, 4, 2)
ATTENTION(f64, double, 2, 1)
