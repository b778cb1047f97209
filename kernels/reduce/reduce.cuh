// Block and row reductions in a fixed order: the same input gives the same bits.
//
// Every sum accumulates in double, so that a float32 result is the double sum
// rounded once. Threads combine by lane number, then warps by warp number.
#pragma once
#include "follow.cuh"
#include "grid_ticket.cuh"
#include "vector.cuh"

// warp_sum adds v over groups of `lanes` (a power of two, at most 32)
// neighbouring lanes; the first lane of each group holds the result.
__device__ inline double warp_sum(double v, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step, lanes);
    return v;
}

// block_sum adds v over a block of up to 1024 threads (whole warps); thread 0
// holds the result.
__device__ inline double block_sum(double v) {
    __shared__ double warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v, 32);
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    if (warp == 0) v = warp_sum(lane < blockDim.x / 32 ? warps[lane] : 0.0, 32);
    return v;
}

// Term is the term of a row reduction at index i of its row: x[i], or
// x[i] * y[i]. `load` loads the W terms of one 16-byte vector, `one` one term, the first of a Load.
template <typename T> struct Value {
    const T* x;
    __device__ Value at(long long offset) const { return {x + offset}; }
    __device__ int head() const { return misaligned(x); }
    __device__ bool aligned() const { return true; }
    struct Load { Pack<T> a; };
    __device__ Load one(long long i) const {
        Load l;
        l.a.s[0] = x[i];
        return l;
    }
    __device__ Load load(long long v) const {
        Load l;
        l.a.v = reinterpret_cast<const typename Vec<T>::type*>(x)[v];
        return l;
    }
    __device__ static double term(const Load& l, int k) { return (double)l.a.s[k]; }
    // misaligned is the number of elements before the next 16-byte boundary.
    __device__ static int misaligned(const T* p) {
        return (int)((16 - (reinterpret_cast<unsigned long long>(p) & 15)) & 15) / (int)sizeof(T);
    }
};

template <typename T> struct Product {
    const T *x, *y;
    __device__ Product at(long long offset) const { return {x + offset, y + offset}; }
    __device__ int head() const { return Value<T>::misaligned(x); }
    __device__ bool aligned() const { return Value<T>::misaligned(x) == Value<T>::misaligned(y); }
    struct Load { Pack<T> a, b; };
    __device__ Load one(long long i) const {
        Load l;
        l.a.s[0] = x[i], l.b.s[0] = y[i];
        return l;
    }
    __device__ Load load(long long v) const {
        Load l;
        l.a.v = reinterpret_cast<const typename Vec<T>::type*>(x)[v];
        l.b.v = reinterpret_cast<const typename Vec<T>::type*>(y)[v];
        return l;
    }
    __device__ static double term(const Load& l, int k) { return (double)l.a.s[k] * (double)l.b.s[k]; }
};

// reduce_chunk adds up chunk b % splits of row b / splits for block b, each row of n
// terms, each chunk of `chunk` terms; thread 0 has the sum.
//
// Threads stride through the chunk in 16-byte vectors, four in flight, the last ones
// too; the elements before the first and after the last 16-byte boundary go one by one.
template <typename T, typename Term>
__device__ __forceinline__ double reduce_chunk(const Term& all, long long n, long long chunk, int splits) {
    constexpr int W = Vec<T>::width, FLIGHT = 4;
    const long long row = blockIdx.x / splits, first = (long long)(blockIdx.x % splits) * chunk;
    const long long count = min(chunk, n - first);
    Term t = all.at(row * n + first);
    double acc[FLIGHT] = {};
    if (t.aligned()) {
        const int head = (int)min((long long)t.head(), count), stride = blockDim.x;
        const long long vectors = (count - head) / W, tail = head + vectors * W + threadIdx.x;
        const typename Term::Load before = threadIdx.x < head ? t.one(threadIdx.x) : typename Term::Load{}, after = tail < count ? t.one(tail) : typename Term::Load{};
        t = t.at(head);
        for (long long i = threadIdx.x; i < vectors; i += FLIGHT * stride) {
            typename Term::Load l[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) l[f] = i + f * stride < vectors ? t.load(i + f * stride) : typename Term::Load{};
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                for (int k = 0; k < W; k++) acc[f] += Term::term(l[f], k);
        }
        acc[0] += Term::term(before, 0), acc[1] += Term::term(after, 0);
    } else {
        for (long long i = threadIdx.x; i < count; i += blockDim.x) acc[0] += Term::term(t.one(i), 0);
    }
    return block_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

// reduce_rows: out[b] = sum of block b's chunk / div. once: out[row] = sum of a row / div; the block that
// is last to finish its chunk adds up the chunks' sums in parts, a warp for each row.
template <typename T, typename Out, typename Term>
__device__ __forceinline__ void reduce_rows(const Term& all, Out* out, double* parts, unsigned* arrivals, long long n, long long chunk, int splits, int once, double div) {
    admit();
    follow();
    const double sum = reduce_chunk<T>(all, n, chunk, splits);
    if (!once) {
        if (threadIdx.x == 0) out[blockIdx.x] = (Out)(sum / div);
        return;
    }
    if (!last_block(threadIdx.x, arrivals, [&] { parts[blockIdx.x] = sum; })) return;
    const int rows = gridDim.x / splits, lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < rows; row += blockDim.x / 32) {
        double acc = 0;
        for (int i = lane; i < splits; i += 32) acc += __ldcg(parts + row * splits + i);
        acc = warp_sum(acc, 32);
        if (lane == 0) out[row] = (Out)(acc / div);
    }
}
