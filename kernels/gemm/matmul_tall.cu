// C = op(A) op(B) of few columns and few terms, batched: mostly A is read and C is written. Every element is summed by FMA in the order of its terms, as the
// unsliced tiles of matmul.cu do. No epilogue. With transC, op(A) op(B) is written transposed.
//
// A block computes a tile of 16 or 32 R rows of a matrix, or several small matrices. It loads A and B into shared memory by asynchronous copies, of 16 bytes where A has the same layout there.
// It stores C by vectors, too. A thread computes R rows of NC columns, from R elements of A and NC of B for each term. Blocks
// are small, so that many on an SM read, compute and write at different times. The bound is the issue of instructions: about 1.4 for each FMA of a warp.
#include "async.cuh"
#include "follow.cuh"
#include "place.cuh"
typedef long long i64;

extern __shared__ double dynamic[];

// over is i / n, exact for the numbers of elements of a block, n the reciprocal.
__device__ __forceinline__ int over(int i, float n) { return (int)((i + 0.5f) * n); }
__device__ __forceinline__ float reciprocal(int n) { return __fdividef(1, n); }

template <typename T, int R, int NC>
__device__ __forceinline__ void tall(const T* a, const T* b, T* c, int m, int n, int k, i64 lda, i64 strideA, i64 strideB, i64 batch, int tile, int each, int transA, int transB, int transC) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width;
    const auto vector = [](T* p) -> V& { return *reinterpret_cast<V*>(p); };
    const auto from = [](const T* p) { return reinterpret_cast<const V*>(p); };
    const int t = threadIdx.x, parts = (n + NC - 1) / NC, pitchB = parts * NC, sizeB = k * pitchB;
    int matrices = 1, inside = m, groups = tile / R, row0 = 0; // rows of a matrix; threads for a part of its columns
    i64 first = blockIdx.x;
    if (each) {
        first *= each;
        matrices = (int)min(batch - first, (i64)each);
        groups = (m + R - 1) / R;
    } else {
        const unsigned tiles = (unsigned)(m + tile - 1) / tile;
        first = blockIdx.x / tiles;
        row0 = (blockIdx.x - (unsigned)first * tiles) * tile;
        inside = min(m - row0, tile);
    }
    a += first * strideA + (transA ? row0 : row0 * lda);
    b += first * strideB;
    c += first * m * n + (transC ? row0 : (i64)row0 * n);
    const float perK = reciprocal(k), perN = reciprocal(n);
    T* const bs = reinterpret_cast<T*>(dynamic); // [matrix][l][column]
#pragma unroll 2
    for (int i = t; i < matrices * n * k; i += blockDim.x) {
        const int line = over(i, transB ? perK : perN);
        int to = i + line * (pitchB - n);
        if (transB) {
            const int matrix = each ? over(line, perN) : 0;
            to = (matrix * k + i - line * k) * pitchB + line - matrix * n;
        }
        async_copy(bs + to, b + i);
    }
    T* as = bs + max(each, 1) * sizeB;
    int nextRow = 1, nextTerm = 1, size = inside * k; // in shared memory; size: of a matrix
    if (transA && !each) {
        const int line = tile / W + 1, shift = place(a), strayed = (int)(lda % W); // a line's vectors are the same in shared memory
        const float perLine = reciprocal(line);
        nextTerm = tile + strayed;
        as += shift;
#pragma unroll 2
        for (int i = t; i < line * k; i += blockDim.x) {
            const int l = over(i, perLine), e = (i - l * line) * W - (shift + l * strayed) % W;
            const T* p = a + l * lda + e;
            T* to = as + l * nextTerm + e;
            if (e >= 0 && e + W <= inside) async_copy(&vector(to), from(p));
            else {
#pragma unroll
                for (int w = 0; w < W; w++)
                    if (e + w >= 0 && e + w < inside) async_copy(to + w, p + w);
            }
        }
    } else if (transA || k % 4) {
        as += place(a);
        (transA ? nextTerm : nextRow) = transA ? inside : k;
        vectors(a, matrices * size, t, blockDim.x, [&](int i) { async_copy(&vector(as + i), from(a + i)); }, [&](int i) { async_copy(as + i, a + i); });
    } else { // lanes that read rows meet in few banks
        nextRow = k + 1;
#pragma unroll 2
        for (int i = t; i < matrices * size; i += blockDim.x) async_copy(as + i + over(i, perK), a + i);
        size += inside;
    }
    commit();
    arrived<0>();
    __syncthreads();
    const int items = matrices * groups, part = over(t, reciprocal(items)), item = t - part * items, matrix = each ? over(item, reciprocal(groups)) : 0;
    const int row = item - matrix * groups, col = part * NC; // and every `groups` rows
    T sum[R][NC];
#pragma unroll
    for (int i = 0; i < R * NC; i++) sum[i / NC][i % NC] = 0;
    if (part < parts) {
        const T *x = as + matrix * size + row * nextRow, *y = bs + matrix * sizeB + col;
#pragma unroll (sizeof(T) == 4 ? 2 : 1) // two terms of float64 at once compile to one of several programs, by chance
        for (int l = 0; l < k; l++, x += nextTerm, y += pitchB) {
            T f[R];
            Pack<T> g[NC / W];
#pragma unroll
            for (int i = 0; i < R; i++) f[i] = x[i * groups * nextRow];
#pragma unroll
            for (int j = 0; j < NC / W; j++) g[j].v = from(y)[j];
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < NC; j++) sum[i][j] += f[i] * g[j / W].s[j % W];
        }
    }
    const auto put = [&](T* q, int nextRow, i64 nextCol) {
        if (part < parts) {
#pragma unroll
            for (int i = 0; i < R; i++, q += groups * nextRow)
                if (row + i * groups < inside)
#pragma unroll
                    for (int j = 0; j < NC; j++)
                        if (col + j < n) q[j * nextCol] = sum[i][j];
        }
    };
    if (transC) {
        put(c + (i64)matrix * m * n + (i64)col * m + row, 1, m);
        return;
    }
    __syncthreads(); // everyone is done with A and B
    const int shift = place(c), pitch = n % 4 == 0 && shift == 0 ? (n / 4 | 1) * 4 : n;
    T* const cs = bs + shift;
    put(cs + (matrix * inside + row) * pitch + col, pitch, 1);
    __syncthreads();
    const int pad = pitch - n;
    vectors(c, matrices * inside * n, t, blockDim.x, [&](int i) { vector(c + i) = vector(cs + i + (pad ? over(i, perN) * pad : 0)); }, [&](int i) { c[i] = cs[i]; });
}

#define KERNEL(name, T, R, NC, BLOCKS)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) matmul_##name(                                                                 \
        const T* a, const T* b, T* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int each,       \
        int transA, int transB, int transC) {                                                                                               \
        follow();                                                                                                                           \
        tall<T, R, NC>(a, b, c, (int)m, (int)n, (int)k, lda, strideA, strideB, batch, (int)chunk, each, transA, transB, transC);                         \
    }
KERNEL(tall4_f32, float, 4, 4, 4)
KERNEL(tall_f32, float, 4, 8, __CUDA_ARCH__ < 1000 ? 3 : 2)
KERNEL(tall_f64, double, 2, 8, 3)
