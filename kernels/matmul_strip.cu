// C = op(A) op(B) of few rows, batched, where the elements of a row of op(B) lie side by side: mostly B is read, once.
//
//	y[r][j] = sum over l of v[r][l] * x[l][j],  r in [0, R), j in [0, n), l in [0, k)
//
// A thread computes W columns, a block's width apart from one another, so that a warp reads 128 bytes that lie side by
// side wherever rows begin. What a block needs of v comes to shared memory, STEP terms at a time. Sums are by FMA in
// the order of the terms; k is cut into splits where there are few columns, which matmul_vector.cu's combine adds up. An
// epilogue is left to it too.
#include "follow.cuh"
#include "vector.cuh"
typedef long long i64;

template <typename T, int R>
__device__ __forceinline__ void strip(const T* __restrict__ v, const T* __restrict__ x, T* __restrict__ y, i64 rows, i64 n, i64 k, i64 rowV, i64 termV, i64 strideV, i64 rowY,
                                      i64 colY, i64 batch, i64 chunk) {
    constexpr int THREADS = 128, W = 16 / sizeof(T), STEP = 64, UNROLL = 4;
    __shared__ __align__(16) T factors[STEP][R];
    const unsigned strips = (unsigned)((n + THREADS * W - 1) / (THREADS * W)), all = strips * (unsigned)batch;
    const unsigned split = blockIdx.x / all, id = blockIdx.x - split * all, matrix = id / strips;
    const i64 j0 = (i64)(id - matrix * strips) * (THREADS * W) + threadIdx.x, k0 = split * chunk;
    const int terms = (int)min(k - k0, chunk);
    follow();
    v += matrix * strideV + k0 * termV;
    x += matrix * k * n + k0 * n + j0;
    T sum[R][W];
#pragma unroll
    for (int i = 0; i < R * W; i++) sum[i / W][i % W] = 0;
    bool in[W];
#pragma unroll
    for (int e = 0; e < W; e++) in[e] = j0 + e * THREADS < n;
    const auto multiply = [&](const T(&f)[W], int l) {
        Pack<T> g[R / W];
#pragma unroll
        for (int r = 0; r < R / W; r++) g[r].v = *reinterpret_cast<const typename Vec<T>::type*>(&factors[l][r * W]);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int e = 0; e < W; e++) sum[r][e] += g[r / W].s[r % W] * f[e];
    };
#pragma unroll 1
    for (int from = 0; from < terms; from += STEP) {
        const int step = min(terms - from, STEP);
        __syncthreads();
        for (int i = threadIdx.x; i < STEP * R; i += THREADS) {
            const int l = i % STEP, r = i / STEP;
            factors[l][r] = l < step && r < rows ? v[r * rowV + (from + l) * termV] : T(0);
        }
        __syncthreads();
        int l = 0;
#pragma unroll 1
        for (; l + UNROLL <= step; l += UNROLL) {
            T f[UNROLL][W];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int e = 0; e < W; e++) f[u][e] = in[e] ? x[u * n + e * THREADS] : T(0);
#pragma unroll
            for (int u = 0; u < UNROLL; u++) multiply(f[u], l + u);
            x += UNROLL * n;
        }
#pragma unroll 1
        for (; l < step; l++, x += n) {
            T f[W];
#pragma unroll
            for (int e = 0; e < W; e++) f[e] = in[e] ? x[e * THREADS] : T(0);
            multiply(f, l);
        }
    }
    y += (split * batch + matrix) * rows * n;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int e = 0; e < W; e++) {
            const i64 j = j0 + e * THREADS;
            if (r < rows && j < n) y[r * rowY + j * colY] = sum[r][e] + T(0); // as combine makes of one copy: no -0
        }
    admit();
}

#define STRIP(R, BLOCKS)                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS) matmul_strip##R##_f32(                                                               \
        const float* a, const float* b, float* c, i64 rows, i64 n, i64 k, i64 rowV, i64 termV, i64 strideV, i64 rowY, i64 colY, i64 batch, i64 chunk) { \
        strip<float, R>(a, b, c, rows, n, k, rowV, termV, strideV, rowY, colY, batch, chunk);                                                      \
    }
STRIP(4, 8)
STRIP(8, 6)
