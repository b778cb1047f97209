// attention for float64 on the tensor cores of 9.0, with the queries of a block in shared memory: see attention.cu for the formula and for parts.
//
// A block has four pairs of warps and a tile of 64 / shares queries of a head, 16 a pair: `shares` pairs have the same queries, and each of them 16 keys of a step. One of them merges their
// results at the end. The warps of a pair share products: of queries and keys each computes half the terms, of weights and values half the columns, every second eight. The next keys are copied
// while values are multiplied, and the next values while keys are.
#include "async.cuh"
#include "attention_limits.cuh"

extern __shared__ __align__(16) double dynamic[];

constexpr int THREADS = 256;

// mma is c += a b: with g = lane / 4 and q = lane % 4 a lane has a[r + 2 h] = a(g + 8 r, q + 4 h), b[h] = b(q + 4 h, g) and c[2 r + e] = c(g + 8 r, 2 q + e).
__device__ __forceinline__ void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ == 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#endif
}

// copy starts copies of n rows from t0 on, zeros outside, to rows `pitch` elements apart with 4 elements between them.
__device__ __forceinline__ void copy(double* to, int pitch, const Rows<const double>& from, int t0, int n) {
    const int lane = threadIdx.x % 32, rows = from.count - t0;
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < n; row += THREADS / 32) {
        const double* x = from.x + (t0 + row) * from.stride;
        double* line = to + row * pitch;
#pragma unroll 2
        for (int c = lane; c < pitch - 4; c += 32) async_copy(line + c, x + c, row < rows && c < from.dim);
    }
}

// State is what a lane has of two rows, of every second eight of D columns. Its first `tiles` tiles, maxima and totals are kept 32 elements from each other.
template <int D> struct State {
    double sum[D / 16][4] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    __device__ __forceinline__ void keep(double* memory, int tiles) const {
#pragma unroll
        for (int r = 0; r < 2; r++) memory[r * 32] = most[r], memory[(2 + r) * 32] = total[r];
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            if (i >= tiles) break;
#pragma unroll
            for (int e = 0; e < 4; e++) memory[(4 + 4 * i + e) * 32] = sum[i][e];
        }
    }
    __device__ __forceinline__ void merge(const double* memory, int tiles) {
        double own[2], other[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const double x = memory[r * 32], high = max(most[r], x), base = high == -INFINITY ? 0.0 : high;
            own[r] = exp(most[r] - base), other[r] = exp(x - base);
            most[r] = high, total[r] = total[r] * own[r] + memory[(2 + r) * 32] * other[r];
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            if (i >= tiles) break;
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][e] = sum[i][e] * own[e / 2] + memory[(4 + 4 * i + e) * 32] * other[e / 2];
        }
    }
};

template <int D>
__device__ __forceinline__ void attend_double(const double* q, Strides qs, const double* k, Strides ks, const double* v, Strides vs, double* out, Strides os, double* lse, int outputs, const Problem<double>& p, int batches,
                                              int parts, double* partial, int shares) {
    constexpr int KEYS = 16, WEIGHTS = KEYS + 4; // elements from one row of weights to the next; as for other rows, 4 or 12 more than a multiple of 16 meet no bank twice
    follow();
    const int width = (p.dim + 7) / 8 * 8, pitch = width + 4, tile = 64 / shares, step = KEYS * shares, tiles = (p.queries + tile - 1) / tile, heads = batches * p.heads;
    const int part = blockIdx.x % parts, id = blockIdx.x / parts, number = p.causal ? id % heads : id / tiles, t0 = (tiles - 1 - (p.causal ? id / heads : id % tiles)) * tile;
    const int batch = number / p.heads, head = number % p.heads;
    const int lane = threadIdx.x % 32, x = lane % 4, y = lane / 4, half = threadIdx.x / 32 % 2, pair = threadIdx.x / 64, share = pair % shares, group = pair / shares, first = t0 + group * 16, row = first + y;
    double *const memQ = dynamic, *const memK = memQ + tile * pitch, *const memV = memK + step * pitch, *const weights = memV + step * pitch + pair * (16 * WEIGHTS + 32), *const maxima = weights + 16 * WEIGHTS;
    const Limits limits(p, batch, t0, tile, first);
    // Keys that no query of the tile sees are 0, whatever memory holds.
    const Rows<const double> queries(q, qs, batch, head, p.queries, p.dim), keys(k, ks, batch, head / p.group, limits.high, p.dim), values(v, vs, batch, head / p.group, limits.high, p.dim);
    const int (&limit)[2] = limits.own;
    const int each = ((limits.high + step - 1) / step + parts - 1) / parts * step, begin = part * each, end = min(begin + each, limits.high);
    const auto rows = [&](int j0) { return min(step, (end - j0 + KEYS - 1) / KEYS * KEYS); };
    State<D> state;
    copy(memQ, pitch, queries, t0, tile);
    if (begin < end) copy(memK, pitch, keys, begin, rows(begin));
    commit();
    const double *const a = memQ + (group * 16 + y) * pitch + x, *const b = memK + (share * KEYS + y) * pitch + x, *const c = memV + share * KEYS * pitch;
#pragma unroll 1
    for (int j0 = begin; j0 < end; j0 += step) {
        const int next = j0 + step, j = j0 + share * KEYS;
        const bool works = first < p.queries && j < end;
        double s[4] = {}, t[4] = {};
        copy(memV, pitch, values, j0, rows(j0));
        commit();
        arrived<1>();
        __syncthreads();
        if (works) {
#pragma unroll(D / 128)
            for (int l = 8 * half; l < width; l += 16) {
                double u[4], w[2];
#pragma unroll
                for (int i = 0; i < 4; i++) u[i] = a[i % 2 * 8 * pitch + l + i / 2 * 4];
#pragma unroll
                for (int i = 0; i < 2; i++) w[i] = b[l + i * 4];
                mma(s, u, w);
#pragma unroll
                for (int i = 0; i < 2; i++) w[i] = b[8 * pitch + l + i * 4];
                mma(t, u, w);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const double own = half ? t[i] : s[i];
                weights[(half * 4 + i) * 32 + lane] = half ? s[i] : t[i];
                s[i] = own;
            }
        }
        __syncthreads();
        if (next < end) copy(memK, pitch, keys, next, rows(next));
        commit();
        double high[2] = {state.most[0], state.most[1]};
        const int j1 = j + 8 * half + 2 * x;
        bool whole = true;
        if (works) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[i] = (s[i] + weights[((1 - half) * 4 + i) * 32 + lane]) * p.scale;
                if (j1 + i % 2 < limit[i / 2]) high[i / 2] = max(high[i / 2], s[i]);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
#pragma unroll
                for (int d = 1; d < 4; d *= 2) high[r] = max(high[r], __shfl_xor_sync(~0u, high[r], d));
                if (x == 0) maxima[half * 16 + 8 * r + y] = high[r];
                whole &= limit[r] >= min(j + KEYS, limits.high);
            }
        }
        __syncthreads();
        if (works) {
            double factor[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                high[r] = max(high[r], maxima[(1 - half) * 16 + 8 * r + y]);
                const double base = high[r] == -INFINITY ? 0.0 : high[r];
                factor[r] = exp(state.most[r] - base), state.most[r] = high[r], state.total[r] *= factor[r];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const double weight = j1 + e < limit[r] ? exp(s[2 * r + e] - base) : 0.0;
                    state.total[r] += weight, weights[(8 * r + y) * WEIGHTS + 8 * half + 2 * x + e] = weight;
                }
            }
            whole = __all_sync(~0u, whole);
            if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1))
