// C = op(A) op(B): c[i][j] = sum over l of opA[i][l] * opB[l][j], i in [0, m),
// j in [0, n), l in [0, k), batched. op is the matrix or its transpose; all
// matrices are row-major. float32 sums in float32, float64 in float64, by FMA.
//
// large, medium, short, small, thin: matrix x matrix, by the tiles of matmul_sliced.cuh. large are
// tiles of 128 x 128 and medium of 64 x 64 with two slices, for products that fill the device with them. short
// are of 64 x 64 with one slice: for sums of few terms, or many tiles. small are of 32 x 32, and
// thin of 32 x 16, for a narrow C.
//
// rows, columns: matrix x vector. rows: one warp per row, for a matrix whose
// rows are summed; columns: one lane per 16 bytes of columns, the block's warps
// take rows in turn and their sums are added in order. Bound by memory.
//
// Large products on devices of compute capability 9 run on the tensor cores:
// matmul_hopper.cu, and matmul_tensor.cu in float64.
//
// Where C has too few tiles to fill the device, k is cut into splits. The blocks of a
// cluster add theirs up (joined, from compute capability 9.0 on); else each is summed into its
// own copy of C in scratch memory, and combine adds the copies in the order of the
// splits. No sum's order depends on timing.
//
// Who writes C, combine where there are copies, makes of the sums what the epilogue says (epilogue.cuh).
#include "matmul_sliced.cuh"

#if __CUDA_ARCH__ >= 900
#define IN_CLUSTERS(...) __VA_ARGS__
#define BLOCKS_OF_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define IN_CLUSTERS(...)
#define BLOCKS_OF_CLUSTER(n)
#endif
#define ARGUMENTS(T)                                                                                                      \
    const T *a, const T *b, T *c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, \
    int parts, int transA, int transB, int transC, EPILOGUE_ARGUMENTS(T)
#define RUN(T, JOIN, ...) \
    sliced<Form<T, __VA_ARGS__>, JOIN>(a, b, c, m, n, k, lda, ldb, strideA, strideB, batch, chunk, parts, transA, transB, transC, EPILOGUE(T));
#define TILE(name, T, BLOCKS, ...)                                                                               \
    extern "C" __global__ void __launch_bounds__(Form<T, __VA_ARGS__>::THREADS, BLOCKS) matmul_##name(ARGUMENTS(T)) { \
        RUN(T, 0, __VA_ARGS__)                                                                                   \
    }
#define JOINED(name, T, BLOCKS, JOIN, ...)                                                                                         \
    TILE(name, T, BLOCKS, __VA_ARGS__)                                                                                             \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(JOIN) __launch_bounds__(Form<T, __VA_ARGS__>::THREADS, BLOCKS) matmul_joined_##name( \
        ARGUMENTS(T)) {                                                                                                            \
        IN_CLUSTERS(RUN(T, JOIN, __VA_ARGS__))                                                                                     \
    }
// Blocks on a multiprocessor and blocks of a cluster; then tile, step along k, elements of a thread, lanes
// down, slices and stages.
TILE(large_f32, float, 1, 128, 128, 16, 8, 8, 4, 1, 3)
JOINED(medium_f32, float, 2, 2, 64, 64, 32, 8, 4, 4, 2, 3)
TILE(short_f32, float, 4, 64, 64, 16, 8, 4, 4, 1, 3)
JOINED(small_f32, float, 8, 8, 32, 32, 16, 4, 4, 4, 1, 3)
JOINED(thin_f32, float, 3, 8, 32, 16, 64, 4, 4, 8, 8, 3)
JOINED(medium_f64, double, 1, 2, 64, 64, 16, 8, 4, 4, 2, 3)
TILE(short_f64, double, 3, 64, 64, 8, 8, 4, 4, 1, 3)
JOINED(small_f64, double, 6, 8, 32, 32, 16, 4, 4, 4, 1, 3)
JOINED(thin_f64, double, 2, 8, 32, 16, 32, 4, 4, 8, 8, 3)

// rows: y[r] = sum over l of x[r][l] * v[l], r in [0, rows), one warp per row of
// one split of one matrix of the batch; 8 warps a block.
template <typename T>
__device__ void rowsTimes(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y,
                          long long rows, long long k, long long batch, long long chunk, const Epilogue<T>& epilogue) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width;
    const long long id = (long long)blockIdx.x * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const long long matrix = id / rows % batch, split = id / rows / batch;
    const long long k0 = split * chunk, left = min(k - k0, chunk);
    if (split > 0 && left <= 0) return; // beyond the last split
    x += id % (batch * rows) * k + k0;
    v += matrix * k + k0;
    Pack<T> acc[2];
