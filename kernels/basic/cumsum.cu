// cumsum: out[o][k][c] = the sum of x[o][j][c] over j <= k, or over j >= k if reversed. Integers are summed as int64.
//
// cumsum_rows: elements of a row are contiguous (inner = 1). A warp, or a block for long rows, goes through a row in tiles
// of 16 bytes a thread. A thread sums its own elements and adds the sum of the threads before it and of the tiles before.
// cumsum_columns: a thread goes through a column.
//
// Where there are few rows or columns, each is cut in parts. A launch with write = 0 computes the total of each part, and
// the next one begins with the totals before. The parts follow from the shape, and with them the order of all sums. Bound
// by memory.
#include "follow.cuh"

constexpr int threads = 256, warps = threads / 32; // as in cumsum.go

template <typename E, int W> struct alignas(16) Words {
    E s[W];
};

// Some elements of a row or column, in the order in which they are summed: number i is at base + i * step.
struct Part {
    long long from, to; // those of the part, of n
    long long n;
    bool reversed;
    __device__ long long at(long long i) const { return reversed ? n - 1 - i : i; }
};

template <typename A> __device__ A totals_before(const A* __restrict__ totals, int part, long long apart) {
    A sum = 0;
#pragma unroll 8
    for (int q = 0; q < part; q++) sum += totals[q * apart];
    return sum;
}

