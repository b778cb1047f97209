// Window sums of many elements, by van Herk's method. Cut a row's positions in segments of w: the window that begins at
// place i of a segment is the segment's elements from i on, and the next segment's elements before i.
#pragma once
#include "windowsum_rows.cuh"

// The outputs of a thread, side by side in a row: an odd number, so that threads side by side meet no bank of shared memory
// twice, and no more than the registers hold.
template <typename T> constexpr int segment_items = sizeof(T) == 4 ? 15 : 7;
constexpr int segment_warps = 16; // of a block, at most

// Segments is how rows are shared among teams of blocks. A team walks along a run of segments: each of its blocks takes the
// same `share` places of every segment, keeps their sums from one segment to the next, and tells the others their total.
struct Segments {
    int team;   // blocks of a team
    int share;  // places of a block, all in the last block but one
    int run;    // segments of outputs in a run
    int runs;   // of a row
};

// A total in memory that other blocks wait for: 64 bits in two halves, each with the number of its turn beside it.
// Turns are counted from 1; there are eight places for each block, so that nobody writes where another one may still read.
struct Totals {
    ulonglong2* places;  // of the team: [8][blocks]
    int blocks;

    __device__ void put(int block, unsigned turn, double total) const {
        const unsigned long long bits = (unsigned long long)__double_as_longlong(total);
        ulonglong2* const to = places + (turn % 8 * blocks + block);
        const unsigned long long lo = (unsigned long long)turn << 32 | (bits & 0xffffffffu), hi = (unsigned long long)turn << 32 | bits >> 32;
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&to->x), "l"(lo) : "memory");
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&to->y), "l"(hi) : "memory");
    }
    __device__ double wait(int block, unsigned turn) const {
        const ulonglong2* const from = places + (turn % 8 * blocks + block);
        unsigned long long lo, hi;
        do {
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(lo) : "l"(&from->x) : "memory");
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(hi) : "l"(&from->y) : "memory");
        } while ((unsigned)(lo >> 32) != turn || (unsigned)(hi >> 32) != turn);
        return __longlong_as_double((long long)(hi << 32 | (lo & 0xffffffffu)));
    }
};

// Share is the places from `at` on of a row's positions, of which a block has `count`.
template <typename T> struct Share {
    using Vector = typename Vec<T>::type;
    static constexpr int W = Vec<T>::width;

    // shift returns how far behind a vector's border element i of an operand lies.
    __device__ static __forceinline__ int shift(i64 i) { return (int)(i & (W - 1)); }

    // fetch starts the copies of elements to shared memory, zeros outside the row and from count to places; `to` begins at a
    // vector's border.
    __device__ static __forceinline__ void fetch(const Row<T>& g, i64 row, i64 at, int count, int places, T* to) {
        const i64 first = at + g.off, base = row * g.n_in + first;
        const int lo = (int)min(max(-first, 0ll), (i64)count), hi = (int)max(min(g.n_in - first, (i64)count), (i64)lo), t = threadIdx.x;
        to += shift(base);
        for (int i = t; i < lo; i += blockDim.x) to[i] = T(0);
        for (int i = hi + t; i < places; i += blockDim.x) to[i] = T(0);
        const T* const from = g.in + base;
        const int head = min(lo + (-shift(base + lo) & (W - 1)), hi), vectors = (hi - head) / W, tail = head + vectors * W;
        if (lo + t < head) async_copy(to + lo + t, from + lo + t);
        if (tail + t < hi) async_copy(to + tail + t, from + tail + t);
        for (int v = t; v < vectors; v += blockDim.x) async_copy(reinterpret_cast<Vector*>(to + head) + v, reinterpret_cast<const Vector*>(from + head) + v);
    }

    // store writes outputs from shared memory, whole vectors wherever there are; x lies as far behind a vector's border as
    // they do in memory, lead elements.
    __device__ static __forceinline__ void store(T* to, int lead, const T* x, int count) {
        const int head = min(-lead & (W - 1), max(count, 0)), vectors = (count - head) / W, tail = head + vectors * W, t = threadIdx.x;
        if (t < head) to[t] = x[t];
        if (tail + t < count) to[tail + t] = x[tail + t];
        for (int v = t; v < vectors; v += blockDim.x) reinterpret_cast<Vector*>(to + head)[v] = reinterpret_cast<const Vector*>(x + head)[v];
    }
};

// grid_meet waits until all blocks of a cooperative launch have called it, at the barrier that grid_ticket.cuh explains.
__device__ inline void grid_meet() {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned lo, hi, before, now;
        asm("mov.u32 %0, %%envreg1;" : "=r"(hi));
        asm("mov.u32 %0, %%envreg2;" : "=r"(lo));
        unsigned* const word = reinterpret_cast<unsigned*>((unsigned long long)hi << 32 | lo) + 1;
        __threadfence();
        before = atomicAdd(word, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1);
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        while ((before ^ now) >> 31 == 0);
    }
    __syncthreads();
}

