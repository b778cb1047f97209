// The gradients of attention. With p = exp(scale q . k - lse), g the gradient w.r.t. out and delta = Σ_c g[c] out[c] of each query:
//
//	ds = p (g . v - delta) scale, dq = Σ_j ds k[j], dk = Σ_i ds q[i], dv = Σ_i p g[i]
//
// attention_delta: a warp for each query. attention_dq: a block for SIDE queries of a head, through the keys. attention_dkv: a block for SIDE keys of a key head, through the
// queries of all heads that read it, in order. Pairs of a query and a key that it does not see have numbers, which are added to nothing. Nothing is added up by atomics. Bound by the FMA units.
#include "attention.cuh"

// weight is exp(x), at most 1: of huge scores the rounding error of x alone would overflow.
template <typename T> __device__ __forceinline__ T weight(T x) { return exp(x > 0 ? T(0) : x); }

template <typename T> __device__ __forceinline__ void delta(const void* g, const void* out, Strides s, T* to, int heads, int queries, int dim, int rows, int stored) {
    follow();
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const int number = row / queries, batch = number / heads, head = number % heads;
    const i64 at = row % queries * s.row;
    const Head<T> a(g, s, batch, head, queries, dim, stored), b(out, s, batch, head, queries, dim, stored);
    T sum = 0;
#pragma unroll 2
    for (int c = lane; c < dim; c += 32) sum += a.read(at + c) * b.read(at + c);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) to[row] = sum;
}

template <typename T, int R, int S>
__device__ __forceinline__ void gradient_queries(const void* q, Strides qs, const void* k, Strides ks, const void* v, Strides vs, const void* g, Strides gs, const T* lse,
                                                 const T* delta, void* dq, int stored, const Problem<T>& p, int batches) {
    using B = Block<T, R>;
    __shared__ typename B::Memory m;
    follow();
    const int tiles = (p.queries + B::SIDE - 1) / B::SIDE, heads = batches * p.heads, c0 = blockIdx.x % SLICES(S) * S * B::WIDE, block = blockIdx.x / SLICES(S);
    const int number = block % heads, t0 = (tiles - 1 - block / heads) * B::SIDE, batch = number / p.heads, head = number % p.heads;
    const Head<T> queries(q, qs, batch, head, p.queries, p.dim, stored), keys(k, ks, batch, head / p.group, p.keys, p.dim, stored),
        values(v, vs, batch, head / p.group, p.keys, p.dim, stored), gradients(g, gs, batch, head, p.queries, p.dim, stored);
    B::limits(m, p, batch, t0);
    T sum[R][S][4] = {}, from[R], less[R], one[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const i64 at = (i64)number * p.queries + min(t0 + B::y() * R + r, p.queries - 1);
        from[r] = lse[at], less[r] = delta[at], one[r] = 1;
    }
#pragma unroll 1
    for (int j0 = 0; j0 < m.ends[1]; j0 += B::SIDE) {
        T s[R][R], w[R][R];
        B::scores(s, m, queries, t0, keys, j0);
        B::scores(w, m, gradients, t0, values, j0);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < R; c++)
                s[r][c] = weight(s[r][c] * p.scale - from[r]) * (w[r][c] - less[r]) * p.scale;
        B::keep(m, s);
        B::accumulate(sum, m, keys, j0, c0, j0 + B::SIDE <= m.ends[0], [&](int row, int column) { return j0 + column < m.limits[row]; });
    }
    B::store(Head<T>(dq, gs, batch, head, p.queries, p.dim, stored), m, t0, c0, sum, one);
}

