// C = op(A) op(B) in float64 on the tensor cores of compute capability 9.0, batched, row-major; op is the matrix
// or its transpose:
//
//	c[i][j] = sum over l of opA[i][l] * opB[l][j],  i in [0, m), j in [0, n), l in [0, k)
//
// A block's warps share a tile of C, in pieces of 16 x 8, the shape of one instruction. The factors come in
// pieces S deep, STAGES - 1 of them on their way (cp.async) while the warps multiply another, and lie in shared
// memory in the order that they have in global memory. large are tiles of 128 x 64, small of 64 x 64.
//
// Where C has few tiles, k is cut into splits, which matmul_combine_f64 adds up. Sums have an epilogue
// (epilogue.cuh), or are written.
#include "epilogue.cuh"
#include "follow.cuh"
#include "matmul_tiles.cuh"

#if __CUDA_ARCH__ == 900
// mma is c += a b for 16 x 8 and 8 x 8 elements spread over a warp. With g = lane / 4 and q = lane % 4 a lane
// holds
//
//	a[r + 2 h] = a(g + 8 r, q + 4 h)    b[h] = b(q + 4 h, g)    c[2 r + e] = c(g + 8 r, 2 q + e)
__device__ __forceinline__ void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

// multiply adds the product of two pieces, 8 deep, to a warp's part of the tile: a and b point to its first row
// and column, and sums[i][j] holds a lane's elements of 16 x 8, those of c in mma.
template <typename PA, typename PB, int MT, int NT>
__device__ __forceinline__ void multiply(const double* a, const double* b, double (&sums)[MT][NT][4]) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    a += PA::at(q, g);
    b += PB::at(q, g);
    double y[NT][2];
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) y[j][e] = b[PB::at(4 * e, 8 * j)];
#pragma unroll
    for (int i = 0; i < MT; i++) {
        double x[4];
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = a[PA::at(e / 2 * 4, 16 * i + e % 2 * 8)];
#pragma unroll
        for (int j = 0; j < NT; j++) mma(sums[i][j], x, y[j]);
    }
}

// Double is a form: the tile, the warps that share it down and across, and the pieces.
template <int BM_, int BN_, int WM_, int WN_, int S_, int STAGES_> struct Double {
    static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, S = S_, STAGES = STAGES_, THREADS = WM * WN * 32;
    static constexpr int MT = BM / WM / 16, NT = BN / WN / 8, LD = BN + 2; // of a tile in shared memory, so that the lanes' rows begin in other banks
};

// bring brings a tile of sums to shared memory.
template <typename F> __device__ __forceinline__ double* bring(const double (&sums)[F::MT][F::NT][4], int row, int col) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    double* const tile = dynamic;
    __syncthreads(); // the last stage is read
#pragma unroll
    for (int i = 0; i < F::MT; i++)
#pragma unroll
        for (int j = 0; j < F::NT; j++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                *reinterpret_cast<double2*>(tile + (row + 16 * i + r * 8 + g) * F::LD + col + 8 * j + 2 * q) = make_double2(sums[i][j][2 * r], sums[i][j][2 * r + 1]);
    __syncthreads();
    return tile;
}

// finish puts a tile of sums with the target's epilogue, in a loop over 16 bytes: steps are many instructions.
template <typename F> __device__ __forceinline__ void finish(const Target<double>& target, const double* tile) {
    constexpr int EACH = F::THREADS * 2;
#pragma unroll 1
    for (int i = threadIdx.x * 2; i < F::BM * F::BN; i += 2 * EACH) {
        const int rows[] = {i / F::BN, (i + EACH) / F::BN}, cols[] = {i % F::BN, (i + EACH) % F::BN};
        Pack<double> v[2];
#pragma unroll
        for (int u = 0; u < 2; u++) v[u].v = *reinterpret_cast<const double2*>(tile + rows[u] * F::LD + cols[u]);
        target.finish(rows, cols, v);
    }
}

