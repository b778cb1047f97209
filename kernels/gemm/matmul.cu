// C = op(A) op(B): c[i][j] = sum over l of opA[i][l] * opB[l][j], i in [0, m),
// j in [0, n), l in [0, k), batched. op is the matrix or its transpose; all
// matrices are row-major. float32 sums in float32, float64 in float64, by FMA.
//
// large, medium, short, small, thin: matrix x matrix, by the tiles of matmul_sliced.cuh. large has tiles
// of 128 x 128 and medium of 64 x 64 with two slices, for products that fill the device with them; short
// has tiles of 64 x 64 with one slice, for sums of few terms, or many tiles; small has tiles of 32 x 32, and
// thin of 32 x 16, for a narrow C.
//
// Matrix x vector is in matmul_vector.cu, products of few terms in matmul_outer.cu and matmul_band.cu, those of few
// rows or columns in matmul_narrow.cu and matmul_strip.cu, batches of these in matmul_inner.cu, in float32 on the tensor cores in
// matmul_mma_single.cu and matmul_tall_hopper.cu. Large
// products on devices of compute capability 9 run on the tensor cores: matmul_hopper.cu, and matmul_double.cu in float64.
//
// If C has too few tiles to fill the device, K is cut into splits. On compute capability 9.0 and later the blocks of a cluster
// reduce their splits (joined). Otherwise each split is summed into a separate copy of C in scratch memory, and
// matmul_vector.cu's combine adds the copies in the order of the splits. The order of summation does not depend on timing.
//
// The launch that writes C, combine where there are copies, applies the epilogue to the sums (epilogue.cuh).
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
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 // plans have it nowhere else: see tileTable
TILE(medium_f64, double, 1, 64, 64, 16, 8, 4, 4, 2, 3)
#else
extern "C" __global__ void __launch_bounds__(256) matmul_medium_f64(ARGUMENTS(double)) { follow(); }
#endif
TILE(short_f64, double, 3, 64, 64, 8, 8, 4, 4, 1, 3)
JOINED(small_f64, double, 6, 8, 32, 32, 16, 4, 4, 4, 1, 3)
JOINED(thin_f64, double, 2, 8, 32, 16, 32, 4, 4, 8, 8, 3)
