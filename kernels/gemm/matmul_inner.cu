// C = op(A) op(B) of few rows and columns and many terms, batched: mostly operands are read. float32 sums in float32, float64 in float64, by FMA. Another launch applies an epilogue.
//
// The `warps` warps of a tile of C, at most MT x NT elements of a matrix, have its terms in turns, a term a lane. A lane reads U terms of all rows and columns before it multiplies them.
// Lanes add their sums pairwise: each keeps one half of the elements and gives away the other, until it has one. Then the sums of warps are added in order.
#include "follow.cuh"
typedef long long i64;

template <typename T, int MT, int NT, int U>
__device__ __forceinline__ void inner(const T* __restrict__ a, const T* __restrict__ b, T* c, int m, int n, int k, int lda, int ldb, i64 strideA, i64 strideB, i64 batch, int warps, int transA, int transB,
                                      int transC) {
    constexpr int S = MT * NT, LANES = S < 32 ? 32 / S : 1, KEPT = S < 32 ? 1 : S / 32; // lanes with the same element, elements of a lane, at the end
    __shared__ T others[8][S];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % warps, tilesN = (n + NT - 1) / NT, tiles = (m + MT - 1) / MT * tilesN;
    const i64 item = (i64)blockIdx.x * (blockDim.x / 32 / warps) + warp / warps, matrix = item / tiles;
    const int tile = (int)(item - matrix * tiles), row0 = tile / tilesN * MT, col0 = tile % tilesN * NT, rows = matrix < batch ? min(m - row0, MT) : 0, cols = min(n - col0, NT);
    const int nextRow = transA ? 1 : lda, termA = transA ? lda : 1, nextCol = transB ? ldb : 1, termB = transB ? 1 : ldb, step = 32 * warps;
    a += matrix * strideA + row0 * nextRow, b += matrix * strideB + col0 * nextCol, c += matrix * m * n;
    T sum[S], f[U][MT], g[U][NT];
#pragma unroll
    for (int i = 0; i < S; i++) sum[i] = 0;
#pragma unroll
    for (int u = 0; u < U; u++) {
#pragma unroll
        for (int i = 0; i < MT; i++) f[u][i] = 0;
#pragma unroll
        for (int j = 0; j < NT; j++) g[u][j] = 0;
    }
#pragma unroll 1
    for (int l = part * 32 + lane; rows > 0 && l < k; l += U * step) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int at = l + u * step;
#pragma unroll
            for (int i = 0; i < MT; i++)
                if (i < rows) f[u][i] = at < k ? a[at * termA + i * nextRow] : T(0);
#pragma unroll
            for (int j = 0; j < NT; j++)
                if (j < cols) g[u][j] = at < k ? b[at * termB + j * nextCol] : T(0);
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < S; i++) sum[i] += f[u][i / NT] * g[u][i % NT];
    }
    int first = 0; // element of the lane
#pragma unroll
    for (int d = 16, half = S / 2; d > 0; d /= 2, half /= 2) {
        if (half == 0) sum[0] += __shfl_xor_sync(~0u, sum[0], d);
#pragma unroll
        for (int i = 0; i < S / 2; i++) {
            if (i >= half) break;
            const T give = lane & d ? sum[i] : sum[i + half], keep = lane & d ? sum[i + half] : sum[i];
            sum[i] = keep + __shfl_xor_sync(~0u, give, d);
        }
        if (lane & d) first += half;
    }
    const auto put = [&](int e, T v) {
        const int row = row0 + e / NT, col = col0 + e % NT;
        if (e / NT < rows && e % NT < cols) c[transC ? (i64)col * m + row : (i64)row * n + col] = v;
    };
#pragma unroll
    for (int e = 0; e < KEPT; e++) {
        if (lane % LANES) break;
        if (warps == 1) put(first + e, sum[e]);
        else others[warp][first + e] = sum[e];
    }
    if (warps == 1) return;
    __syncthreads();
    for (int e = part * 32 + lane; e < S; e += step) {
        T all = 0;
        for (int w = 0; w < warps; w++) all += others[warp - part + w][e];
        put(e, all);
    }
}

#define KERNEL(name, T, MT, NT, U)                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) matmul_##name(const T* a, const T* b, T* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, \
                                                                    i64 batch, i64 warps, int, int transA, int transB, int transC) {                              \
        follow();                                                                                                                                                 \
        inner<T, MT, NT, U>(a, b, c, (int)m, (int)n, (int)k, (int)lda, (int)ldb, strideA, strideB, batch, (int)warps, transA, transB, transC);                     \
    }
KERNEL(inner2_f32, float, 2, 4, 4)
KERNEL(inner4_f32, float, 4, 4, 4)
KERNEL(inner8_f32, float, 8, 8, 2)
KERNEL(inner2_f64, double, 2, 4, 2)
KERNEL(inner4_f64, double, 4, 4, 2)
