// Parts that the kernels of window sums share: rows as flat positions, reading and writing
// them, and chunks of them in shared memory.
#pragma once
#include "async.cuh"
#include "vector.cuh"

typedef long long i64;

template <typename T> struct Row {
    const T* in;
    T* out;
    i64 n_in, n_out, w, off, rows;
};

// Span is count flat positions from start on: its first row, and the position
// in it.
struct Span {
    i64 row, at, length;
    unsigned inverse;  // ceil(2^32 / length) for length <= count, else 0

    __device__ Span(i64 start, int count, i64 n, i64 rows) : row(0), at(start), length(n), inverse(0) {
        if (rows > 1) {
            row = (i64)((unsigned long long)start / (unsigned long long)length);
            at = start - row * length;
            // at + j < 2 count < 2^15: the product's error stays below 1/length
            if (length <= count) inverse = 0xffffffffu / (unsigned)length + 1;
        }
    }
    // locate returns the row and place of position j of the span. A span no longer
    // than a row ends in the next one at the latest; past the last row any row
    // number >= rows is right.
    __device__ void locate(int j, i64& r, i64& p) const {
        p = at + j;
        r = row;
        if (p < length) return;
        const unsigned k = inverse ? __umulhi((unsigned)p, inverse) : 1u;
        r += k;
        p -= k * length;
    }
};

// add_if adds where on, in one instruction.
__device__ __forceinline__ void add_if(bool on, double& sum, double x) {
    asm("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p add.f64 %0, %0, %1; }" : "+d"(sum) : "d"(x), "r"((int)on));
}

constexpr int batch = 8;  // loads of a thread in flight

// read calls put(j, element) for the positions j = threadIdx.x, threadIdx.x +
// blockDim.x ... of count positions from start on.
template <typename T, typename Put>
__device__ __forceinline__ void read(const Row<T>& g, i64 start, int count, Put put) {
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    const int step = blockDim.x;
    const i64 first = s.at + g.off;
    if (s.row < g.rows && s.at + count <= s.length && first >= 0 && first + count <= g.n_in) {
        const T* __restrict__ src = g.in + s.row * g.n_in + first;
        for (int j = threadIdx.x; j < count; j += batch * step) {
            T x[batch];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (j + u * step < count) x[u] = src[j + u * step];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (j + u * step < count) put(j + u * step, x[u]);
        }
        return;
    }
    for (int j = threadIdx.x; j < count; j += batch * step) {
        T x[batch];
#pragma unroll
        for (int u = 0; u < batch; u++) {
            x[u] = 0;
            if (j + u * step >= count) continue;
            i64 r, p;
            s.locate(j + u * step, r, p);
            p += g.off;
            if (r < g.rows && p >= 0 && p < g.n_in) x[u] = g.in[r * g.n_in + p];
        }
#pragma unroll
        for (int u = 0; u < batch; u++)
            if (j + u * step < count) put(j + u * step, x[u]);
    }
}

// write stores get(j) at the count positions from start on that are outputs.
template <typename T, typename Get>
__device__ __forceinline__ void write(const Row<T>& g, i64 start, int count, Get get) {
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    if (s.row < g.rows && s.at + count <= g.n_out) {
        T* dst = g.out + s.row * g.n_out + s.at;
#pragma unroll 8
        for (int j = threadIdx.x; j < count; j += blockDim.x) dst[j] = get(j);
        return;
    }
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        i64 r, p;
        s.locate(j, r, p);
        if (r < g.rows && p < g.n_out) g.out[r * g.n_out + p] = get(j);
    }
}

// Chunks is shared memory for elements in chunks of K, each followed by 16
// unused bytes.
template <typename T, int K> struct Chunks {
    using Vector = typename Vec<T>::type;
    static constexpr int W = Vec<T>::width;
    static constexpr int size = K + W;  // elements that a chunk takes

    T* x;

    __device__ T& operator[](int j) const { return x[j + j / K * W]; }
    __device__ Vector& vector(int v) const { return reinterpret_cast<Vector*>(x)[v + v / (K / W)]; }

// fetch reads the count positions from start on and returns the place of the
    // first, 0 to W - 1.
    __device__ __forceinline__ int fetch(const Row<T>& g, i64 start, int count) const {
        const Span s(start, count, g.n_out + g.w - 1, g.rows);
        const i64 first = s.at + g.off;
        if (s.row >= g.rows || s.at + count > s.length || first < 0 || first + count > g.n_in) {
            read(g, start, count, [&](int j, T e) { (*this)[j] = e; });
            return 0;
        }
        const T* src = g.in + s.row * g.n_in + first;
        const int shift = (int)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
        src -= shift;  // operands start aligned, so this is inside in
        const int end = shift + count, vectors = end / W;
        for (int v = threadIdx.x; v < vectors; v += blockDim.x) async_copy(&vector(v), reinterpret_cast<const Vector*>(src) + v);
        const int tail = vectors * W + threadIdx.x;
        if (tail < end) (*this)[tail] = src[tail];
        return shift;
    }

    // move moves the registers down by n places if on.
    template <int n, int M> __device__ static __forceinline__ void move(bool on, T (&r)[M]) {
#pragma unroll
        for (int i = 0; i + n < M; i++) r[i] = on ? r[i + n] : r[i];
    }

    // take reads the N elements from place j on; j % W is the same in all threads.
    // It may touch W - 1 elements more on either side, all within two chunks.
    template <int N> __device__ __forceinline__ void take(int j, T (&e)[N]) const {
        constexpr int M = (N + 2 * W - 2) / W;
        T r[M * W];
#pragma unroll
        for (int m = 0; m < M; m++) {
            Pack<T> p;
            p.v = vector(j / W + m);
#pragma unroll
            for (int i = 0; i < W; i++) r[m * W + i] = p.s[i];
        }
// Shift by j % W, one bit of it at a time, since registers cannot be indexed.
        if constexpr (W == 4) move<2>(j & 2, r);
        move<1>(j & 1, r);
#pragma unroll
        for (int i = 0; i < N; i++) e[i] = r[i];
    }

    // put stores K elements as chunk c.
    __device__ __forceinline__ void put(int c, const double (&e)[K]) const {
#pragma unroll
        for (int m = 0; m < K / W; m++) {
            Pack<T> p;
#pragma unroll
            for (int i = 0; i < W; i++) p.s[i] = (T)e[m * W + i];
            vector(c * (K / W) + m) = p.v;
        }
    }

    // store writes the count elements from place 0 on to those of the positions
    // from start on that are outputs.
    __device__ __forceinline__ void store(const Row<T>& g, i64 start, int count) const {
        const Span s(start, count, g.n_out + g.w - 1, g.rows);
        T* dst = g.out + s.row * g.n_out + s.at;
        if (s.row < g.rows && s.at + count <= g.n_out && reinterpret_cast<unsigned long long>(dst) % 16 == 0) {
#pragma unroll 4
            for (int v = threadIdx.x; v < count / W; v += blockDim.x) reinterpret_cast<Vector*>(dst)[v] = vector(v);
            return;
        }
        write(g, start, count, [&](int j) { return (*this)[j]; });
    }
};

extern __shared__ double shared_memory[];
