// attention of queries to few keys: see attention.cu for the formula.
//
// A block computes a tile of queries of a head, a thread one query, whose scores of all KEYS keys are in registers. Columns go through shared memory WIDE at a time: those of q and k for
// the scores, then those of v and out. All threads read the same elements of k and v, and the rows of q and out are loaded and stored side by side. Bound by memory.
#include "attention.cuh"

constexpr int KEYS = 32, THREADS = 128, WIDE = 32, PITCH = WIDE + 1; // at most KEYS keys

// copy stores what `load` returns of the row and the column of each element of n rows of `width` columns, of neighbouring threads side by side, COUNT elements of a thread at a time.
template <int COUNT, typename Load, typename Store> __device__ __forceinline__ void copy(int n, int width, Load load, Store store) {
    const int rows = THREADS / width, columns = THREADS % width;
    int row = threadIdx.x / width, column = threadIdx.x % width;
#pragma unroll 1
    while (row < n) {
        decltype(load(0, 0)) x[COUNT];
        int r[COUNT], c[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            r[i] = row, c[i] = column;
            if (row < n) x[i] = load(row, column);
            row += rows, column += columns;
            if (column >= width) column -= width, row++;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (r[i] < n) store(r[i], c[i], x[i]);
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
        copy<2>(p.keys, WIDE, [&](int j, int c) { return c0 + c < p.dim ? from.read(j * from.stride + c0 + c) : T(0); }, [&](int j, int c, T x) { shared[j][c / 4].v[c % 4] = x; });
    };
#pragma unroll 1
    for (int c0 = 0; c0 < p.dim; c0 += WIDE) {
        const int width = min(WIDE, p.dim - c0);
        __syncthreads();
        const auto put = [&](int row, int c, T x) { tile[row * PITCH + c] = x; };
        const i64 first = t0 * queries.stride + c0;
        if (sizeof(T) == 8 || stored == WHOLE) copy<8>(rows, width, [&](int row, int c) { return ((const T*)queries.x)[first + row * queries.stride + c]; }, put);
        else copy<1>(rows, width, [&](int row, int c) { return queries.half(first + row * queries.stride + c); }, put);
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
        s[j] *= p.scale, mine[j] = s[j]; // before the next barrier only this thread reads its row
        if (j < limit) most = max(most, s[j]);
    }
    const T from = most == -INFINITY ? T(0) : most;
#pragma unroll 1
    for (int j = 0; j < limit; j++) total += mine[j] = exp(mine[j] - from); // a loop keeps the kernel small
#pragma unroll
    for (int j = 0; j < KEYS; j++) s[j] = j < limit ? mine[j] : T(0);
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
        copy<2>(rows, width, [&](int row, int c) { return tile[row * PITCH + c]; }, [&](int row, int c, T x) { results.write((t0 + row) * results.stride + c0 + c, x); });
    }
}

#define BODY(...) __VA_ARGS__
#define ATTENTION(name, T)                                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) attention_few_##name(const void* q, STRIDES(q), const void* k, STRIDES(k), const void* v, STRIDES(v), void* out, STRIDES(out), \
                                                                               T* lse, const int outputs, PROBLEM(T), const int stored) {                     \
        BODY(attention<T>(q, STRIDES_OF(q), k, STRIDES_OF(k), v, STRIDES_OF(v), out, STRIDES_OF(out), lse, outputs, stored, PROBLEM_OF(T), batches);)         \
    }
ATTENTION(f32, float)
#if __CUDA_ARCH__ != 900 // where it was measured
#undef BODY
#define BODY(...)
#endif
ATTENTION(f64, double)

// attention_zeros stores zeros in runs of `bytes` bytes, `stride` bytes apart, `blocks` blocks a run: the rows of queries that see no key, of elements of at least 2 bytes. A thread stores ZEROS
// pieces of 16 bytes, those at the ends of a run element by element. Bound by memory.
constexpr int ZEROS = 4;

extern "C" __global__ void __launch_bounds__(256) attention_zeros(unsigned char* to, const i64 bytes, const i64 stride, const int blocks) {
    follow();
    unsigned char *at = to + blockIdx.x / blocks * stride, *const begin = at, *const end = at + bytes;
    at += ((i64)(blockIdx.x % blocks) * ZEROS * 256 + threadIdx.x) * 16 - ((i64)at & 15);
#pragma unroll 1
    for (int i = 0; i < ZEROS; i++, at += 256 * 16) {
        if (at >= begin && at + 16 <= end) *reinterpret_cast<uint4*>(at) = uint4{};
        else
#pragma unroll 1
            for (int k = 0; k < 16; k += 2)
                if (at + k >= begin && at + k < end) *reinterpret_cast<unsigned short*>(at + k) = 0;
    }
}
