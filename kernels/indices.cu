// Elements by index along an axis: tensors are outer x rows x inner, indices count rows.
//
// gather: out[o][k][c] = x[o][indices[k]][c], and 0 where there is no such row. It moves
// words of 1 to 16 bytes, inner counts those; a thread takes four, a block apart, so that
// it has four loads under way. Bound by memory: each word is read once and written once.
//
// scatter: out[o][v][c] = the sum of g[o][k][c] over the k with indices[k] = v, in the order
// of k, each sum rounded; an index that is no row counts nowhere. A block makes a tile
// of rows and columns of out, for some o. It goes through all indices, keeps those of its
// rows, in order, and sorts them by row, in shared memory: the order of atomics decides
// nothing, so equal input gives equal bits. Then each 16 bytes of the tile are one thread's: it
// sums what its row has, and writes, so that out is written once, zeros included. A row of
// many indices is read by all threads, by panels in shared memory, and summed by one warp while
// the next panel comes. Where a tile has more indices than its list holds, it
// takes them in turns and adds to what it wrote.
//
// Where there are many indices, they are split among the tiles before, and a block reads
// its own alone: split_count counts, for each warp's part of the indices, those of each
// height of tiles; split_scan sums the counts in order of heights, then of warps; split_place
// puts each k where its height and warp begin, in order. Bound by memory then.

#include "async.cuh"

// quotient is n / d for the divisor's magic number and shift: see kernels.divisor.
__device__ long long quotient(long long n, long long magic, int shift) { return (long long)(__umul64hi(n, magic) >> shift); }

template <typename W>
__device__ void gather(const W* __restrict__ x, const long long* __restrict__ indices, W* __restrict__ out, long long words, long long rows,
                       long long count, long long countMagic, int countShift, long long inner, long long innerMagic, int innerShift) {
    constexpr int each = 4;
    const long long first = (long long)blockIdx.x * (blockDim.x * each) + threadIdx.x;
    long long row[each], index[each], from[each];
    W word[each];
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = min(first + j * (int)blockDim.x, words - 1);
        row[j] = inner == 1 ? at : quotient(at, innerMagic, innerShift);
        from[j] = at - row[j] * inner;
        const long long o = count == 1 ? row[j] : quotient(row[j], countMagic, countShift);
        index[j] = indices[row[j] - o * count];
        row[j] = o * rows;
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        const bool exists = index[j] >= 0 && index[j] < rows;
        from[j] = exists ? (row[j] + index[j]) * inner + from[j] : -1;
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        word[j] = W{};
        if (from[j] >= 0) word[j] = x[from[j]];
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = first + j * (int)blockDim.x;
        if (at < words) out[at] = word[j];
    }
}

#define GATHER(name, W)                                                                                                                       \
    extern "C" __global__ void name(const W* x, const long long* indices, W* out, long long words, long long rows, long long count,           \
                                    long long countMagic, int countShift, long long inner, long long innerMagic, int innerShift) {            \
        gather(x, indices, out, words, rows, count, countMagic, countShift, inner, innerMagic, innerShift);                                   \
    }

GATHER(gather_b8, unsigned char)
GATHER(gather_b32, unsigned int)
GATHER(gather_b64, uint2)
GATHER(gather_b128, uint4)

constexpr int threads = 256, warps = threads / 32, perThread = 4;
constexpr int turn = threads * perThread; // indices that a block looks at together
constexpr int mostRows = 512;             // of a tile: as in indices.go
constexpr int held = 2 * turn;            // indices in the list

constexpr int mostHeights = 2048, splitWarps = 4; // as in indices.go

// height is which height of tiles an index belongs to, -1 for one that is no row.
__device__ int height(long long index, long long rows, int tileRows) { return index >= 0 && index < rows ? (int)((unsigned)index / (unsigned)tileRows) : -1; }

// counts[h * parts + part] = how many of the part's indices are of height h.
extern "C" __global__ void split_count(const long long* indices, int* counts, long long count, long long rows, int tileRows, int heights, int parts, int each) {
    __shared__ int mine[splitWarps][mostHeights];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = blockIdx.x * splitWarps + warp;
    if (part >= parts) return;
    for (int h = lane; h < heights; h += 32) mine[warp][h] = 0;
    __syncwarp();
    const long long end = min((part + 1ll) * each, count);
    for (long long k = (long long)part * each + lane; k < end; k += 32) {
        const int h = height(indices[k], rows, tileRows);
        if (h >= 0) atomicAdd(&mine[warp][h], 1);
    }
    __syncwarp();
    for (int h = lane; h < heights; h += 32) counts[(long long)h * parts + part] = mine[warp][h];
}

