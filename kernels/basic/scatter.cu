// scatter: out[o][v][c] = the sum of g[o][k][c] over the k with indices[k] = v, in the order
// of k, each sum rounded; an index that is no row counts nowhere (many indices of few rows: scatter_parts.cu). Tensors are outer x rows x inner, indices count rows. A block makes a tile
// of rows and columns of out, for some o. It goes through all indices, keeps those of its
// rows, in order, and sorts them by row, in shared memory: the order of atomics decides
// nothing, so equal input gives equal bits. Then each 16 bytes of the tile are one thread's: it
// sums what its row has, and writes, so that out is written once, zeros included. A tile with more
// indices than its list holds processes them in several rounds and adds each round's sums to out.
//
// Where there are many indices, split.cu splits them among bands of rows first, and a block reads
// those of its band alone. A row of very many indices would keep one block busy when all others are
// done: scatter leaves it to scatter_heavy, whose blocks do a few columns of such a row each. Bound by memory.
#include "async.cuh"
#include "scatter.cuh"

constexpr int threads = 256, warps = threads / 32;
constexpr int mostRows = 512; // of a tile: as in scatter.go
constexpr int held = 2048;    // indices in its list

struct Tile {
    int start[mostRows + 1]; // of a row, in order
    int count[mostRows];     // indices of a row
    int order[held];         // k by row, rising
    int k[held];             // as they come
    unsigned short row[held], rank[held];
    int sums[warps];
};

// before is the sum of n over the threads before this one, and total the sum over all.
__device__ int before(int* sums, int n, int& total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int sum = n;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int base = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < warps; w++) {
        if (w < warp) base += sums[w];
        total += sums[w];
    }
    __syncthreads();
    return base + sum - n;
}

// The indices that a block goes through: a part of the list of a band whose first row is first, or, without a
// list, a part of all indices.
struct Indices {
    const long long* all;
    const int2* list;
    long long at, end, first;
    // k is the position of index number i among all, and row its row, -1 beyond the end.
    __device__ void get(long long i, int& k, long long& row) const {
        if (i >= end) {
            row = -1;
        } else if (list) {
            const int2 e = list[i];
            k = e.x, row = first + e.y;
        } else {
            k = (int)i, row = all[i];
        }
    }
};

// collect calls put(place, k, row) for the indices of rows [v0, v0 + rows) for which keep(row) is true, in
// order, with rows counted from v0. Threads look at EACH indices at a time; it stops when capacity has no room
// for as many as all threads look at together, and returns the number of calls.
template <int EACH, typename K, typename P>
__device__ int collect(int* sums, Indices& from, long long v0, int rows, int capacity, K keep, P put) {
    constexpr int turn = threads * EACH;
    int n = 0;
    for (; from.at < from.end && n <= capacity - turn; from.at += turn) {
        int k[EACH], row[EACH], mine = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            long long v;
            from.get(from.at + threadIdx.x * EACH + j, k[j], v);
            row[j] = v >= v0 && v < v0 + rows ? (int)(v - v0) : -1;
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row[j] >= 0 && !keep(row[j])) row[j] = -1;
            mine += row[j] >= 0;
        }
        int total, place = n + before(sums, mine, total);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row[j] >= 0) put(place++, k[j], row[j]);
        }
        n += total;
    }
    return n;
}

// sort puts the list in order of rows, and within a row of k. One warp counts; the lanes
// of equal rows take their places by lane.
__device__ void sort(Tile& t, int n, int rows) {
    for (int r = threadIdx.x; r <= rows; r += threads) t.start[r] = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int e = threadIdx.x; e < (n + 31 & ~31); e += 32) {
            const int row = e < n ? t.row[e] : -1;
            const unsigned same = __match_any_sync(~0u, row), ahead = same & ((1u << threadIdx.x) - 1);
            const int seen = row < 0 ? 0 : t.start[row];
            __syncwarp();
            if (row >= 0) {
                t.rank[e] = (unsigned short)(seen + __popc(ahead));
                if (ahead == 0) t.start[row] = seen + __popc(same);
            }
            __syncwarp();
        }
    }
    __syncthreads();
    constexpr int rowsOfThread = mostRows / threads;
    int counts[rowsOfThread], sum = 0, total;
#pragma unroll
    for (int j = 0; j < rowsOfThread; j++) {
        const int r = threadIdx.x * rowsOfThread + j;
        counts[j] = r < rows ? t.start[r] : 0;
        sum += counts[j];
    }
    int place = before(t.sums, sum, total);
