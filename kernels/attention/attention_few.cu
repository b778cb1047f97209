// attention of queries to few keys: see attention.cu for the formula.
//
// A block computes a tile of queries of a head, a thread one query, whose scores of all KEYS keys are in registers. Columns go through shared memory WIDE at a time: those of q and k for
// the scores, then those of v and out. All threads read the same elements of k and v, and the rows of q and out are loaded and stored side by side. Bound by memory.
#include "attention.cuh"

constexpr int KEYS = 32, THREADS = 128, WIDE = 32, PITCH = WIDE + 1; // at most KEYS keys

// each_element calls f with the row and the column of each element of n rows of `width` columns, for neighbouring threads side by side.
template <typename F> __device__ __forceinline__ void each_element(int n, int width, F f) {
    const int rows = THREADS / width, columns = THREADS % width;
    int row = threadIdx.x / width, column = threadIdx.x % width;
#pragma unroll 4
    for (int i = threadIdx.x; i < n * width; i += THREADS) {
        f(row, column);
        row += rows, column += columns;
        if (column >= width) column -= width, row++;
    }
}

template <typename T>
__device__ __forceinline__ void attention(const void* q, Strides qs, const void* k, Strides ks, const void* v, Strides vs, void* out, Strides os, T* lse, int outputs, int stored,
                                          const Problem<T>& p, int batches) {
    __shared__ T tile[THREADS * PITCH];
    __shared__ Four<T> shared[KEYS][WIDE / 4];
    follow();
    const int heads = batches * p.heads, number = blockIdx.x % heads, t0 = blockIdx.x / heads * THREADS, batch = number / p.heads, head = number % p.heads;
    const int query = t0 + threadIdx.x, rows = min(THREADS, p.queries - t0), limit = query < p.queries ? p.limit(batch, query) : 0;
    const bool whole = !__syncthreads_or(limit < p.keys && query < p.queries);
    const Head<T> queries(q, qs, batch, head, p.queries, p.dim, stored), keys(k, ks, batch, head / p.group, p.keys, p.dim, stored),
        values(v, vs, batch, head / p.group, p.keys, p.dim, stored), results(out, os, batch, head, p.queries, p.dim, stored);
    T s[KEYS] = {}, *const mine = tile + threadIdx.x * PITCH;
    // stage loads columns c0 on of the keys or values, zeros beyond the last.
    const auto stage = [&](const Head<T>& from, int c0) {
        each_element(p.keys, WIDE, [&](int j, int c) { shared[j][c / 4].v[c % 4] = c0 + c < p.dim ? from.read(j * from.stride + c0 + c) : T(0); });
    };
#pragma unroll 1
    for (int c0 = 0; c0 < p.dim; c0 += WIDE) {
        const int width = min(WIDE, p.dim - c0);
        __syncthreads();
        each_element(rows, width, [&](int row, int c) { tile[row * PITCH + c] = queries.read((t0 + row) * queries.stride + c0 + c); });
        stage(keys, c0);
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < width; c += 4) {
            T x[4];
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = c + e < width ? mine[c + e] : T(0);
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                if (j >= p.keys) break;
                const Four<T> y = shared[j][c / 4];
#pragma unroll
                for (int e = 0; e < 4; e++) s[j] += x[e] * y.v[e];
            }
        }
    }
    T most = -INFINITY, total = 0;
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] *= p.scale;
        if (j < limit) most = max(most, s[j]);
    }
    const T from = most == -INFINITY ? T(0) : most;
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        if (j >= p.keys) break;
        s[j] = j < limit ? exp(s[j] - from) : T(0);
        total += s[j];
    }
    if (outputs & 2 && query < p.queries) lse[(i64)number * p.queries + query] = limit == 0 ? T(-INFINITY) : most + log(total);
    if (!(outputs & 1)) return;
    const T factor = limit == 0 ? T(0) : 1 / total;
#pragma unroll 1
    for (int c0 = 0; c0 < p.dim; c0 += WIDE) {
        const int width = min(WIDE, p.dim - c0);
        __syncthreads();
        stage(values, c0);
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < width; c += 4) {
            T sum[4] = {};
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                if (j >= p.keys) break;
                const Four<T> y = shared[j][c / 4];
                if (whole || j < limit) { // 0 times an infinity would be NaN
#pragma unroll
                    for (int e = 0; e < 4; e++) sum[e] += s[j] * y.v[e];
                }
            }
#pragma unroll
            for (int e = 0; e < 4; e++) mine[c + e] = sum[e] * factor;
        }
        __syncthreads();
        each_element(rows, width, [&](int row, int c) { results.write((t0 + row) * results.stride + c0 + c, tile[row * PITCH + c]); });
    }
}

#define ATTENTION(name, T)                                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) attention_few_##name(const void* q, STRIDES(q), const void* k, STRIDES(k), const void* v, STRIDES(v), void* out, STRIDES(out), \
                                                                               T* lse, const int outputs, PROBLEM(T), const int stored) {                     \
        attention<T>(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(T), batches);               \
    }
ATTENTION(f32, float)
ATTENTION(f64, double)