// tile computes a tile. ALONG_A and ALONG_B say whether the elements of one row of op(A), or one column of
// op(B), lie side by side.
template <typename F, bool ALONG_A, bool ALONG_B>
__device__ __forceinline__ void tile(const Product<double, F::BM, F::BN>& p, i64 matrix, bool aligned, const Epilogue<double>& epilogue) {
    using PA = Kept<double, F::BM, F::S, F::THREADS, ALONG_A>;
    using PB = Kept<double, F::BN, F::S, F::THREADS, ALONG_B>;
    const int warp = threadIdx.x / 32, row = warp / F::WN * (F::BM / F::WM), col = warp % F::WN * (F::BN / F::WN);
    double sums[F::MT][F::NT][4] = {};
    pipeline<F::S, F::STAGES>(PA(p.a, p.row, threadIdx.x), PB(p.b, p.col, threadIdx.x), p.k, dynamic, [&](const double* a, const double* b) {
#pragma unroll
        for (int l = 0; l < F::S; l += 8) multiply<PA, PB>(a + PA::at(l, row), b + PB::at(l, col), sums);
    });
    Target<double> target;
    target.c = p.c + p.row * p.n + p.col;
    target.across = 1;
    target.down = p.n;
    target.rows = (int)min(p.m - p.row, (i64)F::BM);
    target.cols = (int)min(p.n - p.col, (i64)F::BN);
    target.wide = p.n % 2 == 0 && aligned;
    if (epilogue.steps != 0) {
        target.epilogue = epilogue.from(matrix, p.row, p.col);
        finish<F>(target, bring<F>(sums, row, col));
    } else if (target.wide) {
        const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < F::MT; i++)
#pragma unroll
            for (int j = 0; j < F::NT; j++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    Pack<double> v;
                    v.v = make_double2(sums[i][j][2 * r], sums[i][j][2 * r + 1]);
                    target.put(row + 16 * i + r * 8 + g, col + 8 * j + 2 * q, v);
                }
    } else { // rows begin anywhere: a warp's lanes write side by side
        const double* const s = bring<F>(sums, row, col);
#pragma unroll 4
        for (int i = threadIdx.x; i < F::BM * F::BN; i += F::THREADS)
            if (i / F::BN < target.rows && i % F::BN < target.cols) target.c[i / F::BN * target.down + i % F::BN] = s[i / F::BN * F::LD + i % F::BN];
    }
}

// product computes a tile of a split: chunk terms, whose sums go to their own copy of C, [splits][batch].
template <typename F>
__device__ __forceinline__ void product(const double* a, const double* b, double* c, i64 m, i64 n, i64 k, int transA, int transB, i64 batch, i64 chunk,
                                        const Epilogue<double>& epilogue) {
    Product<double, F::BM, F::BN> p(a, b, c, m, n, k, transA, transB);
    const i64 tiles = (m + F::BM - 1) / F::BM * ((n + F::BN - 1) / F::BN), split = blockIdx.x / tiles / batch, k0 = split * chunk;
    const bool aligned = reinterpret_cast<unsigned long long>(c) % 16 == 0;
    p.a.p += k0 * p.a.sl - split * batch * m * k;
    p.b.p += k0 * p.b.sl - split * batch * k * n;
    p.k = min(k - k0, chunk);
    const i64 matrix = blockIdx.x / tiles;
    if (!transA && transB) tile<F, true, true>(p, matrix, aligned, epilogue);
    else if (!transA) tile<F, true, false>(p, matrix, aligned, epilogue);
    else if (transB) tile<F, false, true>(p, matrix, aligned, epilogue);
    else tile<F, false, false>(p, matrix, aligned, epilogue);
}
#define BODY(...) __VA_ARGS__
#else // plans use it nowhere else
#define BODY(...)
#endif

#define DOUBLE(name, BLOCKS, WM, WN, ...)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(WM * WN * 32, BLOCKS) matmul_double_##name(                                                          \
        const double* a, const double* b, double* c, i64 m, i64 n, i64 k, int transA, int transB, i64 batch, i64 chunk, EPILOGUE_ARGUMENTS(double)) { \
        follow();                                                                                                                                     \
        BODY((product<Double<__VA_ARGS__>>(a, b, c, m, n, k, transA, transB, batch, chunk, EPILOGUE(double)));)                                       \
    }
DOUBLE(large, 2, 2, 2, 128, 64, 2, 2, 16, 3)
DOUBLE(small, 3, 2, 2, 64, 64, 2, 2, 8, 4)
