// attention: out[b][h][i] = Σ_j w[j] v[b][h / group][j], w = softmax over the keys j that query i sees of scale q[b][h][i] . k[b][h / group][j]
// lse[b][h][i] = log Σ_j exp(scale q . k), -Inf where a query sees no key; there out is 0.
//
// A block computes 64 queries of a head. It goes through the keys 64 at a time, in float64 32, and keeps of each query the running maximum, the sum of exponentials and
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

#if __CUDA_ARCH__ < 800
// add_products is mma below without tensor cores.
__device__ __noinline__ double2 add_products(double2 c, double a, double b) {
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < 4; k++) {
        const double row = __shfl_sync(~0u, a, lane / 4 * 4 + k);
        c.x += row * __shfl_sync(~0u, b, lane % 4 * 8 + k), c.y += row * __shfl_sync(~0u, b, lane % 4 * 8 + 4 + k);
    }
    return c;
}
#endif
// mma adds an 8 x 4 tile times a 4 x 8 tile: a lane has a[lane / 4][lane % 4], b[lane % 4][lane / 4] and the sums [lane / 4][2 (lane % 4)] and the next.
__device__ __forceinline__ void mma(double (&c)[2], double a, double b) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
#else
    const double2 d = add_products(make_double2(c[0], c[1]), a, b);
    c[0] = d.x, c[1] = d.y;
#endif
}

// Double is a block for float64, on tensor cores from 8.0 on: a warp has 8 of ROWS queries, a step KEYS keys, and a block COLUMNS columns of results.
struct Double {
    static constexpr int ROWS = 64, KEYS = 32, COLUMNS = 128, SLICE = 32, PITCH = SLICE + 4, WIDE = 64, WIDE_PITCH = WIDE + 2; // pitches without bank conflicts
    static constexpr int WEIGHTS_PITCH = KEYS + 1;
    union Stage {
        struct { double queries[ROWS * PITCH], keys[KEYS * PITCH]; };
        struct { double values[KEYS * WIDE_PITCH], weights[ROWS * WEIGHTS_PITCH]; };
    };
    // stage copies columns c0 to c0 + W - 1 of R rows from t0 on, 0 outside.
    template <int R, int W> static __device__ __forceinline__ void stage(double* to, int pitch, const Head<double>& from, int t0, int c0) {
        const int column = threadIdx.x % W, first = threadIdx.x / W, rows = c0 + column < from.dim ? from.count - t0 - first : 0;
        const double* x = (const double*)from.x + (t0 + first) * from.stride + c0 + column;
        to += first * pitch + column;
#pragma unroll
        for (int i = 0; i < R; i += 256 / W, x += 256 / W * from.stride) {
            double value = 0;
            if (i < rows) value = *x;
            to[i * pitch] = value;
        }
    }
};

