// cumsum: out[o][k][c] = the sum of x[o][j][c] over j <= k, or over j >= k if reversed. Integers are summed as int64.
//
// cumsum_rows: elements of a row are contiguous (inner = 1). A warp, or a block for long rows, goes through a row in tiles
// of 16 bytes a thread. A thread sums its own elements and adds the sum of the threads before it and of the tiles before.
// cumsum_tiles: each tile of a row has a block, where there are few rows. cumsum_joined: the same by a cluster for each row of few tiles.
// cumsum_columns: a thread sums a column. Where there are few columns, each is cut in parts. A launch with write = 0
// computes the total of each part, and the next one begins with the totals before.
//
// Tiles and parts follow from the shape, and with them the order of all sums. Bound by memory.
#include "follow.cuh"
#include "inbox.cuh"

constexpr int threads = 256, warps = threads / 32, tileGroup = 128; // tiles of a group: as in cumsum.go
constexpr int CLUSTER = 8; // blocks that have a row of up to 8 tiles: as in cumsum.go
template <typename A> constexpr int tileSums = sizeof(A) == 4 ? 32 : 8; // of a thread: as in cumsum.go
#if __CUDA_ARCH__ / 100 == 9
constexpr int tileBlocks = 4; // of an SM
#else
constexpr int tileBlocks = 2;
#endif

template <typename E, int W> struct alignas(16) Words {
    E s[W];
};

