// C = op(A) op(B) in float64 on the tensor cores of compute capability 8.0, batched, row-major, as in matmul_double.cu, by the
// instructions that 8.0 has: mma.sync of 8 x 8 elements by 4 terms, fed by asynchronous copies.
//
// A block computes a tile of C, each of its four warps a quarter of it. It walks along k by pieces of S terms, STAGES - 1 of
// them on their way to shared memory while another is multiplied. Pieces lie there in the order of global memory. Sums of
// a long k are cut: splits go to copies of C, which matmul_combine_f64 adds up.
//stheno:targets sm_80 sm_90a ptx
//stheno:tests sm_90a
#include "matmul_sliced.cuh"

#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 // 9.0 for tests: its products are those of matmul_double.cu
constexpr int TILE = 64, S = 16, STAGES = 3, THREADS = 128, SIDE = TILE / 2, EACH = SIDE / 8; // of a warp
constexpr int PIECE = TILE * (S + 4), LD = TILE + 2; // elements of a piece with its gaps; from row to row of a tile of sums
static_assert(TILE * LD <= STAGES * 2 * PIECE, "the sums have a place");

// mma is c += a b for 8 x 8 elements and 4 terms spread over a warp: with g = lane / 4 and q = lane % 4 a lane holds a(g, q), b(q, g) and
// c(g, 2 q) and its neighbour.
__device__ __forceinline__ void mma(double (&c)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

// Factor is op(A) or op(B)^T of a block's tile, from its first term on: element (x, l), x along C's rows or columns. Its rows in memory, ld
// elements apart, are of one x (ALONG) or of one l. Gaps of four elements let the lanes of mma meet in no bank.
template <bool ALONG> struct Factor {
    static constexpr int ROWS = ALONG ? TILE : S, COLS = ALONG ? S : TILE, PITCH = COLS + 4;
    static_assert(ROWS * PITCH <= PIECE, "a piece has a place");
    const double* p;
    i64 ld;
    int inside; // how many x
    bool wide;  // rows begin at multiples of 16 bytes, and their ends do

    __device__ __forceinline__ Factor(const double* matrix, i64 size, i64 k, i64 x0, i64 k0)
        : p(matrix + (ALONG ? x0 * k + k0 : k0 * size + x0)), ld(ALONG ? k : size), inside((int)min(size - x0, (i64)TILE)),
          wide(ld % 2 == 0 && reinterpret_cast<unsigned long long>(matrix) % 16 == 0) {}
    static __device__ __forceinline__ int at(int x, int l) { return ALONG ? x * PITCH + l : l * PITCH + x; }

    template <typename V> __device__ __forceinline__ void copy(double* to, int left) const {
        constexpr int W = sizeof(V) / 8, STEP = THREADS * W / COLS;
        const int row = threadIdx.x / (COLS / W), col = threadIdx.x % (COLS / W) * W;
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP) {
            const int x = ALONG ? row + r : col, l = ALONG ? col : row + r;
            async_copy(reinterpret_cast<V*>(to + (row + r) * PITCH + col), reinterpret_cast<const V*>(p + (row + r) * ld + col), x < inside && l < left);
        }
    }
    // fetch starts the copies of the next piece, of which that many terms are inside the matrix. What is outside becomes zeros.
    __device__ __forceinline__ void fetch(double* to, int left) {
        if (wide) copy<double2>(to, left);
        else copy<double>(to, left);
        p += ALONG ? S : S * ld;
    }
};

