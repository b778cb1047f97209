// Histograms of more bins than fit in shared memory, in two launches. The first launch sorts the elements of each tile by range of bins;
// the second counts each range separately. Each element is read once, and two bytes of it are written and read again. The time does not
// depend on the distribution of the data: no two threads share a counter during the sort, and a range gets blocks in proportion to its elements.
#pragma once
#include "histogram.cuh"
#include "windows.cuh" // Divide

typedef unsigned short u16;

constexpr int sort_threads = 256, sort_items = 32, sort_tile = sort_threads * sort_items;
constexpr int sort_most = 64; // ranges, at most

// Ranges is how bins are cut in ranges, and where the sort puts what it finds.
struct Ranges {
    int count;
    Divide width;   // bins of a range, the last one's but for fewer
    u16* sorted;    // bins within their range, tile after tile
    u16* begins;    // [count + 1][tiles]: where ranges begin in their tiles
    count_t* sizes; // of the ranges, 0 before the sort
    int tiles;
};

// Block b sorts tile b. Every thread counts its own elements of each range; the sums of these, range after range and
// thread after thread, are the places of the threads' elements. Shared: [count][threads] numbers of 16 bits, then a tile.
template <typename T> __device__ __forceinline__ void histogram_sort(const T* x, long long n, const Range& r, const Ranges& to) {
    constexpr int W = 16 / sizeof(T), FLIGHT = 4;
    __shared__ unsigned sizes[sort_most], begins[sort_most + 1];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    u16* const counts = reinterpret_cast<u16*>(table);
    u16* const tile = counts + to.count * sort_threads;
    x += (long long)blockIdx.x * sort_tile;
    const int own = (int)min(n - (long long)blockIdx.x * sort_tile, (long long)sort_tile);
    clear_table(to.count * sort_threads / 2);

    // of each element its bin within the range, its place among the thread's of that range, and the range
    constexpr unsigned none = 0xffffffffu;
    unsigned kept[sort_items];
    const auto keep = [&](unsigned& to_keep, T e, bool there) {
        const int k = there ? r.bin((double)e) : -1;
        to_keep = none;
        if (k < 0) return;
        const unsigned range = to.width(k), place = counts[range * sort_threads + t]++;
        to_keep = range << 22 | place << 16 | (k - range * to.width.d);
    };
#pragma unroll
    for (int f = 0; f < sort_items / W; f += FLIGHT) {
        uint4 v[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) {
            const int at = ((f + i) * sort_threads + t) * W;
            if (at + W <= own) v[i] = __ldg(reinterpret_cast<const uint4*>(x + at));
        }
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) {
            const int at = ((f + i) * sort_threads + t) * W;
            union { uint4 v; T s[W]; } e;
            e.v = v[i];
#pragma unroll
            for (int k = 0; k < W; k++) {
                if (at + W > own && at + k < own) e.s[k] = x[at + k];
                keep(kept[(f + i) * W + k], e.s[k], at + k < own);
            }
        }
    }
    __syncthreads();

    for (int range = warp; range < to.count; range += sort_threads / 32) { // sums up to each thread
        uint4* const row = reinterpret_cast<uint4*>(counts + range * sort_threads) + lane;
        union { uint4 v; u16 s[8]; } c;
        c.v = *row;
        unsigned sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += c.s[i];
        unsigned before = sum;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const unsigned other = __shfl_up_sync(0xffffffffu, before, d);
            if (lane >= d) before += other;
        }
        if (lane == 31) sizes[range] = before;
        before -= sum;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned own_count = c.s[i];
            c.s[i] = (u16)before;
            before += own_count;
        }
        *row = c.v;
    }
    __syncthreads();
    if (t <= to.count) {
        unsigned begin = 0;
        for (int i = 0; i < t; i++) begin += sizes[i];
        begins[t] = begin;
        to.begins[(long long)t * to.tiles + blockIdx.x] = (u16)begin;
        if (t < to.count && sizes[t] > 0) atomicAdd(&to.sizes[t], (count_t)sizes[t]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < sort_items; i++) {
        if (kept[i] == none) continue;
        const unsigned range = kept[i] >> 22;
        tile[begins[range] + counts[range * sort_threads + t] + (kept[i] >> 16 & 63)] = (u16)kept[i];
    }
    __syncthreads();
    uint4* const out = reinterpret_cast<uint4*>(to.sorted + (long long)blockIdx.x * sort_tile);
    for (int v = t; v * 8 < begins[to.count]; v += sort_threads) out[v] = reinterpret_cast<const uint4*>(tile)[v];
}

// A range has one block and its share of the others, by its size. The warps of its blocks take the tiles in turn.
__device__ __forceinline__ void histogram_count(count_t* counts, int bins, const Ranges& from) {
    count_t all = 0;
    for (int i = 0; i < from.count; i++) all += from.sizes[i];
    int range = 0, block = blockIdx.x, blocks = 0;
    for (; range < from.count; range++) {
        const count_t size = from.sizes[range];
        blocks = size > 0 ? 1 + (int)(size * (gridDim.x - from.count) / all) : 0;
        if (block < blocks) break;
        block -= blocks;
    }
    if (range == from.count) return;
    const int first = range * from.width.d, own = min(from.width.d, bins - first);
    clear_table(own);

    const int warps = blockDim.x / 32, lane = threadIdx.x % 32, step = blocks * warps;
    const u16* const begins = from.begins + (long long)range * from.tiles;
    for (int tile = block * warps + threadIdx.x / 32; tile < from.tiles; tile += 32 * step) {
        int begin = 0, end = 0; // lane l: of the warp's tile l from here on
        const int mine = tile + lane * step;
        if (lane < (from.tiles - tile + step - 1) / step) begin = begins[mine], end = begins[mine + from.tiles];
#pragma unroll 1
        for (int l = 0; l < 32 && tile + l * step < from.tiles; l++) {
            const int lo = __shfl_sync(0xffffffffu, begin, l), hi = __shfl_sync(0xffffffffu, end, l);
            const u16* const x = from.sorted + (long long)(tile + l * step) * sort_tile;
            constexpr int FLIGHT = 4;
#pragma unroll 1
            for (int at = (lo & ~3) + lane * 4; at - lane * 4 < hi; at += FLIGHT * 128) {
                uint2 v[FLIGHT];
#pragma unroll
                for (int f = 0; f < FLIGHT; f++)
                    if (at + f * 128 < hi) v[f] = *reinterpret_cast<const uint2*>(x + at + f * 128);
#pragma unroll
                for (int f = 0; f < FLIGHT; f++) {
                    union { uint2 v; u16 s[4]; } e;
                    e.v = v[f];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (at + f * 128 + i >= lo && at + f * 128 + i < hi) atomicAdd(&table[e.s[i]], 1u);
                }
            }
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < own; k += blockDim.x)
        if (table[k] > 0) atomicAdd(&counts[first + k], (count_t)table[k]);
}