// Some elements of a row or column, in the order in which they are summed: number i is at base + i * step.
struct Part {
    long long from, to; // the part is [from, to) of the n elements
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

// scan_row writes the sums of a row.
template <typename A, typename X, bool BLOCK> __device__ __forceinline__ void scan_row(const X* __restrict__ x, A* __restrict__ out, const Part& part) {
    constexpr int W = 16 / sizeof(X), group = BLOCK ? threads : 32;
    __shared__ A sums[2][warps];
    const int t = BLOCK ? threadIdx.x : threadIdx.x & 31, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool wide = part.n % W == 0;
    Words<X, W> next = words<X, W>(x, part, part.from + t * W);
    A carry = 0;
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

template <typename A, typename X> __device__ void rows(const X* x, A* out, long long outer, long long n, bool reversed, bool block) {
    follow();
    const long long o = block ? blockIdx.x : (long long)blockIdx.x * warps + threadIdx.x / 32;
    if (o >= outer) return;
    const Part row{0, n, n, reversed};
    if (block) scan_row<A, X, true>(x + o * n, out + o * n, row);
    else scan_row<A, X, false>(x + o * n, out + o * n, row);
}

// Threads are numbered by (column, part, some o).
template <typename A, typename X>
__device__ void columns(const X* __restrict__ x, A* __restrict__ out, long long outer, long long n, bool reversed, A* totals, bool write, int parts, long long each,
                        long long inner) {
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

// A sum that one block writes and others wait for, in words of 64 bits: 32 bits of the sum above which stands 1, for memory that was zero. A word is written at once.
template <typename A> struct Published {
    static constexpr int count = sizeof(A) / 4;
    unsigned long long words[count];

    __device__ void write(A sum) {
        unsigned bits[count];
        memcpy(bits, &sum, sizeof(A));
#pragma unroll
        for (int i = 0; i < count; i++)
            asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(words + i), "l"(1ull << 32 | bits[i]) : "memory");
    }
    // read returns whether the sum is there.
    __device__ bool read(A& sum) const {
        unsigned bits[count], there = 1;
#pragma unroll
        for (int i = 0; i < count; i++) {
            unsigned long long word;
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(words + i) : "memory");
            bits[i] = (unsigned)word, there &= (unsigned)(word >> 32);
        }
        memcpy(&sum, bits, sizeof(A));
        return there;
    }
};

// sum_published returns to a warp the sum of the first n sums of a list, in an order that n decides, when all of them are there.
template <typename A> __device__ A sum_published(const Published<A>* list, int n) {
    constexpr int ahead = 4;
    const int lane = threadIdx.x & 31;
    A sum = 0;
#pragma unroll 1
    for (int i = lane; i < n; i += ahead * 32) {
        A v[ahead];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int j = 0; j < ahead; j++) v[j] = 0, all &= i + j * 32 >= n || list[i + j * 32].read(v[j]);
        } while (!all);
#pragma unroll
        for (int j = 0; j < ahead; j++) sum += v[j];
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

// Tile holds the elements of a thread of a tile: of each warp's part, vectors of 16 bytes that lie 32 apart.
template <typename A, typename X> struct Tile {
    static constexpr int W = 16 / sizeof(X), V = tileSums<A> / W, part = 32 * W * V;
    Words<A, W> sums[V]; // from the start of the warp's part on
    long long from;      // the first element
    A base, total;       // the sum of the warps before, and of the tile

    // scan sums the elements of tile number `tile` of a row.
    __device__ __forceinline__ void scan(const X* __restrict__ x, const Part& row, int tile) {
        __shared__ A warpSums[warps];
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        from = ((long long)tile * warps + warp) * part + lane * W;
        Words<X, W> v[V];
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = words<X, W>(x, row, from + j * 32 * W);
        A sum = 0;
#pragma unroll
        for (int j = 0; j < V; j++) {
            A own = 0;
#pragma unroll
            for (int w = 0; w < W; w++) {
                own += (A)(row.reversed ? v[j].s[W - 1 - w] : v[j].s[w]);
                sums[j].s[w] = own;
            }
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const A other = __shfl_up_sync(~0u, own, d);
                if (lane >= d) own += other;
            }
            const A others = __shfl_up_sync(~0u, own, 1), before = lane == 0 ? sum : sum + others;
            sum += __shfl_sync(~0u, own, 31);
#pragma unroll
            for (int w = 0; w < W; w++) sums[j].s[w] += before;
        }
        if (lane == 0) warpSums[warp] = sum;
        __syncthreads();
        base = 0, total = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) {
            if (w == warp) base = total;
            total += warpSums[w];
        }
    }

    // write adds the sum of the tiles before to all sums, and writes them.
    __device__ __forceinline__ void write(A* __restrict__ out, const Part& row, A start) {
        base += start;
#pragma unroll
        for (int j = 0; j < V; j++) {
            const long long i = from + j * 32 * W;
            if (row.n % W == 0) {
                Words<A, W> line;
#pragma unroll
                for (int w = 0; w < W; w++) line.s[w] = base + (row.reversed ? sums[j].s[W - 1 - w] : sums[j].s[w]);
                if (i < row.n) *reinterpret_cast<Words<A, W>*>(out + (row.reversed ? row.n - W - i : i)) = line;
            } else {
#pragma unroll
                for (int w = 0; w < W; w++)
                    if (i + w < row.n) out[row.at(i + w)] = base + sums[j].s[w];
            }
        }
    }
};

// A block takes the tiles of rows in order; a row has `count` of them. The sum of a tile is published before the block waits for the sums of the tiles
// before it: the order of adding up does not depend on which are there first. The last one of a group publishes the sum of the group.
template <typename A, typename X>
__device__ void tiles(const X* __restrict__ x, A* __restrict__ out, long long outer, long long n, bool reversed, Published<A>* published, bool write, int count, unsigned* arrivals) {
    constexpr int group = tileGroup;
    const int groups = count / group;
    follow();
    if (!write) {
        for (long long i = (long long)blockIdx.x * threads + threadIdx.x; i < outer * (count + groups); i += (long long)gridDim.x * threads) published[i] = Published<A>{};
        return;
    }
    __shared__ unsigned turn;
    __shared__ A start;
    if (threadIdx.x == 0) turn = atomicInc(arrivals, gridDim.x - 1); // the last one makes it zero
    __syncthreads();
    const long long o = turn / (unsigned)count;
    const int tile = (int)(turn - o * count), lane = threadIdx.x & 31;
    published += o * (count + groups);
    const Part row{0, n, n, reversed};
    Tile<A, X> t;
    t.scan(x + o * n, row, tile);
    if (threadIdx.x < 32) {
        if (lane == 0) published[tile].write(t.total);
        const int g = tile / group;
        A carry = sum_published(published + g * group, tile - g * group);
        if (lane == 0 && tile - g * group == group - 1) published[count + g].write(carry + t.total);
        carry += sum_published(published + count, g);
        if (lane == 0) start = carry;
    }
    __syncthreads();
    t.write(out + o * n, row, start);
}