template <typename T, int R, int S>
__device__ __forceinline__ void gradient_keys(const void* q, Strides qs, const void* k, Strides ks, const void* v, Strides vs, const void* g, Strides gs, const T* lse, const T* delta,
                                              void* dk, void* dv, Strides ds, int outputs, int stored, const Problem<T>& p, int batches) {
    using B = Block<T, R>;
    __shared__ typename B::Memory m;
    follow();
    const int keyHeads = p.heads / p.group, heads = batches * keyHeads, c0 = blockIdx.x % SLICES(S) * S * B::WIDE, block = blockIdx.x / SLICES(S);
    const int number = block % heads, j0 = block / heads * B::SIDE, batch = number / keyHeads, keyHead = number % keyHeads;
    const Head<T> keys(k, ks, batch, keyHead, p.keys, p.dim, stored), values(v, vs, batch, keyHead, p.keys, p.dim, stored);
    T sumK[R][S][4] = {}, sumV[R][S][4] = {}, one[R];
#pragma unroll
    for (int r = 0; r < R; r++) one[r] = 1;
#pragma unroll 1
    for (int h = keyHead * p.group; h < (keyHead + 1) * p.group; h++) {
        const Head<T> queries(q, qs, batch, h, p.queries, p.dim, stored), gradients(g, gs, batch, h, p.queries, p.dim, stored);
#pragma unroll 1
        for (int t0 = 0; t0 < p.queries; t0 += B::SIDE) {
            B::limits(m, p, batch, t0);
            if (m.ends[1] <= j0) continue;
            const bool whole = j0 + B::SIDE <= m.ends[0];
            auto seen = [&](int row, int column) { return j0 + row < m.limits[column]; };
            T s[R][R], w[R][R];
            B::scores(s, m, keys, j0, queries, t0);
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int c = 0; c < R; c++) {
                    const i64 at = ((i64)batch * p.heads + h) * p.queries + min(t0 + B::x() + 16 * c, p.queries - 1);
                    s[r][c] = weight(s[r][c] * p.scale - lse[at]);
                }
            if (outputs & 2) {
                B::keep(m, s);
                B::accumulate(sumV, m, gradients, t0, c0, whole, seen);
            }
            if (outputs & 1) {
                B::scores(w, m, values, j0, gradients, t0);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int c = 0; c < R; c++) {
                        const i64 at = ((i64)batch * p.heads + h) * p.queries + min(t0 + B::x() + 16 * c, p.queries - 1);
                        s[r][c] = s[r][c] * (w[r][c] - delta[at]) * p.scale;
                    }
                B::keep(m, s);
                B::accumulate(sumK, m, queries, t0, c0, whole, seen);
            }
        }
    }
    if (outputs & 1) B::store(Head<T>(dk, ds, batch, keyHead, p.keys, p.dim, stored), m, j0, c0, sumK, one);
    if (outputs & 2) B::store(Head<T>(dv, ds, batch, keyHead, p.keys, p.dim, stored), m, j0, c0, sumV, one);
}

#define INPUTS(T) const void *q, STRIDES(q), const void *k, STRIDES(k), const void *v, STRIDES(v), const void *g, STRIDES(g), const T *lse, const T *delta
#define INPUTS_OF q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), g, STRIDES_OF(g), lse, delta
#define GRADIENTS(name, T, R, S)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) attention_dq_##name(INPUTS(T), void* dq, PROBLEM(T), const int stored) {                              \
        gradient_queries<T, R, S>(INPUTS_OF, dq, stored, PROBLEM_OF(T), batches);                                                                           \
    }                                                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                                                       \
        attention_dkv_##name(INPUTS(T), void* dk, void* dv, STRIDES(d), const int outputs, PROBLEM(T), const int stored) {                                  \
        gradient_keys<T, R, S>(INPUTS_OF, dk, dv, STRIDES_OF(d), outputs, stored, PROBLEM_OF(T), batches);                                                  \
    }
#define DELTA(name, T)                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) attention_delta_##name(const void* g, const void* out, STRIDES(out), T* to, const int heads,          \
                                                                             const int queries, const int dim, const int rows, const int stored) {          \
        delta<T>(g, out, STRIDES_OF(out), to, heads, queries, dim, rows, stored);                                                                           \
    }
DELTA(f32, float)
DELTA(f64, double)
GRADIENTS(f32, float, 4, 2)
GRADIENTS(f64, double, 2, 1)
