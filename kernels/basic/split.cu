// Splits many indices among bands of rows, for scatter.cu. Each warp processes one part of the indices:
//
//   split_count  counts the part's indices in each band.
//   split_scan   computes prefix sums of the counts, in order of bands, then of warps.
//   split_place  stores each k and its row in order, at the offset of its band and warp.
#include "scatter.cuh"

constexpr int mostBands = 128, splitWarps = 4; // as in scatter.go
constexpr int splitAhead = 8;                  // indices that a lane loads at once

// band is the number of the band of rows that an index belongs to, -1 for an index outside of the axis.
__device__ int band(long long index, long long rows, int bandRows) { return index >= 0 && index < rows ? (int)((unsigned)index / (unsigned)bandRows) : -1; }

// counts[b * parts + part] = how many of the part's indices are of band b.
extern "C" __global__ void split_count(const long long* indices, int* counts, Heavy* heavy, long long count, long long rows, int bandRows, int bands,
                                       int parts, int each) {
    __shared__ int mine[splitWarps][mostBands];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = blockIdx.x * splitWarps + warp;
    if (blockIdx.x == 0 && threadIdx.x == 0) heavy->rows = 0;
    if (part >= parts) return;
    for (int b = lane; b < bands; b += 32) mine[warp][b] = 0;
    __syncwarp();
    const long long end = min((part + 1ll) * each, count);
    for (long long k = (long long)part * each + lane; k < end; k += 32 * splitAhead) {
        int b[splitAhead];
#pragma unroll
        for (int j = 0; j < splitAhead; j++) b[j] = k + 32 * j < end ? band(indices[k + 32 * j], rows, bandRows) : -1;
#pragma unroll
        for (int j = 0; j < splitAhead; j++) {
            if (b[j] >= 0) atomicAdd(&mine[warp][b[j]], 1);
        }
    }
    __syncwarp();
    for (int b = lane; b < bands; b += 32) counts[(long long)b * parts + part] = mine[warp][b];
}

// list = for each band, one behind the other, its k in rising order, each with its row in the band; starts[i] is the
// sum of the counts before the i-th.
extern "C" __global__ void split_place(const long long* indices, const int* starts, int2* list, long long count, long long rows, int bandRows, int bands,
                                       int parts, int each) {
    __shared__ int next[splitWarps][mostBands];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = blockIdx.x * splitWarps + warp;
    if (part >= parts) return;
    for (int b = lane; b < bands; b += 32) next[warp][b] = starts[(long long)b * parts + part];
    __syncwarp();
    const long long end = min((part + 1ll) * each, count);
    for (long long first = (long long)part * each + lane; first - lane < end; first += 32 * splitAhead) {
        long long index[splitAhead];
#pragma unroll
        for (int j = 0; j < splitAhead; j++) index[j] = first + 32 * j < end ? indices[first + 32 * j] : -1;
#pragma unroll
        for (int j = 0; j < splitAhead; j++) {
            const int b = band(index[j], rows, bandRows);
            const unsigned same = __match_any_sync(~0u, b), ahead = same & ((1u << lane) - 1);
            const int from = b < 0 ? 0 : next[warp][b];
            __syncwarp();
            if (b >= 0) {
                list[from + __popc(ahead)] = make_int2((int)(first + 32 * j), (int)(index[j] - (long long)b * bandRows));
                if (ahead == 0) next[warp][b] = from + __popc(same);
            }
            __syncwarp();
        }
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
