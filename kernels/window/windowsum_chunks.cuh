// Window sums of more elements, in two launches around a window sum of the sums of
// chunks.
#pragma once
#include "windowsum_stream.cuh" // K

// Block b: sums[b] = sum of the 16 blockDim positions of chunk b, heads[b] =
// sum of its first w % (16 blockDim).
template <typename T> __device__ __forceinline__ void chunks(const Row<T>& g, double* sums, double* heads) {
    __shared__ double warps[2][32];
    const int chunk = blockDim.x * K, rest = (int)(g.w % chunk);
    double lo = 0, hi = 0;
    const auto put = [&](int j, T e) {
        if (j < rest) lo += (double)e;
        else hi += (double)e;
    };
    constexpr int W = Vec<T>::width, FLIGHT = K / W;
    const i64 start = (i64)blockIdx.x * chunk;
    const Span s(start, chunk, g.n_out + g.w - 1, g.rows);
    const i64 first = s.at + g.off;
    if (s.row < g.rows && s.at + chunk <= s.length && first >= 0 && first + chunk + W <= g.n_in) {
        // whole vectors, those that hold the first and the last elements among them
        const T* src = g.in + s.row * g.n_in + first;
        const int shift = (int)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
        const typename Vec<T>::type* from = reinterpret_cast<const typename Vec<T>::type*>(src - shift) + threadIdx.x;
        Pack<T> x[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) x[f].v = __ldg(from + f * blockDim.x);
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const int j = (int)(f * blockDim.x + threadIdx.x) * W - shift;
            double sum = 0;
            if (j >= rest || j >= 0 && j + W <= rest) {
#pragma unroll
                for (int i = 0; i < W; i++) sum += (double)x[f].s[i];
                (j < rest ? lo : hi) += sum;
            } else {
#pragma unroll
                for (int i = 0; i < W; i++)
                    if (j + i >= 0) put(j + i, x[f].s[i]);
            }
        }
        if (threadIdx.x < shift) put(chunk - shift + threadIdx.x, src[chunk - shift + threadIdx.x]);
    } else {
        read(g, start, chunk, put);
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        lo += __shfl_down_sync(0xffffffffu, lo, d);
        hi += __shfl_down_sync(0xffffffffu, hi, d);
    }
    if (threadIdx.x % 32 == 0) {
        warps[0][threadIdx.x / 32] = lo;
        warps[1][threadIdx.x / 32] = hi;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < blockDim.x / 32; i++) {
        lo += warps[0][i];
        hi += warps[1][i];
    }
    heads[blockIdx.x] = lo;
    sums[blockIdx.x] = lo + hi;
}

// The outputs of chunk b, the last chunk first: some elements that were read last are still in the level-2 cache. middles[b] is the sum of chunks b+1 ..
// b+q-1, q = w / (16 blockDim) >= 2. Shared: 2 (blockDim + 2) chunks.
template <typename T>
__device__ __forceinline__ void join(const Row<T>& g, const double* middles, const double* heads) {
    __shared__ double warps[2][32];
    const int b = gridDim.x - 1 - blockIdx.x, t = threadIdx.x, lane = t % 32, warp = t / 32, chunk = blockDim.x * K;
    const Chunks<T, K> x{reinterpret_cast<T*>(shared_memory)};
    const Chunks<T, K> y{x.x + (blockDim.x + 2) * x.size};
    const i64 start = (i64)b * chunk;
    const int shift = x.fetch(g, start, chunk), shifty = y.fetch(g, start + g.w, chunk);
    commit();
    arrived<0>();
    __syncthreads();

    T e[K];
    double suffix[K], total = 0;
    x.take(shift + t * K, e);
#pragma unroll
    for (int k = 0; k < K; k++) suffix[k] = (double)e[k];
#pragma unroll
    for (int k = K - 2; k >= 0; k--) suffix[k] += suffix[k + 1];
    y.take(shifty + t * K, e);
#pragma unroll
    for (int k = 0; k < K; k++) total += (double)e[k];

    // after: own elements of later threads; before: right elements of earlier ones.
    double after = suffix[0], before = total;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const double a = __shfl_down_sync(0xffffffffu, after, d);
        const double c = __shfl_up_sync(0xffffffffu, before, d);
        if (lane + d < 32) after += a;
        if (lane >= d) before += c;
    }
    if (lane == 0) warps[0][warp] = after;
    if (lane == 31) warps[1][warp] = before;
    after = __shfl_down_sync(0xffffffffu, after, 1);
    before = __shfl_up_sync(0xffffffffu, before, 1);
    if (lane == 31) after = 0;
    if (lane == 0) before = 0;
    __syncthreads();
    for (int i = warp + 1; i < blockDim.x / 32; i++) after += warps[0][i];
    for (int i = warp - 1; i >= 0; i--) before += warps[1][i];

    double right = after + middles[b];
    if (g.w % chunk) right += heads[b + g.w / chunk];
    right += before;
#pragma unroll
    for (int k = 0; k < K; k++) {
        suffix[k] += right;
        right += (double)e[k];
    }
    // All threads have taken their elements of x before the barrier above.
    x.put(t, suffix);
    __syncthreads();
    x.store(g, start, chunk);
}
