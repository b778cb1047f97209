// Window sums of many elements, by van Herk's method: a block walks along a row, and holds what windows take from behind.
#pragma once
#include "windowsum_rows.cuh"

// The outputs of a thread, side by side in a row: an odd number, so that threads side by side meet no bank of shared memory
// twice.
template <typename T> constexpr int segment_items = sizeof(T) == 4 ? 15 : 9;
constexpr int segment_warps = 8;  // of a block, at most
constexpr int segments_held = 16; // of a window, at most

// Segments describes how rows are cut. A window is q segments of `least` places each, `longer` of which have one place more. The q-th segment
// after another one begins w places later, and is as long. A block makes the outputs of `run` segments in turn; a row has `runs` such blocks.
struct Segments {
    int q, least, longer, run, runs;
};

// Stretch copies positions of a row between global and shared memory: `count` of them, from `at` on.
template <typename T> struct Stretch {
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

    // store copies outputs from shared to global memory, in whole vectors except at the ends. x and `to` have the same offset from a
    // vector boundary, lead elements.
    __device__ static __forceinline__ void store(T* to, int lead, const T* x, int count) {
        const int head = min(-lead & (W - 1), max(count, 0)), vectors = (count - head) / W, tail = head + vectors * W, t = threadIdx.x;
        if (t < head) to[t] = x[t];
        if (tail + t < count) to[tail + t] = x[tail + t];
        for (int v = t; v < vectors; v += blockDim.x) reinterpret_cast<Vector*>(to + head)[v] = reinterpret_cast<const Vector*>(x + head)[v];
    }
};

// all_lanes returns the sum of x over the lanes, in all of them.
__device__ __forceinline__ double all_lanes(double x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// write_segment writes the outputs of a segment of `count` places from `at` on. from: the sums of the thread's elements, each with those
// after it; middle: what lies between these and right, the thread's elements of the segment a window further. The outputs leave through
// left, the segment's elements, which all threads have taken.
template <typename T>
__device__ __forceinline__ void write_segment(const Row<T>& g, i64 row, i64 at, int count, double (&from)[segment_items<T>], double middle, T* left, const T* right) {
    constexpr int K = segment_items<T>;
    const i64 to = row * g.n_out + at;
    const int lead = Stretch<T>::shift(to);
    T* const y = left + lead + threadIdx.x * K;
#pragma unroll
    for (int k = 0; k < K; k += K / 3) { // some at a time: no element is read beyond a store, which it might be for all that is known
#pragma unroll
        for (int m = k; m < k + K / 3; m++) {
            from[m] += middle;
            middle += (double)right[m];
        }
#pragma unroll
        for (int m = k; m < k + K / 3; m++) y[m] = (T)from[m];
    }
    __syncthreads();
    Stretch<T>::store(g.out + to, lead, left + lead, (int)min((i64)count, g.n_out - at));
}

// suffix_sums makes of a thread's elements, from place x on, the sums of each with those after it.
template <typename T> __device__ __forceinline__ void suffix_sums(const T* x, double (&from)[segment_items<T>]) {
    constexpr int K = segment_items<T>;
#pragma unroll
    for (int k = 0; k < K; k++) from[k] = (double)x[k];
#pragma unroll
    for (int k = K - 2; k >= 0; k--) from[k] += from[k + 1];
}

// total returns the sum of a thread's elements, from place x on.
template <typename T> __device__ __forceinline__ double total(const T* x) {
    double even = 0, odd = 0;
#pragma unroll
    for (int k = 0; k < segment_items<T>; k++) (k % 2 ? odd : even) += (double)x[k];
    return even + odd;
}

// scan_warp takes each lane's sums and returns those of later lanes in after, of earlier ones in before. The warp's are left_warp and
// right_warp then.
__device__ __forceinline__ void scan_warp(double& after, double& before, double& left_warp, double& right_warp) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const double a = __shfl_down_sync(0xffffffffu, after, d), b = __shfl_up_sync(0xffffffffu, before, d);
        add_if(lane + d < 32, after, a);
        add_if(lane >= d, before, b);
    }
    if (lane == 0) left_warp = after;
    if (lane == 31) right_warp = before;
    after = __shfl_down_sync(0xffffffffu, after, 1);
    before = __shfl_up_sync(0xffffffffu, before, 1);
    if (lane == 31) after = 0;
    if (lane == 0) before = 0;
}

// The window that begins at place i of a segment is the segment's elements from i on, the q - 1 segments after it, and the next
// one's elements before i. Shared memory holds the last q + 2 segments, including the one in flight. Each starts at a vector boundary
// and is padded with zeros to the number of elements that the threads read.
template <typename T> __device__ __forceinline__ void segments(const Row<T>& g, const Segments& s) {
    constexpr int K = segment_items<T>, W = Vec<T>::width;
    __shared__ double warps[2][segment_warps], totals[segments_held];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, warp_count = blockDim.x / 32, places = blockDim.x * K, size = (places + 2 * W - 2) / W * W;
    T* const shared = reinterpret_cast<T*>(shared_memory);
    const i64 row = blockIdx.x / s.runs, first = (i64)(blockIdx.x % s.runs) * s.run;
    const auto count = [&](int i) { return s.least + (i < s.longer); };  // of the places of a window's segment i
    const auto fetch = [&](int slot, i64 at, int i) { Stretch<T>::fetch(g, row, at, count(i), places, shared + slot * size); };
    int i = (int)(first % s.q), slot = 0;  // of segment n
    i64 at = first / s.q * g.w + (i64)i * s.least + min(i, s.longer);
    fetch(0, at, i);
    commit();
    if (t < segment_warps) warps[1][t] = 0; // those that there are not
#pragma unroll 1
    for (int n = 0;; n++) {
        const int ahead = i + 1 < s.q ? i + 1 : 0, slots = s.q + 2, coming = slot + 1 < slots ? slot + 1 : 0, behind = coming + 1 < slots ? coming + 1 : 0;
        const i64 end = at + count(i);
        const bool last = n + 1 == s.q + s.run || end - g.w >= g.n_out;
        if (!last) fetch(coming, end, ahead);
        commit();
        arrived<1>();
        __syncthreads();

        const T* const right = shared + slot * size + Stretch<T>::shift(row * g.n_in + at + g.off) + t * K;
        T* const left = shared + behind * size;
        double from[K];
        suffix_sums(left + Stretch<T>::shift(row * g.n_in + at - g.w + g.off) + t * K, from); // undefined values if n < q, when there are no outputs yet

        double after = from[0], before = total(right);
        scan_warp(after, before, warps[0][warp], warps[1][warp]);
        __syncthreads();
        if (t == 0) {
            double sum = 0;
#pragma unroll
            for (int i = 0; i < segment_warps; i++) sum += warps[1][i];
            totals[n & segments_held - 1] = sum;
        }
        if (n >= s.q) {
            // a lane loads the sum of a later warp, of an earlier warp, or of a previous segment, lane - 15 before this segment
            double middle = 0;
            if (lane < 8 ? lane > warp && lane < warp_count : lane < 16 && lane - 8 < warp) middle = warps[lane / 8][lane % 8];
            if (lane >= 16 && lane - 16 < s.q - 1) middle = totals[n - 1 - (lane - 16) & segments_held - 1];
            middle = all_lanes(middle) + after + before;
            write_segment(g, row, at - g.w, count(i), from, middle, left, right);
        }
        if (last) return;
        __syncthreads();
        i = ahead, slot = coming, at = end;
    }
}