#pragma unroll
    for (int e = 0; e < W; e++) acc[0].s[e] = acc[1].s[e] = 0;
    if (k % W == 0) {
        long long l = lane * W;
        for (; l + 32 * W < left; l += 64 * W) {
#pragma unroll
            for (int u = 0; u < 2; u++) {
                Pack<T> p, q;
                p.v = *reinterpret_cast<const U*>(x + l + u * 32 * W);
                q.v = *reinterpret_cast<const U*>(v + l + u * 32 * W);
#pragma unroll
                for (int e = 0; e < W; e++) acc[u].s[e] += p.s[e] * q.s[e];
            }
        }
        if (l < left) {
            Pack<T> p, q;
            p.v = *reinterpret_cast<const U*>(x + l);
            q.v = *reinterpret_cast<const U*>(v + l);
#pragma unroll
            for (int e = 0; e < W; e++) acc[0].s[e] += p.s[e] * q.s[e];
        }
    } else {
        long long l = lane;
        for (; l + 32 * (2 * W - 1) < left; l += 64 * W) {
#pragma unroll
            for (int u = 0; u < 2 * W; u++) acc[u / W].s[u % W] += x[l + u * 32] * v[l + u * 32];
        }
        for (; l < left; l += 32) acc[0].s[0] += x[l] * v[l];
    }
    T sum = 0;
#pragma unroll
    for (int e = 0; e < W; e++) sum += acc[0].s[e] + acc[1].s[e];
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) y[id] = epilogue.of(sum, matrix, id % rows, 0);
}

// columns: y[j] = sum over l of v[l] * x[l][j], j in [0, n), a block of 8 warps
// per 32 * W columns of one split of one matrix of the batch.
template <typename T>
__device__ void columnsTimes(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y,
                             long long n, long long k, long long batch, long long chunk, const Epilogue<T>& epilogue) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, B = 32 * W, WARPS = 8;
    __shared__ T partial[WARPS][B];
    const int strips = (int)((n + B - 1) / B), rest = blockIdx.x / strips;
    const long long matrix = rest % (int)batch, split = rest / (int)batch;
    const long long first = (long long)(blockIdx.x % strips) * B;
    const long long begin = split * chunk, end = min(k, begin + chunk);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += matrix * k * n + first;
    v += matrix * k;
    T acc[W];
#pragma unroll
    for (int e = 0; e < W; e++) acc[e] = 0;
    if (n % W == 0) { // lane holds columns lane * W + e
        if (first + lane * W < n) {
#pragma unroll 4
            for (long long l = begin + warp; l < end; l += WARPS) {
                Pack<T> p;
                p.v = *reinterpret_cast<const U*>(x + l * n + lane * W);
                const T f = v[l];
#pragma unroll
                for (int e = 0; e < W; e++) acc[e] += f * p.s[e];
            }
        }
#pragma unroll
        for (int e = 0; e < W; e++) partial[warp][lane * W + e] = acc[e];
    } else { // lane holds columns e * 32 + lane
#pragma unroll 4
        for (long long l = begin + warp; l < end; l += WARPS) {
            const T f = v[l];
#pragma unroll
            for (int e = 0; e < W; e++)
                if (first + e * 32 + lane < n) acc[e] += f * x[l * n + e * 32 + lane];
        }
#pragma unroll
        for (int e = 0; e < W; e++) partial[warp][e * 32 + lane] = acc[e];
    }
    __syncthreads();
    if (threadIdx.x < B && first + threadIdx.x < n) {
        T sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += partial[w][threadIdx.x];
        y[(split * batch + matrix) * n + first + threadIdx.x] = epilogue.of(sum, matrix, first + threadIdx.x, 0);
    }
}

// combine: c[i] = sum over s of partial[s][i], i in [0, count), s in [0, splits), of matrices of m x n elements.
template <typename T>
__device__ void combine(const T* __restrict__ partial, T* __restrict__ c, long long count, long long splits, i64 m, i64 n, const Epilogue<T>& epilogue) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        T sum = 0;
#pragma unroll 4
        for (long long s = 0; s < splits; s++) sum += partial[s * count + i];
        if (epilogue.steps != 0) sum = epilogue.of(sum, i / n / m, i / n % m, i % n);
        c[i] = sum;
    }
}

#define VECTOR(T, suffix)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) matmul_rows_##suffix(                                           \
        const T* a, const T* v, T* c, i64 rows, i64 k, i64 batch, i64 chunk, EPILOGUE_ARGUMENTS(T)) {                 \
        rowsTimes(a, v, c, rows, k, batch, chunk, EPILOGUE(T));                                                       \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) matmul_columns_##suffix(                                        \
        const T* a, const T* v, T* c, i64 n, i64 k, i64 batch, i64 chunk, EPILOGUE_ARGUMENTS(T)) {                    \
        columnsTimes(a, v, c, n, k, batch, chunk, EPILOGUE(T));                                                       \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) matmul_combine_##suffix(                                        \
        const T* partial, T* c, i64 count, i64 splits, i64 m, i64 n, EPILOGUE_ARGUMENTS(T)) {                         \
        combine(partial, c, count, splits, m, n, EPILOGUE(T));                                                        \
    }
VECTOR(float, f32)
VECTOR(double, f64)