#pragma unroll
                for (int i = 0; i < D / 16; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) state.sum[i][e] *= factor[e / 2];
        }
        arrived<1>();
        __syncthreads();
        if (works && outputs & 1 && whole) {
            double u[2][4];
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int i = 0; i < 4; i++) u[l][i] = weights[(i % 2 * 8 + y) * WEIGHTS + 8 * l + i / 2 * 4 + x];
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                const int column = 16 * i + 8 * half;
                if (column >= p.dim) break;
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    double w[2];
#pragma unroll
                    for (int h = 0; h < 2; h++) w[h] = c[(8 * l + 4 * h + x) * pitch + column + y];
                    mma(state.sum[i], u[l], w);
                }
            }
        } else if (works && outputs & 1) { // a key that a query does not see is left out: 0 times an infinity would be NaN
#pragma unroll 1
            for (int l = 0; l < KEYS; l++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    if (j + l >= limit[r]) continue;
                    const double weight = weights[(8 * r + y) * WEIGHTS + l];
#pragma unroll
                    for (int i = 0; i < D / 16; i++) {
                        const int column = 16 * i + 8 * half;
                        if (column >= p.dim) break;
#pragma unroll
                        for (int e = 0; e < 2; e++) state.sum[i][2 * r + e] += weight * c[l * pitch + column + 2 * x + e];
                    }
                }
        }
        __syncthreads();
    }
    arrived<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int d = 1; d < 4; d *= 2) state.total[r] += __shfl_xor_sync(~0u, state.total[r], d);
        if (x == 0) maxima[half * 16 + 8 * r + y] = state.total[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) state.total[r] += maxima[(1 - half) * 16 + 8 * r + y];
    if (shares > 1) {
        const int own = (p.dim + 15) / 16, slot = (4 + 4 * own) * 32, others = shares - 1;
        double* const memory = dynamic + half * slot + lane;
        if (share > 0) state.keep(memory + (group * others + share - 1) * 2 * slot, own);
        __syncthreads();
        if (share > 0) return;
#pragma unroll 1
        for (int i = 0; i < others; i++) state.merge(memory + (group * others + i) * 2 * slot, own);
    }
    if (first >= p.queries) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + 8 * r >= p.queries) break;
        const bool none = limit[r] == 0, leads = x == 0 && half == 0;
        const i64 index = (i64)number * p.queries + row + 8 * r;
        double factor = none ? 0.0 : 1 / state.total[r], *to = out + batch * os.batch + head * os.head + (row + 8 * r) * os.row;
        if (parts > 1) {
            to = partial + (index * parts + part) * (p.dim + 2) + 2, factor = 1;
            if (leads) to[-2] = state.most[r], to[-1] = state.total[r];
        } else if (outputs & 2 && leads) lse[index] = none ? double(-INFINITY) : state.most[r] + log(state.total[r]);
        if (parts > 1 || outputs & 1)
#pragma unroll
            for (int i = 0; i < D / 16; i++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int column = 16 * i + 8 * half + 2 * x + e;
                    if (column < p.dim) to[column] = state.sum[i][2 * r + e] * factor;
                }
    }
}

// Other devices have other instructions: the entry points are empty there.
#if __CUDA_ARCH__ == 900
#define BODY(...) __VA_ARGS__
#else
#define BODY(...)
#endif
#define DOUBLE(D, BLOCKS)                                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_double_##D##_f64(const double* q, STRIDES(q), const double* k, STRIDES(k), const double* v, STRIDES(v), \
                                                                                             double* out, STRIDES(out), double* lse, const int outputs, PROBLEM(double),            \
                                                                                             const int parts, double* partial, const int shares) {                                  \
        BODY(attend_double<D>(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(double), batches, parts, partial, shares);)       \
    }
DOUBLE(128, 2)
DOUBLE(256, 1)
