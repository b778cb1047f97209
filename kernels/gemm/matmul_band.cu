// C = op(A) op(B) of float32 matrices of few terms, batched: mostly C is written. Every element is summed by FMA in the order of its
// terms, as the unsliced tiles of matmul.cu do. No epilogue.
//
// A block takes a band of C: 16 rows for each warp, whose factors in A come to shared memory whole and stay there. It walks along
// the band in tiles of 128 columns, whose factors in B come while the tile before is computed and written. A lane computes 16 rows of 4
// columns, 32 apart, so that a warp writes 128 bytes of a row at a time, wherever rows begin. Warps wait for one another once a tile, and
// write at different times. The bound is memory's bandwidth for about 20 terms, FMA for more.
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "follow.cuh"
#include "vector.cuh"
typedef long long i64;

extern __shared__ float4 dynamic[];

constexpr int ROWS = 16;                          // of a warp
constexpr int COLUMNS = 128, EACH = COLUMNS / 32; // of a tile, of a lane
constexpr int PITCH = COLUMNS + 4;                // of terms in shared memory

// fetch starts the copies of a warp's share of a factor's elements (x, l), x up to X, into s[l][x]. Those with x >= inside become zeros. Where rows run
// along, the elements of one x are side by side, else those of one l; wide: 16 bytes of them at a time.
__device__ __forceinline__ void fetch(float* s, const float* p, i64 ld, bool along, bool wide, int X, int inside, int k) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (along) { // 8 terms of 4 x: lanes meet in no bank
        for (int x = warp * 4 + lane / 8; x < X; x += warps * 4) {
            const float* from = p + x * ld;
#pragma unroll 4
            for (int l = lane % 8; l < k; l += 8) async_copy(s + l * PITCH + x, from + l, x < inside);
        }
    } else if (wide) {
#pragma unroll 2
        for (int l = warp; l < k; l += warps) async_copy(reinterpret_cast<float4*>(s + l * PITCH) + lane, reinterpret_cast<const float4*>(p + l * ld) + lane, lane * 4 < inside);
    } else {
        for (int l = warp; l < k; l += warps)
#pragma unroll 4
            for (int x = lane; x < X; x += 32) async_copy(s + l * PITCH + x, p + l * ld + x, x < inside);
    }
}

// band computes a block's tiles, `most` of them.
__device__ __forceinline__ void band(const float* a, const float* b, float* c, i64 m, i64 n, int k, i64 lda, i64 ldb, i64 strideA, i64 strideB, int most, int transA, int transB) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockDim.x / 32 * ROWS;
    const int lines = (k + 1) / 2 * 2; // terms, in pairs
    float* const as = reinterpret_cast<float*>(dynamic);
    float* const bs = as + lines * PITCH;
    // Blocks that run at one time are above one another, so that they share B.
    const unsigned bands = (unsigned)((m + rows - 1) / rows), tiles = (unsigned)((n + COLUMNS - 1) / COLUMNS), parts = (tiles + most - 1) / most;
    const unsigned over = blockIdx.x / bands, matrix = over / parts, part = over - matrix * parts;
    const i64 row0 = (i64)(blockIdx.x - over * bands) * rows, col0 = (i64)part * most * COLUMNS;
    const int inside = (int)min(m - row0, (i64)rows) - warp * ROWS; // rows from the warp's first on
    int cols = (int)min(n - col0, (i64)most * COLUMNS);             // that are left
    const bool wide = n % 4 == 0 && reinterpret_cast<unsigned long long>(b) % 16 == 0;
    a += matrix * strideA + row0 * (transA ? 1 : lda);
    b += matrix * strideB + col0 * (transB ? ldb : 1);
    c += matrix * m * n + (row0 + warp * ROWS) * n + col0 + lane;
    if (k < lines) { // 0 times -0 changes no sum
        for (int i = threadIdx.x; i < rows; i += blockDim.x) as[k * PITCH + i] = 0;
        for (int i = threadIdx.x; i < COLUMNS; i += blockDim.x) bs[k * PITCH + i] = bs[(lines + k) * PITCH + i] = -0.0f;
    }
    fetch(as, a, lda, !transA, false, rows, inside + warp * ROWS, k);
    fetch(bs, b, ldb, transB, wide, COLUMNS, cols, k);
    commit();
    int stage = 0;
#pragma unroll 1
    for (; cols > 0; cols -= COLUMNS, c += COLUMNS) {
        arrived<0>();
        __syncthreads(); // the tile's factors are there, and everyone is done with those before
        if (cols > COLUMNS) {
            b += COLUMNS * (transB ? ldb : 1);
            fetch(bs + (stage ^ 1) * lines * PITCH, b, ldb, transB, wide, COLUMNS, cols - COLUMNS, k);
            commit();
        } else admit();
        if (inside > 0) {
            const float *pa = as + warp * ROWS, *pb = bs + stage * lines * PITCH + lane;
            float sum[ROWS][EACH];
#pragma unroll
            for (int i = 0; i < ROWS * EACH; i++) sum[i / EACH][i % EACH] = 0;
            Pack<float> x[2][ROWS / 4];
            float y[2][EACH];
            const auto load = [&](int to, int l) {
#pragma unroll
                for (int i = 0; i < ROWS / 4; i++) x[to][i].v = *reinterpret_cast<const float4*>(pa + l * PITCH + 4 * i);
#pragma unroll
                for (int j = 0; j < EACH; j++) y[to][j] = pb[l * PITCH + 32 * j];
            };
            const auto multiply = [&](int from) {
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++) sum[i][j] += x[from][i / 4].s[i % 4] * y[from][j];
            };
            load(0, 0);
#pragma unroll 1
            for (int left = lines; left > 0; left -= 2) {
                load(1, 1);
                multiply(0);
                const int next = left > 2 ? 2 * PITCH : 0; // the last terms once more, for nothing
                pa += next;
                pb += next;
                load(0, 0);
                multiply(1);
            }
            float* q = c;
            if (inside >= ROWS && cols >= COLUMNS) {
#pragma unroll
                for (int i = 0; i < ROWS; i++, q += n)
#pragma unroll
                    for (int j = 0; j < EACH; j++) q[32 * j] = sum[i][j];
            } else {
#pragma unroll
                for (int i = 0; i < ROWS; i++, q += n)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        if (i < inside && lane + 32 * j < cols) q[32 * j] = sum[i][j];
            }
        }
        stage ^= 1;
    }
}

// Other devices take tiles: the entry points are empty there.
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#else
#define ON_HOPPER(...)
#endif
extern "C" __global__ void __launch_bounds__(128, 4) matmul_band_f32(
    const float* a, const float* b, float* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int most,
    int transA, int transB, int transC) {
    follow();
    ON_HOPPER(band(a, b, c, m, n, (int)k, lda, ldb, strideA, strideB, most, transA, transB);)
}
