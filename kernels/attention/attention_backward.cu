// The gradients of attention. With p = exp(scale q . k - lse), g the gradient w.r.t. out and delta = Σ_c g[c] out[c] of each query:
//
//	ds = p (g . v - delta) scale, dq = Σ_j ds k[j], dk = Σ_i ds q[i], dv = Σ_i p g[i]
//
// attention_delta: a warp for each query. attention_dq: a block for SIDE queries of a head, through the keys. attention_dkv: a block for SIDE keys of a key head, through the
// queries of all heads that read it, in order. Nothing is added up by atomics. Bound by the FMA units.
#include "attention.cuh"

template <typename E, typename T>
__device__ __forceinline__ void delta(const E* g, const E* out, Strides s, T* to, int heads, int queries, int dim, int rows) {
    follow();
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const int number = row / queries;
    const i64 at = number / heads * s.batch + number % heads * s.head + row % queries * s.row;
    T sum = 0;
    for (int c = lane; c < dim; c += 32) {
        T a, b;
        load_as(a, g[at + c]), load_as(b, out[at + c]);
        sum += a * b;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) to[row] = sum;
}

template <typename E, typename T, int R, int S>
__device__ __forceinline__ void gradient_queries(const E* q, Strides qs, const E* k, Strides ks, const E* v, Strides vs, const E* g, Strides gs, const T* lse, const T* delta, E* dq,
                                                 const Problem<T>& p, int batches) {
    using B = Block<T, R>;
    __shared__ typename B::Memory m;
    follow();
    const int tiles = (p.queries + B::SIDE - 1) / B::SIDE, heads = batches * p.heads, number = blockIdx.x % heads, t0 = (tiles - 1 - blockIdx.x / heads) * B::SIDE;
    const int batch = number / p.heads, head = number % p.heads;
    const Rows<const E> queries(q, qs, batch, head, p.queries, p.dim), keys(k, ks, batch, head / p.group, p.keys, p.dim), values(v, vs, batch, head / p.group, p.keys, p.dim),
        gradients(g, gs, batch, head, p.queries, p.dim);
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
                s[r][c] = j0 + B::x() + 16 * c < m.limits[B::y() * R + r] ? exp(s[r][c] * p.scale - from[r]) * (w[r][c] - less[r]) * p.scale : T(0);
        B::keep(m, s);
        B::accumulate(sum, m, keys, j0, j0 + B::SIDE <= m.ends[0], [&](int row, int column) { return j0 + column < m.limits[row]; });
    }
    B::store(Rows<E>(dq, gs, batch, head, p.queries, p.dim), t0, sum, one);
}

template <typename E, typename T, int R, int S>
__device__ __forceinline__ void gradient_keys(const E* q, Strides qs, const E* k, Strides ks, const E* v, Strides vs, const E* g, Strides gs, const T* lse, const T* delta, E* dk, E* dv,
                                              Strides ds, int outputs, const Problem<T>& p, int batches) {
    using B = Block<T, R>;
    __shared__ typename B::Memory m;
    follow();
    const int keyHeads = p.heads / p.group, heads = batches * keyHeads, number = blockIdx.x % heads, j0 = blockIdx.x / heads * B::SIDE;
    const int batch = number / keyHeads, keyHead = number % keyHeads;
    const Rows<const E> keys(k, ks, batch, keyHead, p.keys, p.dim), values(v, vs, batch, keyHead, p.keys, p.dim);
    T sumK[R][S][4] = {}, sumV[R][S][4] = {}, one[R];
#pragma unroll
    for (int r = 0; r < R; r++) one[r] = 1;
#pragma unroll 1
    for (int h = keyHead * p.group; h < (keyHead + 1) * p.group; h++) {
        const Rows<const E> queries(q, qs, batch, h, p.queries, p.dim), gradients(g, gs, batch, h, p.queries, p.dim);
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
                    s[r][c] = seen(B::y() * R + r, B::x() + 16 * c) ? exp(s[r][c] * p.scale - lse[at]) : T(0);
                }
            if (outputs & 2) {
                B::keep(m, s);
                B::accumulate(sumV, m, gradients, t0, whole, seen);
            }
            if (outputs & 1) {
                B::scores(w, m, values, j0, gradients, t0);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int c = 0; c < R; c++) {
                        const i64 at = ((i64)batch * p.heads + h) * p.queries + min(t0 + B::x() + 16 * c, p.queries - 1);
                        s[r][c] = seen(B::y() * R + r, B::x() + 16 * c) ? s[r][c] * (w[r][c] - delta[at]) * p.scale : T(0);
                    }
                B::keep(m, s);
                B::accumulate(sumK, m, queries, t0, whole, seen);
            }
        }
    }
    if (outputs & 1) B::store(Rows<E>(dk, ds, batch, keyHead, p.keys, p.dim), j0, sumK, one);
    if (outputs & 2) B::store(Rows<E>(dv, ds, batch, keyHead, p.keys, p.dim), j0, sumV, one);
}

#define INPUTS(E, T) const E *q, STRIDES(q), const E *k, STRIDES(k), const E *v, STRIDES(v), const E *g, STRIDES(g), const T *lse, const T *delta
#define INPUTS_OF q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), g, STRIDES_OF(g), lse, delta
#define GRADIENTS(name, E, T, R, S)                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) attention_dq_##name(INPUTS(E, T), E* dq, PROBLEM(T)) {                                                \
        gradient_queries<E, T, R, S>(INPUTS_OF, dq, PROBLEM_OF(T), batches);                                                                                \
    }                                                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256) attention_dkv_##name(INPUTS(E, T), E* dk, E* dv, STRIDES(d), const int outputs, PROBLEM(T)) {         \
        gradient_keys<E, T, R, S>(INPUTS_OF, dk, dv, STRIDES_OF(d), outputs, PROBLEM_OF(T), batches);                                                       \
    }
#define DIMENSIONS(name, E, T, R)                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) attention_delta_##name(const E* g, const E* out, STRIDES(out), T* to, const int heads,                \
                                                                             const int queries, const int dim, const int rows) {                            \
        delta<E, T>(g, out, STRIDES_OF(out), to, heads, queries, dim, rows);                                                                                \
    }                                                                                                                                                       \
    GRADIENTS(64_##name, E, T, R, 1)                                                                                                                        \
    GRADIENTS(128_##name, E, T, R, 2)                                                                                                                       \
    GRADIENTS(256_##name, E, T, R, 4)
DIMENSIONS(f32, float, float, 4)
DIMENSIONS(f64, double, double, 2)
DIMENSIONS(bf16, BF16, float, 4)
DIMENSIONS(f16, F16, float, 4)