// list = the k of each height, rising, one height behind the other; starts is the sum of the
// counts before each.
extern "C" __global__ void split_place(const long long* indices, const int* starts, int* list, long long count, long long rows, int tileRows, int heights,
                                       int parts, int each) {
    __shared__ int next[splitWarps][mostHeights];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = blockIdx.x * splitWarps + warp;
    if (part >= parts) return;
    for (int h = lane; h < heights; h += 32) next[warp][h] = starts[(long long)h * parts + part];
    __syncwarp();
    const long long end = min((part + 1ll) * each, count);
    for (long long first = (long long)part * each; first < end; first += 32) {
        const long long k = first + lane;
        const int h = k < end ? height(indices[k], rows, tileRows) : -1;
        const unsigned same = __match_any_sync(~0u, h), ahead = same & ((1u << lane) - 1);
        const int from = h < 0 ? 0 : next[warp][h];
        __syncwarp();
        if (h >= 0) {
            list[from + __popc(ahead)] = (int)k;
            if (ahead == 0) next[warp][h] = from + __popc(same);
        }
        __syncwarp();
    }
}

// counts[i] becomes the sum of those before it, and counts[n] the sum of all. One block.
constexpr int scanThreads = 1024;
extern "C" __global__ void __launch_bounds__(scanThreads) split_scan(int* counts, int n) {
    __shared__ int sums[scanThreads / 32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int base = 0;
    for (int first = 0; first < n; first += 4 * scanThreads) {
        int x[4], total = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = first + 4 * (int)threadIdx.x + j;
            x[j] = i < n ? counts[i] : 0;
            total += x[j];
        }
        int sum = total;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int other = __shfl_up_sync(~0u, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        int place = base + sum - total;
        for (int w = 0; w < scanThreads / 32; w++) {
            if (w < warp) place += sums[w];
            base += sums[w];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = first + 4 * (int)threadIdx.x + j;
            if (i < n) counts[i] = place;
            place += x[j];
        }
    }
    if (threadIdx.x == 0) counts[n] = base;
}

constexpr int many = 64; // indices from which on a row is read by panels
constexpr int lanes = 32; // columns of a panel, and most of a tile

struct Tile {
    int start[mostRows + 1]; // of a row, in order
    int order[held];         // k by row, rising
    int heavy[held / many], heavies; // rows of many indices
    int sums[warps];
    union {
        struct {
            int k[held]; // as they come
            unsigned short row[held], rank[held];
        };
        alignas(16) unsigned char panel[held * 8];
    };
};

// before is the sum of n over the threads before this one, and total that over all.
__device__ int before(Tile& t, int n, int& total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int sum = n;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) t.sums[warp] = sum;
    __syncthreads();
    int base = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < warps; w++) {
        if (w < warp) base += t.sums[w];
        total += t.sums[w];
    }
    __syncthreads();
    return base + sum - n;
}

// collect appends the indices of rows [v0, v0 + rows), of those that a list names from at to
// end, or of all there if there is none, to the block's list, which is empty, until that
// has no room for another turn, and returns their number.
__device__ int collect(Tile& t, const long long* __restrict__ indices, const int* __restrict__ list, long long end, long long v0, int rows, long long& at) {
    int n = 0;
    for (; at < end && n <= held - turn; at += turn) {
        long long v[perThread];
        int k[perThread], mine = 0;
#pragma unroll
        for (int j = 0; j < perThread; j++) {
            const long long i = min(at + threadIdx.x * perThread + j, end - 1);
            k[j] = list ? list[i] : (int)i;
        }
#pragma unroll
        for (int j = 0; j < perThread; j++) {
            v[j] = at + threadIdx.x * perThread + j < end ? indices[k[j]] - v0 : -1;
            mine += v[j] >= 0 && v[j] < rows;
        }
        int total, place = n + before(t, mine, total);
#pragma unroll
        for (int j = 0; j < perThread; j++) {
            if (v[j] >= 0 && v[j] < rows) {
                t.k[place] = k[j];
                t.row[place++] = (unsigned short)v[j];
            }
        }
        n += total;
    }
    return n;
}

// sort puts the list in order of rows, and within a row of k. One warp counts; the lanes
// of equal rows take their places by lane.
__device__ void sort(Tile& t, int n, int rows) {
    for (int r = threadIdx.x; r <= rows; r += threads) t.start[r] = 0;
    if (threadIdx.x == 0) t.heavies = 0;
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
        if (counts[j] >= many) t.heavy[atomicAdd(&t.heavies, 1)] = r; // in whatever order
    }
    int place = before(t, sum, total);
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

