// C = op(A) op(B) of few terms, batched: mostly operands are read and C is written. Every element is summed by
// FMA in the order of its terms, as the unsliced tiles of matmul.cu do. No epilogue.
//
// C has long rows. A lane computes up to 32 times 16 bytes of C one below the other, in rows that begin at the
// same place within 16 bytes (every row, or every 2nd or 4th, which depends on n), so that it writes 16 bytes at a
// time whatever n is. All that it needs of B is in registers. Warps wait for nobody.
#include "follow.cuh"
#include "place.cuh"
typedef long long i64;

// outer: at most K terms. The rows of A of a warp lie in shared memory, one after the other, and a lane's
// columns of B in registers; missing terms are 0 times -0, which changes no sum.
template <typename T, int K>
__device__ __forceinline__ void outer(const T* __restrict__ a, const T* __restrict__ b, T* c, i64 m, i64 n, int k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, int most,
                                      int transA, int transB) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, ROWS = 32, WARPS = 8;
    __shared__ __align__(16) T factors[WARPS][ROWS * K];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned apart = n % W == 0 ? 1 : n % 2 == 0 ? W / 2 : W, groups = (unsigned)((m + apart * most - 1) / (apart * most));
    const unsigned strips = (unsigned)((n + (apart > 1 ? W - 1 : 0) + 32 * W - 1) / (32 * W));
    const unsigned id = blockIdx.x * WARPS + warp, lines = groups * apart, matrix = id / strips / lines;
    unsigned line = id / strips - matrix * lines, strip = id % strips;
    // What is read and written between two uses of a column of B may drive B out of the L2 cache. Then warps go down panels of strips: 376 x 12 x 466760 in float64 takes 0.80 of the time, and
    // products below 16 MB take 1.0 to 1.4 (H200).
    if ((most + k) * n * (i64)sizeof(T) > 16 << 20) {
        const unsigned at = line * strips + strip, strip0 = at / (lines * WARPS) * WARPS, width = min(strips - strip0, WARPS), inside = at - strip0 * lines;
        line = inside / width;
        strip = strip0 + inside - line * width;
    }
    const i64 row0 = (i64)(line / apart) * (apart * most) + line % apart;
    if (matrix >= batch || row0 >= m) return;
    const int rows = (int)min((m - row0 + apart - 1) / apart, (i64)most);
    const i64 nextRow = (transA ? 1 : lda) * apart, termA = transA ? lda : 1, termB = transB ? 1 : ldb, colB = transB ? ldb : 1;
    a += matrix * strideA + row0 * (transA ? 1 : lda);
    T* const f = factors[warp];
    if (transA) { // a row a lane
#pragma unroll
        for (int l = 0; l < K; l++) f[lane * K + l] = l < k && lane < rows ? a[l * termA + lane * nextRow] : T(0);
    } else {
#pragma unroll
        for (int i = lane; i < ROWS * K; i += 32) f[i] = i % K < k && i / K < rows ? a[i % K + i / K * nextRow] : T(0);
    }
    c += matrix * m * n + row0 * n;
    const i64 col = (i64)strip * (32 * W) + lane * W - (apart > 1 ? place(c) : 0); // of the first lane it may lie before the row
    b += matrix * strideB + col * colB;
    const bool whole = col >= 0 && col + W <= n, wide = whole && !transB && ldb % W == 0 && place(b) == 0;
    T y[K][W];
#pragma unroll
    for (int l = 0; l < K; l++) {
        if (wide && l < k) {
            Pack<T> v;
            v.v = *reinterpret_cast<const U*>(b + l * termB);
#pragma unroll
            for (int e = 0; e < W; e++) y[l][e] = v.s[e];
        } else {
#pragma unroll
            for (int e = 0; e < W; e++) y[l][e] = l < k && col + e >= 0 && col + e < n ? b[l * termB + e * colB] : T(-0.0);
        }
    }
    __syncwarp();
    T* q = c + col;
    const bool aligned = whole && place(q) == 0;
#pragma unroll 2
    for (int i = 0; i < rows; i++, q += apart * n) {
        Pack<T> x[K / W], sum;
#pragma unroll
        for (int l = 0; l < K / W; l++) x[l].v = *reinterpret_cast<const U*>(f + i * K + l * W);
#pragma unroll
        for (int e = 0; e < W; e++) {
            sum.s[e] = 0;
#pragma unroll
            for (int l = 0; l < K; l++) sum.s[e] += x[l / W].s[l % W] * y[l][e];
        }
        if (aligned) *reinterpret_cast<U*>(q) = sum.v;
        else {
#pragma unroll
            for (int e = 0; e < W; e++)
                if (col + e >= 0 && col + e < n) q[e] = sum.s[e];
        }
    }
}

// turn transposes matrices of n rows of at most 16 elements, a row a thread.
template <typename T> __device__ __forceinline__ void turn(const T* from, T* to, i64 n, int k) {
    constexpr int ROWS = 256;
    __shared__ T rows[ROWS * 17];
    const unsigned tiles = (unsigned)((n + ROWS - 1) / ROWS), matrix = blockIdx.x / tiles;
    const i64 row0 = (i64)(blockIdx.x - matrix * tiles) * ROWS;
    const int inside = (int)min(n - row0, (i64)ROWS), t = threadIdx.x, pad = k % 2 ? 0 : 1;
    from += (matrix * n + row0) * k;
    to += matrix * n * k + row0;
    for (int i = t; i < inside * k; i += ROWS) rows[i + i / k * pad] = from[i];
    __syncthreads();
    if (t < inside)
        for (int l = 0; l < k; l++) to[l * n + t] = rows[t * (k + pad) + l];
}

#define OUTER(T, suffix, K, BLOCKS)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) matmul_outer##K##_##suffix(                                               \
        const T* a, const T* b, T* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int rows, \
        int transA, int transB, int transC) {                                                                                           \
        follow();                                                                                                                       \
        outer<T, K>(a, b, c, m, n, (int)k, lda, ldb, strideA, strideB, batch, rows, transA, transB);                                    \
    }
#define KERNELS(T, suffix)                                                                                                             \
    OUTER(T, suffix, 4, 4)                                                                                                                      \
    OUTER(T, suffix, 8, 3)                                                                                                                      \
    OUTER(T, suffix, 16, 2)                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) matmul_turn_##suffix(const T* from, T* to, i64 n, i64 k) { follow(); turn(from, to, n, (int)k); }
KERNELS(float, f32)
KERNELS(double, f64)