#pragma unroll
    for (int j = 0; j < rowsOfThread; j++) {
        const int r = threadIdx.x * rowsOfThread + j;
        if (r < rows) t.start[r] = place;
        place += counts[j];
    }
    if (threadIdx.x == 0) t.start[rows] = n;
    __syncthreads();
    for (int e = threadIdx.x; e < n; e += threads) t.order[t.start[t.row[e]] + t.rank[e]] = t.k[e];
    __syncthreads();
}

template <typename T, int W>
struct alignas(sizeof(T) * W) Words {
    T s[W];
};

// sums writes the tile's rows, W elements a thread. g and out point to the tile's first element, for one o.
template <typename T, int W>
__device__ void sums(const Tile& t, const T* __restrict__ g, T* out, int height, int width, long long inner, bool first) {
    constexpr int ahead = 4;
    using V = Words<T, W>;
    const int across = width / W;
    int r = threadIdx.x / across, c = threadIdx.x % across;
    while (r < height) {
        const int from = t.start[r], to = t.start[r + 1];
        V* place = reinterpret_cast<V*>(out + r * inner + c * W);
        if (first || from < to) {
            V sum{};
            if (!first) sum = *place;
#pragma unroll 1
            for (int e = from; e < to; e += ahead) {
                V x[ahead];
#pragma unroll
                for (int j = 0; j < ahead; j++) {
                    if (e + j < to) x[j] = *reinterpret_cast<const V*>(g + t.order[e + j] * inner + c * W);
                }
#pragma unroll
                for (int j = 0; j < ahead; j++) {
                    if (e + j < to) {
#pragma unroll
                        for (int w = 0; w < W; w++) sum.s[w] += x[j].s[w];
                    }
                }
            }
            *place = sum;
        }
        r += threads / across;
        c += threads % across;
        if (c >= across) c -= across, r++;
    }
}

// Blocks are numbered by (tile of columns, tile of rows, some o). starts is nullptr where indices are not
// split; where they are, rows of at least many indices are left to scatter_heavy.
template <typename T>
__device__ void scatter(const T* __restrict__ g, Indices from, T* out, const int* __restrict__ starts, Heavy* heavy, int parts, int bandRows, int many,
                        long long outer, long long rows, long long count, long long inner, int tileRows, int tileColumns, long long tileOuter,
                        unsigned tilesDown, unsigned tilesAcross) {
    __shared__ Tile t;
    const unsigned rest = blockIdx.x / tilesAcross;
    const long long c0 = blockIdx.x % tilesAcross * (long long)tileColumns, v0 = rest % tilesDown * (long long)tileRows, o0 = rest / tilesDown * tileOuter;
    const int height = (int)min((long long)tileRows, rows - v0), width = (int)min((long long)tileColumns, inner - c0);
    const long long o1 = min(o0 + tileOuter, outer);
    if (parts > 0) {
        const long long b = (unsigned)v0 / (unsigned)bandRows;
        from.at = starts[b * parts], from.end = starts[(b + 1) * parts], from.first = b * bandRows;
    }
    const bool some = parts > 0 && from.end - from.at >= many; // rows may be heavy
    if (some) {
        for (int r = threadIdx.x; r < height; r += threads) t.count[r] = 0;
        __syncthreads();
#pragma unroll 4
        for (long long i = from.at + threadIdx.x; i < from.end; i += threads) {
            int k;
            long long v;
            from.get(i, k, v);
            if (v >= v0 && v < v0 + height) atomicAdd(&t.count[v - v0], 1);
        }
        __syncthreads();
        bool light = false;
        for (int r = threadIdx.x; r < height; r += threads) {
            light = light || (t.count[r] > 0 && t.count[r] < many);
            if (t.count[r] >= many && c0 == 0 && o0 == 0) heavy->row[atomicAdd(&heavy->rows, 1)] = (int)(v0 + r); // in whatever order
        }
        if (!__syncthreads_or(light)) from.at = from.end;
    }
    bool first = true;
    do {
        const int n = collect<4>(
            t.sums, from, v0, height, held, [&](int r) { return !some || t.count[r] < many; },
            [&](int place, int k, int r) { t.k[place] = k, t.row[place] = (unsigned short)r; });
        __syncthreads();
        sort(t, n, height);
        for (long long o = o0; o < o1; o++) {
            const T* x = g + (o * count * inner + c0);
            T* to = out + ((o * rows + v0) * inner + c0);
            constexpr int W = 16 / sizeof(T);
            if (inner % W == 0) {
                sums<T, W>(t, x, to, height, width, inner, first);
            } else {
                sums<T, 1>(t, x, to, height, width, inner, first);
            }
        }
        first = false;
        __syncthreads(); // the next turn's list is written over this one
    } while (from.at < from.end);
}