#if __CUDA_ARCH__ / 100 == 9
// joined_tiles computes the same where a row has at most CLUSTER tiles, in one launch: a cluster has a row, and its blocks send their sums to those after them.
template <typename A, typename X> __device__ void joined_tiles(const X* __restrict__ x, A* __restrict__ out, long long n, bool reversed) {
    __shared__ float4 inbox[CLUSTER];
    __shared__ u64 full;
    const int tile = blockIdx.x % CLUSTER, lane = threadIdx.x & 31;
    const long long o = blockIdx.x / CLUSTER;
    open_inbox(&full, tile * (int)sizeof(float4));
    admit();
    follow();
    const Part row{0, n, n, reversed};
    Tile<A, X> t;
    t.scan(x + o * n, row, tile);
    cluster_wait(); // all blocks have begun
    if (threadIdx.x < 32) {
        float4 sum{};
        memcpy(&sum, &t.total, sizeof(A));
        if (lane > tile && lane < CLUSTER) send(lane, &inbox[tile], sum, &full);
    }
    await_inbox(&full);
    A start = 0; // in the order of sum_published
    if (lane < tile) memcpy(&start, &inbox[lane], sizeof(A));
#pragma unroll
    for (int d = CLUSTER / 2; d > 0; d /= 2) start += __shfl_xor_sync(~0u, start, d); // the first lanes have the sum
    start = __shfl_sync(~0u, start, 0);
    t.write(out + o * n, row, start);
}
#endif

#if __CUDA_ARCH__ / 100 == 9
#define ON_HOPPER(...) __VA_ARGS__
#define IN_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else // elsewhere no times say where it is faster, and the entry points only wait
#define ON_HOPPER(...) follow();
#define IN_CLUSTER
#endif

#define CUMSUM(name, A, X)                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(threads)                                                                                       \
        cumsum_rows_##name(const X* x, A* out, long long outer, long long n, int reversed, int block) {                                         \
        rows(x, out, outer, n, reversed != 0, block != 0);                                                                                      \
    }                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(threads, tileBlocks)                                                                          \
        cumsum_tiles_##name(const X* x, A* out, long long outer, long long n, int reversed, Published<A>* published, int write, int count,      \
                            unsigned* arrivals) {                                                                                               \
        tiles(x, out, outer, n, reversed != 0, published, write != 0, count, arrivals);                                                         \
    }                                                                                                                                           \
    extern "C" __global__ void IN_CLUSTER __launch_bounds__(threads)                                                                            \
        cumsum_joined_##name(const X* x, A* out, long long outer, long long n, int reversed) {                                                  \
        ON_HOPPER(joined_tiles(x, out, n, reversed != 0);)                                                                                      \
    }                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(threads)                                                                                       \
        cumsum_columns_##name(const X* x, A* out, long long outer, long long n, int reversed, A* totals, int write, int parts, long long each,  \
                              long long inner) {                                                                                                \
        columns(x, out, outer, n, reversed != 0, totals, write != 0, parts, each, inner);                                                       \
    }

CUMSUM(f32, float, float)
CUMSUM(f64, double, double)
CUMSUM(i32, long long, int)
CUMSUM(i64, long long, long long)