// multiply adds the products of k terms to a warp's quarter of the tile.
template <typename FA, typename FB> __device__ __forceinline__ void multiply(FA a, FB b, int k, int row, int col, double (&sums)[EACH][EACH][2]) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    int left = k; // to be fetched
    const auto fetch = [&](int stage) {
        if (left > 0) {
            a.fetch(dynamic + stage * 2 * PIECE, left);
            b.fetch(dynamic + (stage * 2 + 1) * PIECE, left);
        }
        left -= S;
        commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    int stage = 0, into = STAGES - 1;
#pragma unroll 1
    for (; k > 0; k -= S) {
        arrived<STAGES - 2>(); // this thread's copies of the stage
        __syncthreads();       // everyone's, and everyone has read the stage that is filled next
        fetch(into);
        const double *const x = dynamic + stage * 2 * PIECE + FA::at(row + g, q), *const y = dynamic + (stage * 2 + 1) * PIECE + FB::at(col + g, q);
#pragma unroll
        for (int l = 0; l < S; l += 4) {
            double u[EACH], v[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) u[i] = x[FA::at(8 * i, l)];
#pragma unroll
            for (int i = 0; i < EACH; i++) v[i] = y[FB::at(8 * i, l)];
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) mma(sums[i][j], u[i], v[j]);
        }
        into = stage;
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    arrived<0>();
    __syncthreads(); // the stages are free
}

// store writes the sums by way of shared memory, in whole lines, through the target's epilogue.
__device__ __forceinline__ void store(const double (&sums)[EACH][EACH][2], int row, int col, const Target<double>& target) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            *reinterpret_cast<double2*>(dynamic + (row + 8 * i + g) * LD + col + 8 * j + 2 * q) = make_double2(sums[i][j][0], sums[i][j][1]);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x * 2; i < TILE * TILE; i += 4 * THREADS) {
        const int rows[] = {i / TILE, (i + 2 * THREADS) / TILE}, cols[] = {i % TILE, (i + 2 * THREADS) % TILE};
        Pack<double> v[2];
#pragma unroll
        for (int u = 0; u < 2; u++) v[u].v = *reinterpret_cast<const double2*>(dynamic + rows[u] * LD + cols[u]);
        if (target.epilogue.steps != 0) {
            target.finish(rows, cols, v);
        } else {
#pragma unroll
            for (int u = 0; u < 2; u++) target.put(rows[u], cols[u], v[u]);
        }
    }
}

__device__ __forceinline__ void product(const double* a, const double* b, double* c, i64 m, i64 n, i64 k, int transA, int transB, int batch, i64 chunk,
                                        const Epilogue<double>& epilogue) {
    const Place at = Place::of<TILE, TILE, 0>(m, n, batch, (int)((k + chunk - 1) / chunk));
    const int warp = threadIdx.x / 32, row = warp / 2 * SIDE, col = warp % 2 * SIDE;
    const i64 k0 = at.split * chunk;
    const int terms = (int)min(k - k0, chunk); // the plan keeps chunk below 2^30
    a += at.matrix * m * k;
    b += at.matrix * k * n;
    double sums[EACH][EACH][2] = {};
#define RUN(ALONG_A, ALONG_B) multiply(Factor<ALONG_A>(a, m, k, at.m0, k0), Factor<ALONG_B>(b, n, k, at.n0, k0), terms, row, col, sums)
    if (!transA && transB) RUN(true, true);
    else if (!transA) RUN(true, false);
    else if (transB) RUN(false, true);
    else RUN(false, false);
#undef RUN
    admit();
    Target<double> target;
    target.c = c + ((i64)at.split * batch + at.matrix) * m * n + at.m0 * n + at.n0;
    target.across = 1;
    target.down = n;
    target.rows = (int)min(m - at.m0, (i64)TILE);
    target.cols = (int)min(n - at.n0, (i64)TILE);
    target.wide = n % 2 == 0 && reinterpret_cast<unsigned long long>(c) % 16 == 0;
    target.epilogue = epilogue.from(at.matrix, at.m0, at.n0);
    store(sums, row, col, target);
}
#define BODY(...) __VA_ARGS__
#else // plans use it nowhere else
#define BODY(...)
#endif

extern "C" __global__ void __launch_bounds__(128, 2) matmul_mma_f64(const double* a, const double* b, double* c, i64 m, i64 n, i64 k, int transA, int transB, int batch,
                                                                     i64 chunk, EPILOGUE_ARGUMENTS(double)) {
    follow();
    BODY(product(a, b, c, m, n, k, transA, transB, batch, chunk, EPILOGUE(double));)
}