// light makes the rows of a tile that have few indices, W elements a thread. g and out are where the
// tile begins, for one o.
template <typename T, int W>
__device__ void light(const Tile& t, const T* __restrict__ g, T* out, int height, int width, long long inner, bool first) {
    constexpr int ahead = 2;
    using V = Words<T, W>;
    const int across = width / W;
    int r = threadIdx.x / across, c = threadIdx.x % across;
    while (r < height) {
        const int from = t.start[r], to = t.start[r + 1];
        V* place = reinterpret_cast<V*>(out + r * inner + c * W);
        if (to - from < many && (first || from < to)) {
            V sum{};
            if (!first) sum = *place;
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

// heavy makes a row of a tile that has many indices, from .. to - 1 of the list.
template <typename T>
__device__ void heavy(Tile& t, const T* __restrict__ g, T* out, int from, int to, int width, long long inner, bool first) {
    constexpr int deep = sizeof(t.panel) / sizeof(T) / lanes / 2, size = deep * lanes; // rows and elements of one of two panels
    T* panels = reinterpret_cast<T*>(t.panel);
    const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
    auto fetch = [&](int e, T* panel) {
        if (lane < width) {
#pragma unroll 2
            for (int i = warp; i < min(deep, to - e); i += warps) async_copy(panel + i * lanes + lane, g + t.order[e + i] * inner + lane);
        }
        commit();
    };
    T sum = 0;
    if (warp == 0 && lane < width && !first) sum = out[lane];
    fetch(from, panels);
    for (int e = from, now = 0; e < to; e += deep, now ^= 1) {
        fetch(e + deep, panels + (now ^ 1) * size);
        arrived<1>();
        __syncthreads();
        if (warp == 0) {
            const T* panel = panels + now * size;
            const int n = min(deep, to - e);
#pragma unroll 8
            for (int i = 0; i < n; i++) sum += panel[i * lanes + lane];
        }
        __syncthreads();
    }
    arrived<0>();
    if (warp == 0 && lane < width) out[lane] = sum;
}

template <typename T>
__device__ void scatter(const T* __restrict__ g, const long long* __restrict__ indices, T* out, const int* __restrict__ starts, const int* __restrict__ list,
                        int parts, long long outer, long long rows, long long count, long long inner, int tileRows, int tileColumns, long long tileOuter) {
    __shared__ Tile t;
    const long long down = (rows + tileRows - 1) / tileRows, across = (inner + tileColumns - 1) / tileColumns;
    const long long c0 = blockIdx.x % across * tileColumns, rest = blockIdx.x / across;
    const long long v0 = rest % down * tileRows, o0 = rest / down * tileOuter;
    const int height = (int)min((long long)tileRows, rows - v0), width = (int)min((long long)tileColumns, inner - c0);
    const long long o1 = min(o0 + tileOuter, outer);
    long long at = 0, end = count;
    if (parts > 0) {
        const long long h = rest % down;
        at = starts[h * parts], end = starts[(h + 1) * parts];
    } else {
        list = nullptr;
    }
    bool first = true;
    do {
        const int n = collect(t, indices, list, end, v0, height, at);
        __syncthreads();
        sort(t, n, height);
        for (long long o = o0; o < o1; o++) {
            const T* from = g + (o * count * inner + c0);
            T* to = out + ((o * rows + v0) * inner + c0);
            constexpr int W = 16 / sizeof(T);
            if (inner % W == 0) {
                light<T, W>(t, from, to, height, width, inner, first);
            } else {
                light<T, 1>(t, from, to, height, width, inner, first);
            }
            for (int i = 0; i < t.heavies; i++) {
                const int r = t.heavy[i];
                heavy(t, from, to + r * inner, t.start[r], t.start[r + 1], width, inner, first);
            }
        }
        first = false;
        __syncthreads(); // the next turn's list is written over this one
    } while (at < end);
}

#define SCATTER(name, T)                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(threads, 4)                                                                                    \
        name(const T* g, const long long* indices, T* out, const int* starts, const int* list, int parts, long long outer, long long rows,      \
             long long count, long long inner, int tileRows, int tileColumns, long long tileOuter) {                                            \
        scatter(g, indices, out, starts, list, parts, outer, rows, count, inner, tileRows, tileColumns, tileOuter);                             \
    }

SCATTER(scatter_f32, float)
SCATTER(scatter_f64, double)