__device__ __forceinline__ void attention_double(const void* q, Strides qs, const void* k, Strides ks, const void* v, Strides vs, void* out, Strides os, double* lse, int outputs,
                                                 const Problem<double>& p, int batches, int parts, double* partial) {
    using D = Double;
    __shared__ D::Stage m;
    __shared__ int most_keys;
    follow();
    const int tiles = (p.queries + D::ROWS - 1) / D::ROWS, slices = (p.dim + D::COLUMNS - 1) / D::COLUMNS, heads = batches * p.heads;
    const int part = blockIdx.x % parts, id = blockIdx.x / parts, c0 = id % slices * D::COLUMNS, block = id / slices;
    const int number = block % heads, t0 = (tiles - 1 - block / heads) * D::ROWS, batch = number / p.heads, head = number % p.heads;
    const Head<double> queries(q, qs, batch, head, p.queries, p.dim, WHOLE), keys(k, ks, batch, head / p.group, p.keys, p.dim, WHOLE), values(v, vs, batch, head / p.group, p.keys, p.dim, WHOLE);
    const int lane = threadIdx.x % 32, x = lane % 4, row = threadIdx.x / 32 * 8 + lane / 4, query = t0 + row;
    const int limit = query < p.queries ? p.limit(batch, query) : 0;
    if (threadIdx.x == 0) most_keys = 0;
    __syncthreads();
    atomicMax(&most_keys, limit);
    __syncthreads();
    const int each = ((most_keys + D::KEYS - 1) / D::KEYS + parts - 1) / parts * D::KEYS, end = min((part + 1) * each, most_keys);
    double sum[D::COLUMNS / 8][2] = {}, most = -INFINITY, total = 0;
#pragma unroll 1
    for (int j0 = part * each; j0 < end; j0 += D::KEYS) {
        double s[D::KEYS / 8][2] = {};
#pragma unroll 1
        for (int k0 = 0; k0 < p.dim; k0 += D::SLICE) {
            __syncthreads();
            D::stage<D::ROWS, D::SLICE>(m.queries, D::PITCH, queries, t0, k0);
            D::stage<D::KEYS, D::SLICE>(m.keys, D::PITCH, keys, j0, k0);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < D::SLICE; i += 4) {
                if (k0 + i >= p.dim) break;
                const double a = m.queries[row * D::PITCH + i + x];
#pragma unroll
                for (int t = 0; t < D::KEYS / 8; t++) mma(s[t], a, m.keys[(8 * t + lane / 4) * D::PITCH + i + x]);
            }
        }
        double high = most, add = 0;
#pragma unroll
        for (int t = 0; t < D::KEYS / 8; t++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[t][e] *= p.scale;
                if (j0 + 8 * t + 2 * x + e < limit) high = max(high, s[t][e]);
            }
#pragma unroll
        for (int d = 1; d < 4; d *= 2) high = max(high, __shfl_xor_sync(~0u, high, d));
        const double from = high == -INFINITY ? 0.0 : high, factor = exp(most - from);
        most = high;
#pragma unroll
        for (int t = 0; t < D::KEYS / 8; t++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[t][e] = j0 + 8 * t + 2 * x + e < limit ? exp(s[t][e] - from) : 0.0;
                add += s[t][e];
            }
#pragma unroll
        for (int d = 1; d < 4; d *= 2) add += __shfl_xor_sync(~0u, add, d);
        total = total * factor + add;
#pragma unroll
        for (int c = 0; c < D::COLUMNS / 8; c++) sum[c][0] *= factor, sum[c][1] *= factor;
        if (!(outputs & 1)) continue;
        // All of a warp see the same of these keys; rows beyond the last key are 0. Otherwise a key that a query does not see is left out: 0 times an infinity would be NaN.
        const bool whole = __all_sync(~0u, query >= p.queries || limit >= min(j0 + D::KEYS, p.keys));
#pragma unroll
        for (int c1 = 0; c1 < D::COLUMNS; c1 += D::WIDE) {
            if (c0 + c1 >= p.dim) break;
            __syncthreads();
            if (!whole && c1 == 0)
#pragma unroll
                for (int t = 0; t < D::KEYS / 8; t++)
#pragma unroll
                    for (int e = 0; e < 2; e++) m.weights[row * D::WEIGHTS_PITCH + 8 * t + 2 * x + e] = s[t][e];
            D::stage<D::KEYS, D::WIDE>(m.values, D::WIDE_PITCH, values, j0, c0 + c1);
            __syncthreads();
            if (whole) {
#pragma unroll
                for (int c = 0; c < D::WIDE; c += 8) {
                    if (c0 + c1 + c >= p.dim) break;
#pragma unroll
                    for (int t = 0; t < D::KEYS / 8; t++) // lane % 4 = x has keys 2 x and 2 x + 1 of eight
#pragma unroll
                        for (int e = 0; e < 2; e++) mma(sum[(c1 + c) / 8], s[t][e], m.values[(8 * t + 2 * x + e) * D::WIDE_PITCH + c + lane / 4]);
                }
                continue;
            }
#pragma unroll 1
            for (int j = 0; j < min(D::KEYS, limit - j0); j++) {
                const double weight = m.weights[row * D::WEIGHTS_PITCH + j];
#pragma unroll
                for (int c = 0; c < D::WIDE; c += 8)
#pragma unroll
                    for (int e = 0; e < 2; e++) sum[(c1 + c) / 8][e] += weight * m.values[j * D::WIDE_PITCH + c + 2 * x + e];
            }
        }
    }
    if (query >= p.queries) return;
    const bool split = parts > 1, none = limit == 0;
    const i64 index = (i64)number * p.queries + query;
    double* const state = partial + (index * parts + part) * (p.dim + 2);
    double* const to = split ? state + 2 : (double*)out + batch * os.batch + head * os.head + query * os.row;
    const double factor = split ? 1 : none ? 0 : 1 / total;
    if (split || outputs & 1)
#pragma unroll
        for (int c = 0; c < D::COLUMNS; c += 8)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (c0 + c + 2 * x + e < p.dim) to[c0 + c + 2 * x + e] = sum[c / 8][e] * factor;
    if (x > 0 || c0 > 0) return;
    if (split) state[0] = most, state[1] = total;
    else if (outputs & 2) lse[index] = none ? double(-INFINITY) : most + log(total);
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
#define ATTENTION(name, T, BOUNDS, ...)                                                                                                                                \
    extern "C" __global__ void __launch_bounds__ BOUNDS attention_##name(PARAMETERS(T)) {                                                                        \
        __VA_ARGS__;                                                                                                                                           \
    }                                                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) attention_parts_##name(PARAMETERS(T)) {                                                                  \
        merge_parts<T>(partial, parts, out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(T), batches);                                                     \
    }
ATTENTION(f32, float, (256), attention<float, 4, 2>(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(float), batches, parts, partial))
ATTENTION(f64, double, (256, 2), attention_double(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(double), batches, parts, partial))
