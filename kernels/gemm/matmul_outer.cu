// C = op(A) op(B) of few terms, batched: mostly operands are read and C is written. Every element is summed by
// FMA in the order of its terms, as the unsliced tiles of matmul.cu do. No epilogue.
//
// outer: a long C. A lane computes up to 32 times 16 bytes of C one below the other, in rows that begin at the
// same place within 16 bytes (every row, or every 2nd or 4th, which depends on n), so that it writes 16 bytes at a
// time whatever n is. All that it needs of B is in registers. Warps wait for nobody.
//
// linear: a C of short rows, as one array. Each vector of 16 bytes of a thread begins at the same column and belongs to two rows at most. Lanes write 16 bytes at a
// time whatever n is. Operands are in shared memory.
//
// tiny: many small matrices, a thread for each element of C.
#include "async.cuh"
#include "follow.cuh"
#include "vector.cuh"
typedef long long i64;

extern __shared__ double dynamic[];

template <typename T> __device__ __forceinline__ int place(const T* p) { return (int)(reinterpret_cast<unsigned long long>(p) / sizeof(T) % Vec<T>::width); }

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
    unsigned id = blockIdx.x * WARPS + warp;
    const unsigned strip = id % strips;
    id /= strips;
    const unsigned part = id % apart;
    id /= apart;
    const unsigned matrix = id / groups;
    const i64 row0 = (i64)(id - matrix * groups) * (apart * most) + part;
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

// linear computes LINEAR vectors of C a thread, as many rows apart as the block's threads, of which multiples of the vectors of a period of rows work, write at a time.
// The block's rows of A lie in shared memory, W terms of a row side by side, and B in its K rows.
template <typename T>
__device__ __forceinline__ void linear(const T* __restrict__ a, const T* __restrict__ b, T* c, int m, int n, int k, i64 lda, i64 ldb, i64 strideA, i64 strideB, int transA, int transB) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, THREADS = 256, LINEAR = 4;
    const int period = n % W == 0 ? n / W : n % 2 == 0 ? n / 2 : n, threads = THREADS / period * period; // in vectors; without a common factor of n and W
    const int apart = threads * W / n, size = m * n, pitch = (k + W - 1) / W * W;                      // rows; elements of C; of a row of A
    const int blocks = (size + W - 1 + threads * W * LINEAR - 1) / (threads * W * LINEAR), matrix = blockIdx.x / blocks, t = threadIdx.x;
    c += (i64)matrix * size;
    const int start = ((int)blockIdx.x - matrix * blocks) * (threads * W * LINEAR) - (n == 2 ? place(c) & ~1 : place(c)); // rows of two elements begin with a vector
    const auto row_of = [&](int i) { return (i + W * n) / n - W; }; // the first vector may begin before the matrix
    const int row0 = row_of(start), rows = apart * LINEAR + 2;
    T *const as = reinterpret_cast<T*>(dynamic), *const bs = as + rows * pitch;
    a += matrix * strideA;
    b += matrix * strideB;
    // over is i / n, exact for the numbers of elements of a block, n the reciprocal.
    const auto over = [](int i, float n) { return (int)((i + 0.5f) * n); };
    const float perK = 1.0f / k, perLine = 1.0f / (transA ? rows : pitch);
#pragma unroll 2
    for (int i = t; i < rows * pitch; i += THREADS) { // missing terms are 0 times -0, which changes no sum
        const int q = over(i, perLine), row = transA ? i - q * rows : q, l = transA ? q : i - q * pitch;
        async_copy(as + row * pitch + l, a + min(max(row0 + row, 0), m - 1) * (transA ? 1 : lda) + l * (transA ? lda : 1), l < k);
    }
#pragma unroll 1
    for (int i = t; i < n * k; i += THREADS) {
        const int j = transB ? over(i, perK) : 0;
        async_copy(bs + (transB ? (i - j * k) * n + j : i), b + i);
    }
    commit();
    arrived<0>();
    __syncthreads();
    if (t >= threads) return;
    const int first = start + t * W, row = row_of(first), col = first - row * n;
    const T* const x = as + (row - row0) * pitch;
    int offset[W];
#pragma unroll
    for (int e = 0; e < W; e++) offset[e] = col + e < n ? col + e : col + e - n;
    Pack<T> sum[LINEAR];
#pragma unroll
    for (int i = 0; i < LINEAR * W; i++) sum[i / W].s[i % W] = 0;
#pragma unroll 1
    for (int l = 0; l < k; l += W) {
        T y[W][W];
#pragma unroll
        for (int w = 0; w < W; w++)
#pragma unroll
            for (int e = 0; e < W; e++) y[w][e] = l + w < k ? bs[(l + w) * n + offset[e]] : T(-0.0);
#pragma unroll
        for (int i = 0; i < LINEAR; i++) {
            Pack<T> above, below; // terms of the two rows
            above.v = *reinterpret_cast<const U*>(x + i * apart * pitch + l);
            below.v = *reinterpret_cast<const U*>(x + (i * apart + 1) * pitch + l);
#pragma unroll
            for (int w = 0; w < W; w++)
#pragma unroll
                for (int e = 0; e < W; e++) sum[i].s[e] += (col + e < n ? above.s[w] : below.s[w]) * y[w][e];
        }
    }
#pragma unroll
    for (int i = 0; i < LINEAR; i++) {
        const int at = first + i * threads * W;
        if (at >= 0 && at + W <= size && place(c + at) == 0) *reinterpret_cast<U*>(c + at) = sum[i].v;
        else {
#pragma unroll
            for (int e = 0; e < W; e++)
                if (at + e >= 0 && at + e < size) c[at + e] = sum[i].s[e];
        }
    }
}

template <typename T>
__device__ void tiny(const T* __restrict__ a, const T* __restrict__ b, T* c, int m, int n, int k, int lda, int ldb, i64 batch, int transA, int transB) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int size = m * n;
    const i64 matrix = batch * size < 1ll << 31 ? (unsigned)i / (unsigned)size : i / size;
    if (matrix >= batch) return;
    const int e = (int)(i - matrix * size), row = e / n, col = e - row * n;
    a += matrix * (m * k) + row * (transA ? 1 : lda);
    b += matrix * (k * n) + col * (transB ? ldb : 1);
    const int nextA = transA ? lda : 1, nextB = transB ? 1 : ldb;
    T sum = 0;
#pragma unroll 4
    for (int l = 0; l < k; l++) sum += a[l * nextA] * b[l * nextB];
    c[i] = sum;
}

// Other devices take tiles instead of linear: the entry points are empty there.
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#else
#define ON_HOPPER(...)
#endif
#define KERNEL(name, T, suffix, ...)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) matmul_##name##_##suffix(                                                       \
        const T* a, const T* b, T* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int splits,   \
        int transA, int transB, int transC)
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
    KERNEL(linear, T, suffix, 256, 4) { ON_HOPPER(follow(); linear(a, b, c, (int)m, (int)n, (int)k, lda, ldb, strideA, strideB, transA, transB);) } \
    KERNEL(tiny, T, suffix, 256) { follow(); tiny(a, b, c, (int)m, (int)n, (int)k, (int)lda, (int)ldb, batch, transA, transB); }
KERNELS(float, f32)
KERNELS(double, f64)