constexpr int lanes = 32;         // columns of a block of scatter_heavy
constexpr int stages = 8;         // panels
constexpr int heavyHeld = 8192;   // indices in its list: as in scatter.go
extern __shared__ __align__(16) unsigned char shared[]; // the list, then panels of deep rows

// A block processes items in a grid-stride loop. An item is some columns of one output row with many indices, for
// one outer index o. All threads load panels of the rows to sum, and one warp sums.
template <typename T>
__device__ void scatterHeavy(const T* __restrict__ g, Indices from, T* out, const int* __restrict__ starts, const Heavy* heavy, int parts, int bandRows,
                             int deep, unsigned tilesAcross, unsigned outer, long long rows, long long count, long long inner) {
    __shared__ int sums[warps];
    int* list = reinterpret_cast<int*>(shared);
    T* panels = reinterpret_cast<T*>(list + heavyHeld);
    const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
    const unsigned many = heavy->rows, items = many * tilesAcross * outer;
    for (unsigned item = blockIdx.x; item < items; item += gridDim.x) {
        const unsigned row = item / tilesAcross, number = row % many, at = heavy->row[number];
        const long long c0 = item % tilesAcross * (long long)lanes, v = at, o = row / many, b = at / (unsigned)bandRows;
        const int width = (int)min((long long)lanes, inner - c0);
        from.at = starts[b * parts], from.end = starts[(b + 1) * parts], from.first = b * bandRows;
        const T* x = g + (o * count * inner + c0 + lane);
        T sum = 0;
        do {
            const int n = collect<8>(
                sums, from, v, 1, heavyHeld, [](int) { return true; }, [&](int place, int k, int) { list[place] = k; });
            __syncthreads();
            auto fetch = [&](int e, int stage) {
                T* panel = panels + stage * deep * lanes + lane;
                if (lane < width) {
#pragma unroll 4
                    for (int i = warp; i < min(deep, n - e); i += warps) async_copy(panel + i * lanes, x + list[e + i] * inner);
                }
                commit();
            };
            for (int s = 0; s < stages - 1; s++) fetch(s * deep, s);
            int stage = 0;
            for (int e = 0; e < n; e += deep) {
                arrived<stages - 2>();
                __syncthreads(); // this panel has been copied, and all threads have finished reading the previous panel
                fetch(e + (stages - 1) * deep, stage == 0 ? stages - 1 : stage - 1);
                if (warp == 0) {
                    const T* panel = panels + stage * deep * lanes + lane;
                    const int last = min(deep, n - e);
                    int i = 0;
                    for (; i + 16 <= last; i += 16) {
                        T y[16];
#pragma unroll
                        for (int j = 0; j < 16; j++) y[j] = panel[(i + j) * lanes];
#pragma unroll
                        for (int j = 0; j < 16; j++) sum += y[j];
                    }
                    for (; i < last; i++) sum += panel[i * lanes];
                }
                if (++stage == stages) stage = 0;
            }
            arrived<0>();
            __syncthreads(); // the next turn's list is written over this one
        } while (from.at < from.end);
        if (warp == 0 && lane < width) out[(o * rows + v) * inner + c0 + lane] = sum;
    }
}

#define SCATTER(name, T)                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(threads, 4)                                                                                    \
        scatter_##name(const T* g, const long long* indices, T* out, const int* starts, const int2* list, Heavy* heavy, int parts,              \
                       int bandRows, int many, long long outer, long long rows, long long count, long long inner, int tileRows,                 \
                       int tileColumns, long long tileOuter, int tilesDown, int tilesAcross) {                                                  \
        scatter(g, {indices, parts > 0 ? list : nullptr, 0, count, 0}, out, starts, heavy, parts, bandRows, many, outer, rows, count, inner,    \
                tileRows, tileColumns, tileOuter, tilesDown, tilesAcross);                                                                      \
    }                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(threads, 2)                                                                                    \
        scatter_heavy_##name(const T* g, const long long* indices, T* out, const int* starts, const int2* list, const Heavy* heavy, int parts,  \
                             int bandRows, int deep, int tilesAcross, int outer, long long rows, long long count, long long inner) {            \
        scatterHeavy(g, {indices, list, 0, count, 0}, out, starts, heavy, parts, bandRows, deep, tilesAcross, outer, rows, count, inner);       \
    }

SCATTER(f32, float)
SCATTER(f64, double)
