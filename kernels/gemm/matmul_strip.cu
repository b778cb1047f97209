// C = op(A) op(B) of few rows, batched, where the elements of a row of op(B) lie side by side: mostly B is read, once.
//
//	y[r][j] = sum over l of v[r][l] * x[l][j],  r in [0, R), j in [0, n), l in [0, k)
//
// A thread computes C columns, a block's width apart from one another, so that a warp reads 128 bytes that lie side by
// side wherever rows begin. The block copies v to shared memory in K slices of STEP elements. Sums are by FMA in
// the order of the terms; k is cut into splits where there are few columns, which matmul_vector.cu's combine adds up. An
// epilogue is left to it too.
#include "follow.cuh"
#include "vector.cuh"
typedef long long i64;

template <typename T, int R, int C, int UNROLL>
__device__ __forceinline__ void strip(const T* __restrict__ v, const T* __restrict__ x, T* __restrict__ y, i64 rows, i64 n, i64 k, i64 rowV, i64 termV, i64 strideV, i64 rowY,
                                      i64 colY, i64 batch, i64 chunk) {
    constexpr int THREADS = 128, W = Vec<T>::width, STEP = 64;
    __shared__ __align__(16) T factors[STEP][R];
    const unsigned strips = (unsigned)((n + THREADS * C - 1) / (THREADS * C)), all = strips * (unsigned)batch;
    const unsigned split = blockIdx.x / all, id = blockIdx.x - split * all, matrix = id / strips;
    const i64 j0 = (i64)(id - matrix * strips) * (THREADS * C) + threadIdx.x, k0 = split * chunk;
    const int terms = (int)min(k - k0, chunk);
    follow();
    v += matrix * strideV + k0 * termV;
    x += matrix * k * n + k0 * n + j0;
    T sum[R][C];
#pragma unroll
    for (int i = 0; i < R * C; i++) sum[i / C][i % C] = 0;
    bool in[C];
#pragma unroll
    for (int e = 0; e < C; e++) in[e] = j0 + e * THREADS < n;
    const auto multiply = [&](const T(&f)[C], int l) {
        Pack<T> g[R / W];
#pragma unroll
        for (int r = 0; r < R / W; r++) g[r].v = *reinterpret_cast<const typename Vec<T>::type*>(&factors[l][r * W]);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int e = 0; e < C; e++) sum[r][e] += g[r / W].s[r % W] * f[e];
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
            T f[UNROLL][C];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int e = 0; e < C; e++) f[u][e] = in[e] ? x[u * n + e * THREADS] : T(0);
#pragma unroll
            for (int u = 0; u < UNROLL; u++) multiply(f[u], l + u);
            x += UNROLL * n;
        }
#pragma unroll 1
        for (; l < step; l++, x += n) {
            T f[C];
#pragma unroll
            for (int e = 0; e < C; e++) f[e] = in[e] ? x[e * THREADS] : T(0);
            multiply(f, l);
        }
    }
    y += (split * batch + matrix) * rows * n;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int e = 0; e < C; e++) {
            const i64 j = j0 + e * THREADS;
            if (r < rows && j < n) y[r * rowY + j * colY] = sum[r][e] + T(0); // as combine makes of one copy: no -0
        }
    admit();
}

#define STRIP(T, suffix, R, C, UNROLL, BLOCKS, ...)                                                                                                \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS) matmul_strip##R##_##suffix(                                                           \
        const T* a, const T* b, T* c, i64 rows, i64 n, i64 k, i64 rowV, i64 termV, i64 strideV, i64 rowY, i64 colY, i64 batch, i64 chunk) {          \
        __VA_ARGS__(strip<T, R, C, UNROLL>(a, b, c, rows, n, k, rowV, termV, strideV, rowY, colY, batch, chunk);)                                   \
    }
// Other devices take tiles: some entry points are empty there.
#define EVERYWHERE(...) __VA_ARGS__
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#else
#define ON_HOPPER(...)
#endif
STRIP(float, f32, 4, 4, 4, 8, EVERYWHERE)
STRIP(float, f32, 8, 4, 4, 6, EVERYWHERE)
STRIP(float, f32, 16, 4, 8, 4, ON_HOPPER)
STRIP(double, f64, 4, 2, 8, 6, ON_HOPPER)
STRIP(double, f64, 8, 2, 8, 5, ON_HOPPER)
