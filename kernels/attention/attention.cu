// attention: out[b][h][i] = Σ_j w[j] v[b][h / group][j], w = softmax over the keys j that query i sees of scale q[b][h][i] . k[b][h / group][j]
// lse[b][h][i] = log Σ_j exp(scale q . k), -Inf where a query sees no key; there out is 0.
//
// A block computes SIDE queries of a head. It goes through the keys SIDE at a time and keeps of each query the running maximum, the sum of exponentials and
// the weighted sum of rows of v (online softmax). The keys beyond the largest limit of the queries are left out. Bound by the FMA units.
#include "attention.cuh"

template <typename T, int R, int S>
__device__ __forceinline__ void attention(const void* q, Strides qs, const void* k, Strides ks, const void* v, Strides vs, void* out, Strides os, T* lse, int outputs, int stored,
                                          const Problem<T>& p, int batches) {
    using B = Block<T, R>;
    __shared__ typename B::Memory m;
    follow();
    const int tiles = (p.queries + B::SIDE - 1) / B::SIDE, heads = batches * p.heads, slice = blockIdx.x % SLICES(S), c0 = slice * S * B::WIDE;
    const int block = blockIdx.x / SLICES(S), number = block % heads, t0 = (tiles - 1 - block / heads) * B::SIDE, batch = number / p.heads, head = number % p.heads;
    const Head<T> queries(q, qs, batch, head, p.queries, p.dim, stored), keys(k, ks, batch, head / p.group, p.keys, p.dim, stored),
        values(v, vs, batch, head / p.group, p.keys, p.dim, stored);
    B::limits(m, p, batch, t0);
    T sum[R][S][4] = {}, most[R], total[R];
#pragma unroll
    for (int r = 0; r < R; r++) most[r] = -INFINITY, total[r] = 0;
#pragma unroll 1
    for (int j0 = 0; j0 < m.ends[1]; j0 += B::SIDE) {
        const bool whole = j0 + B::SIDE <= m.ends[0];
        T s[R][R];
        B::scores(s, m, queries, t0, keys, j0);
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
            B::accumulate(sum, m, values, j0, c0, whole, [&](int row, int column) { return j0 + column < m.limits[row]; });
        }
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

#define ATTENTION(name, T, R, S)                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                                                                           \
        attention_##name(const void* q, STRIDES(q), const void* k, STRIDES(k), const void* v, STRIDES(v), void* out, STRIDES(out), T* lse, const int outputs,   \
                         PROBLEM(T), const int stored) {                                                                                                        \
        attention<T, R, S>(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(T), batches);            \
    }
ATTENTION(f32, float, 4, 2)
ATTENTION(f64, double, 2, 1)