// Shared: two shares, each from a vector's border on and with zeros for the threads' remaining places.
template <typename T> __device__ __forceinline__ void segments(const Row<T>& g, const Segments& s, ulonglong2* places) {
    constexpr int K = segment_items<T>, W = Vec<T>::width;
    __shared__ double warps[2][segment_warps], blocks[segment_warps];  // totals of warps in this segment and the one before; of the blocks between
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, warp_count = blockDim.x / 32;
    const int block = blockIdx.x % s.team, teams = gridDim.x / s.team;
    const i64 place = (i64)block * s.share;
    const int share = (int)min((i64)s.share, g.w - place), places_kept = blockDim.x * K, size = (places_kept + 2 * W - 2) / W * W;
    T* const shared = reinterpret_cast<T*>(shared_memory);
    const Totals totals{places + (i64)(blockIdx.x / s.team) * s.team * 8, s.team};
    if (t < segment_warps) blocks[t] = 0;
    if (s.team > 1) {
        if (t < 8) totals.put(block, 8 + t, 0);
        grid_meet();
    }
    unsigned turn = 15;  // of the totals put
    const i64 segments_out = (g.n_out + g.w - 1) / g.w;
#pragma unroll 1
    for (i64 unit = blockIdx.x / s.team; unit < g.rows * s.runs; unit += teams) {
        const i64 row = unit / s.runs, begin = unit % s.runs * s.run;
        const int end = (int)min((i64)s.run, segments_out - begin);  // outputs of segment n are written in turn n + 1
        const i64 start = begin * g.w + place;                       // of the elements of turn 0
        const auto fetch = [&](int n) {
            if (n <= end) Share<T>::fetch(g, row, start + n * g.w, share, places_kept, shared + (n & 1) * size);
            commit();
        };
        fetch(0);
        fetch(1);
        double sum[K], after = 0;  // of the thread's elements of the segment before, from each one on; of those of later lanes
#pragma unroll
        for (int k = 0; k < K; k++) sum[k] = 0;
#pragma unroll 1
        for (int n = 0; n <= end; n++) {
            T* const tile = shared + (n & 1) * size;
            const i64 at = start + n * g.w;
            turn++;
            arrived<1>();
            __syncthreads();
            const T* const x = tile + Share<T>::shift(row * g.n_in + at + g.off) + t * K;
            T e[K];
#pragma unroll
            for (int k = 0; k < K; k++) e[k] = x[k];
            double total = 0, other = 0;
#pragma unroll
            for (int k = 0; k < K; k += 2) {
                total += (double)e[k];
                if (k + 1 < K) other += (double)e[k + 1];
            }
            total += other;
            double to = total, from = total;  // sums up to this lane, and from it on
#pragma unroll
            for (int d = 1; d < 32; d <<= 1) {
                const double a = __shfl_up_sync(0xffffffffu, to, d), b = __shfl_down_sync(0xffffffffu, from, d);
                add_if(lane >= d, to, a);
                add_if(lane + d < 32, from, b);
            }
            double* const now = warps[n & 1], * const last = warps[~n & 1];
            if (lane == 31) now[warp] = to;
            to = __shfl_up_sync(0xffffffffu, to, 1);
            from = __shfl_down_sync(0xffffffffu, from, 1);
            if (lane == 0) to = 0;
            if (lane == 31) from = 0;
            __syncthreads();
            if (s.team > 1) {
                if (warp == 0) {
                    double all = lane < warp_count ? now[lane] : 0;
#pragma unroll
                    for (int d = 16; d > 0; d >>= 1) all += __shfl_down_sync(0xffffffffu, all, d);
                    if (lane == 0) totals.put(block, turn, all);
                }
                if (n > 0) {
                    double between = 0;
                    for (int i = t; i < s.team; i += blockDim.x)
                        if (i != block) between += totals.wait(i, i < block ? turn : turn - 1);
#pragma unroll
                    for (int d = 16; d > 0; d >>= 1) between += __shfl_down_sync(0xffffffffu, between, d);
                    if (lane == 0) blocks[warp] = between;
                    __syncthreads();
                }
            }
            if (n > 0) {
                // half a warp has the warps between the two parts of the window, the other one the blocks
                double middle = 0;
                if (lane % 16 < warp_count && lane != warp) middle = lane >= 16 ? blocks[lane - 16] : lane > warp ? last[lane] : now[lane];
#pragma unroll
                for (int d = 16; d > 0; d >>= 1) middle += __shfl_xor_sync(0xffffffffu, middle, d);
                middle += after + to;
                const i64 first = row * g.n_out + at - g.w;
                const int lead = Share<T>::shift(first);
                T* const out = tile + lead + t * K;
#pragma unroll
                for (int k = 0; k < K; k++) {
                    out[k] = (T)(sum[k] + middle);
                    sum[k] = (double)e[k];
                    middle += sum[k];
                }
                __syncthreads();
                Share<T>::store(g.out + first, lead, tile + lead, (int)min((i64)share, g.n_out - (at - g.w)));
            } else {
#pragma unroll
                for (int k = 0; k < K; k++) sum[k] = (double)e[k];
            }
#pragma unroll
            for (int k = K - 2; k >= 0; k--) sum[k] += sum[k + 1];
            after = from;
            __syncthreads();
            fetch(n + 2);
        }
        arrived<0>();
        __syncthreads();
    }
}
