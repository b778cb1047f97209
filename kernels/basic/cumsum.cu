// cumsum: out[o][k][c] = the sum of x[o][j][c] over j <= k, or over j >= k if reversed. Integers are summed as int64.
//
// cumsum_rows: elements of a row are contiguous (inner = 1). A warp, or a block for long rows, goes through a row in tiles
// of 16 bytes a thread. A thread sums its own elements and adds the sum of the threads before it and of the tiles before.
// cumsum_columns: a thread goes through a column.
//
// Where there are few rows or columns, each is cut in parts. A launch with write = 0 computes the total of each part, and
// the next one begins with the totals before, in order. The parts follow from the shape, and with them the order of all
// sums. Bound by memory.
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

// scan_row returns the total of the part, beginning with carry, and writes the sums if write.
template <typename A, typename X, bool BLOCK>
__device__ __forceinline__ A scan_row(const X* __restrict__ x, A* __restrict__ out, const Part& part, A carry, bool write) {
    constexpr int W = 16 / sizeof(X), group = BLOCK ? threads : 32;
    __shared__ A sums[2][warps];
    const int t = BLOCK ? threadIdx.x : threadIdx.x & 31, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool wide = part.n % W == 0;
    Words<X, W> next;
    const auto load = [&](long long i) {
        if (wide) {
            if (i < part.to) next = *reinterpret_cast<const Words<X, W>*>(x + (part.reversed ? part.n - W - i : i));
            else next = Words<X, W>{};
        } else {
#pragma unroll
            for (int w = 0; w < W; w++) next.s[part.reversed ? W - 1 - w : w] = i + w < part.to ? x[part.at(i + w)] : X(0);
        }
    };
    load(part.from + t * W);
    int turn = 0;
    for (long long i0 = part.from; i0 < part.to; i0 += group * W, turn ^= 1) {
        const long long i = i0 + t * W;
        A own[W];
#pragma unroll
        for (int w = 0; w < W; w++) own[w] = (A)(part.reversed ? next.s[W - 1 - w] : next.s[w]);
        load(i + group * W);
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
        A total = __shfl_sync(~0u, sum, 31);
        if constexpr (BLOCK) {
            if (lane == 31) sums[turn][warp] = sum;
            __syncthreads();
            A base = 0;
            total = 0;
#pragma unroll
            for (int w = 0; w < warps; w++) {
                if (w == warp) base = total;
                total += sums[turn][w];
            }
            before += base;
        }
        before += carry;
        carry += total;
        if (!write) continue;
        if (wide) {
            Words<A, W> words;
#pragma unroll
            for (int w = 0; w < W; w++) words.s[part.reversed ? W - 1 - w : w] = before + own[w];
            if (i < part.to) *reinterpret_cast<Words<A, W>*>(out + (part.reversed ? part.n - W - i : i)) = words;
        } else {
#pragma unroll
            for (int w = 0; w < W; w++)
                if (i + w < part.to) out[part.at(i + w)] = before + own[w];
        }
    }
    return carry;
}

// Warps or blocks are numbered by (part, row).
template <typename A, typename X>
__device__ void rows(const X* x, A* totals, A* out, long long outer, long long n, int parts, long long each, bool block, bool reversed, bool write) {
    follow();
    const long long item = block ? blockIdx.x : (long long)blockIdx.x * warps + threadIdx.x / 32, o = item / parts;
    if (o >= outer) return;
    const int p = (int)(item - o * parts);
    const Part part{p * each, min(n, (p + 1) * each), n, reversed};
    const A carry = write ? totals_before(totals + o * parts, p, 1) : A(0);
    A total;
    if (block) total = scan_row<A, X, true>(x + o * n, out + o * n, part, carry, write);
    else total = scan_row<A, X, false>(x + o * n, out + o * n, part, carry, write);
    if (!write && threadIdx.x % (block ? threads : 32) == 0) totals[item] = total;
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