// total is the sum of the sums of a block's threads, by a tree.
template <typename A> __device__ __forceinline__ A total(A sum) {
    __shared__ A sums[warps];
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    __syncthreads(); // all have read the last ones
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = sums[threadIdx.x % warps];
#pragma unroll
    for (int d = warps / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

// words are the elements of a part of a row from i on, in their order in memory; those beyond the part are 0.
template <typename X, int W> __device__ __forceinline__ Words<X, W> words(const X* __restrict__ x, const Part& part, long long i) {
    Words<X, W> v{};
    if (part.n % W == 0) {
        if (i < part.to) v = *reinterpret_cast<const Words<X, W>*>(x + (part.reversed ? part.n - W - i : i));
    } else {
#pragma unroll
        for (int w = 0; w < W; w++) v.s[part.reversed ? W - 1 - w : w] = i + w < part.to ? x[part.at(i + w)] : X(0);
    }
    return v;
}

// total_row returns the total of a block's part. It goes backwards: what it reads last is in the level-2 cache when scan_row begins with it.
template <typename A, typename X> __device__ __forceinline__ A total_row(const X* __restrict__ x, const Part& part) {
    constexpr int W = 16 / sizeof(X), ahead = 4;
    constexpr long long step = threads * W;
    A sum[W] = {};
    if (part.n % W == 0) {
#pragma unroll 1
        for (long long i0 = (part.to - part.from - 1) / step * step + part.from + threadIdx.x * W; i0 >= part.from; i0 -= ahead * step) {
            Words<X, W> v[ahead];
#pragma unroll
            for (int j = 0; j < ahead; j++) {
                const long long i = i0 - j * step;
                v[j] = i >= part.from && i < part.to ? *reinterpret_cast<const Words<X, W>*>(x + (part.reversed ? part.n - W - i : i)) : Words<X, W>{};
            }
#pragma unroll
            for (int j = 0; j < ahead; j++)
#pragma unroll
                for (int w = 0; w < W; w++) sum[w] += (A)v[j].s[w];
        }
    } else {
#pragma unroll 1
        for (long long i = part.to - 1 - threadIdx.x; i >= part.from; i -= threads) sum[0] += (A)x[part.at(i)];
    }
#pragma unroll
    for (int w = 1; w < W; w++) sum[0] += sum[w];
    return total(sum[0]);
}

// scan_row writes the sums of the part, beginning with carry.
template <typename A, typename X, bool BLOCK> __device__ __forceinline__ void scan_row(const X* __restrict__ x, A* __restrict__ out, const Part& part, A carry) {
    constexpr int W = 16 / sizeof(X), group = BLOCK ? threads : 32;
    __shared__ A sums[2][warps];
    const int t = BLOCK ? threadIdx.x : threadIdx.x & 31, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool wide = part.n % W == 0;
    Words<X, W> next = words<X, W>(x, part, part.from + t * W);
    int turn = 0;
#pragma unroll 1
    for (long long i0 = part.from; i0 < part.to; i0 += group * W, turn ^= 1) {
        const long long i = i0 + t * W;
        A own[W];
#pragma unroll
        for (int w = 0; w < W; w++) own[w] = (A)(part.reversed ? next.s[W - 1 - w] : next.s[w]);
        next = words<X, W>(x, part, i + group * W);
#pragma unroll
        for (int w = 1; w < W; w++) own[w] += own[w - 1];
        A sum = own[W - 1];
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const A other = __shfl_up_sync(~0u, sum, d);
            if (lane >= d) sum += other;
        }
        A before = __shfl_up_sync(~0u, sum, 1);
        if (lane == 0) before = 0;
        A all = __shfl_sync(~0u, sum, 31);
        if constexpr (BLOCK) {
            if (lane == 31) sums[turn][warp] = sum;
            __syncthreads();
            A base = 0;
            all = 0;
#pragma unroll
            for (int w = 0; w < warps; w++) {
                if (w == warp) base = all;
                all += sums[turn][w];
            }
            before += base;
        }
        before += carry;
        carry += all;
        if (wide) {
            Words<A, W> to;
#pragma unroll
            for (int w = 0; w < W; w++) to.s[part.reversed ? W - 1 - w : w] = before + own[w];
            if (i < part.to) *reinterpret_cast<Words<A, W>*>(out + (part.reversed ? part.n - W - i : i)) = to;
        } else {
#pragma unroll
            for (int w = 0; w < W; w++)
                if (i + w < part.to) out[part.at(i + w)] = before + own[w];
        }
    }
}

// Warps or blocks are numbered by (part, row).
template <typename A, typename X>
__device__ void rows(const X* x, A* totals, A* out, long long outer, long long n, int parts, long long each, bool block, bool reversed, bool write) {
    follow();
    const long long item = block ? blockIdx.x : (long long)blockIdx.x * warps + threadIdx.x / 32, o = item / parts;
    if (o >= outer) return;
    const int p = (int)(item - o * parts);
    const Part part{p * each, min(n, (p + 1) * each), n, reversed};
    if (!write) { // a row in parts is one of blocks
        const A sum = total_row<A>(x + o * n, part);
        if (threadIdx.x == 0) totals[item] = sum;
        return;
    }
    A carry = 0;
    if (p > 0) {
#pragma unroll 1
        for (int q = threadIdx.x; q < p; q += threads) carry += totals[o * parts + q];
        carry = total(carry);
    }
    if (block) scan_row<A, X, true>(x + o * n, out + o * n, part, carry);
    else scan_row<A, X, false>(x + o * n, out + o * n, part, carry);
}

// Threads are numbered by (column, part, some o).
template <typename A, typename X>
__device__ void columns(const X* __restrict__ x, A* totals, A* __restrict__ out, long long outer, long long n, long long inner, int parts, long long each,
                        bool reversed, bool write) {
    constexpr int ahead = 8;
    follow();
    const long long item = (long long)blockIdx.x * threads + threadIdx.x, rest = item / inner, c = item - rest * inner, o = rest / parts;
    if (o >= outer) return;
    const int p = (int)(rest - o * parts);
    const Part part{p * each, min(n, (p + 1) * each), n, reversed};
    A sum = write ? totals_before(totals + o * parts * inner + c, p, inner) : A(0);
    x += o * n * inner + c, out += o * n * inner + c;
    for (long long i0 = part.from; i0 < part.to; i0 += ahead) {
        X v[ahead];
#pragma unroll
        for (int j = 0; j < ahead; j++) v[j] = i0 + j < part.to ? x[part.at(i0 + j) * inner] : X(0);
#pragma unroll
        for (int j = 0; j < ahead; j++) {
            sum += (A)v[j];
            if (write && i0 + j < part.to) out[part.at(i0 + j) * inner] = sum;
        }
    }
    if (!write) totals[item] = sum;
}

#define CUMSUM(name, A, X)                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(threads)                                                                                  \
        cumsum_rows_##name(const X* x, A* totals, A* out, long long outer, long long n, int parts, long long each, int reversed, int write, \
                           int block) {                                                                                                    \
        rows(x, totals, out, outer, n, parts, each, block != 0, reversed != 0, write != 0);                                                \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(threads)                                                                                  \
        cumsum_columns_##name(const X* x, A* totals, A* out, long long outer, long long n, int parts, long long each, int reversed,        \
                              int write, long long inner) {                                                                                \
        columns(x, totals, out, outer, n, inner, parts, each, reversed != 0, write != 0);                                                  \
    }

CUMSUM(f32, float, float)
CUMSUM(f64, double, double)
CUMSUM(i32, long long, int)
CUMSUM(i64, long long, long long)
