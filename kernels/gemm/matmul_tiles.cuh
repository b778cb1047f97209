// A product C = op(A) op(B) whose blocks compute one tile of C each: the tile and
// its factors, the pieces of the factors on their way to shared memory, and the
// entry points, for the numbered versions.
#pragma once
#include "async.cuh"
#include "vector.cuh"

typedef long long i64;

// Factor is op(A) or op(B)^T: element (x, l), x along C's rows or columns, at
// p[x * sx + l * sl]; one of the strides is 1.
template <typename T> struct Factor {
    const T* p;
    i64 size, sx, sl; // size: of x
    __device__ T operator()(i64 x, i64 l) const { return p[x * sx + l * sl]; }
};

// Product is the work of a block: the BM x BN tile of C at (row, col), for one
// matrix of the batch. Tiles are numbered down groups of 8 rows of tiles, so that
// the blocks at work at one time share their factors in the level-2 cache.
template <typename T, int BM, int BN> struct Product {
    Factor<T> a, b;
    T* c;
    i64 m, n, k, row, col;
    __device__ Product(const T* pa, const T* pb, T* pc, i64 m, i64 n, i64 k, int transA, int transB) : m(m), n(n), k(k) {
        constexpr i64 GROUP = 8;
        const i64 tilesM = (m + BM - 1) / BM, tilesN = (n + BN - 1) / BN, tiles = tilesM * tilesN;
        const i64 matrix = blockIdx.x / tiles, t = blockIdx.x % tiles, in = t % (GROUP * tilesN);
        const i64 top = t / (GROUP * tilesN) * GROUP, rows = min(tilesM - top, GROUP);
        row = (top + in % rows) * BM;
        col = in / rows * BN;
        a = {pa + matrix * m * k, m, transA ? 1 : k, transA ? m : 1};
        b = {pb + matrix * k * n, n, transB ? k : 1, transB ? 1 : n};
        c = pc + matrix * m * n;
    }
};

struct AsyncCopy {
    template <typename U> __device__ void operator()(U* to, const U* from, bool inside) const { async_copy(to, from, inside); }
};

extern __shared__ double dynamic[];

// pipeline calls work(a, b) for pieces of both factors in shared memory, one after
// the other, S deep, while the next STAGES - 1 are on their way. It needs dynamic
// shared memory for STAGES pieces of each.
template <int S, int STAGES, typename T, typename PA, typename PB, typename Work>
__device__ __forceinline__ void pipeline(PA a, PB b, i64 k, T* s, Work work) {
    constexpr int STAGE = PA::SIZE + PB::SIZE;
    i64 left = k;
    const auto fetch = [&](int stage) {
        if (left > 0) {
            const int now = (int)min(left, (i64)S);
            a.fetch(now, s + stage * STAGE, AsyncCopy());
            b.fetch(now, s + stage * STAGE + PA::SIZE, AsyncCopy());
            left -= S;
        }
        commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    int stage = 0;
#pragma unroll 1
    for (i64 l = 0; l < k; l += S) {
        arrived<STAGES - 2>(); // this thread's copies of the stage; the barrier: everyone's
        __syncthreads();       // and everyone has multiplied the stage that is filled now
        fetch(stage == 0 ? STAGES - 1 : stage - 1);
        work(s + stage * STAGE, s + stage * STAGE + PA::SIZE);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
}

// Kept is a thread's share in fetching L x S pieces of a factor in the order that
// they have in memory: rows of one x (ALONG) or of one l, 16 bytes at a time where
// all rows start at a multiple of 16 bytes. The lanes' loads of a fragment, 8
// x and 4 l, then hit every bank once.
template <typename T, int L, int S, int THREADS, bool ALONG> struct Kept {
    static constexpr int W = Vec<T>::width, ROWS = ALONG ? L : S, COLS = ALONG ? S : L;
    static constexpr int LD = ALONG ? S + 4 : L + 32 / sizeof(T), SIZE = L * (S + 4);
    static_assert(LD * ROWS <= SIZE && ROWS * COLS % (THREADS * W) == 0 && THREADS * W % COLS == 0, "threads share the piece evenly");
    const T* p; // the thread's first element
    i64 ld;
    int row, col, xs; // its place in the piece; the x inside the matrix
    bool wide;

    __device__ Kept(const Factor<T>& f, i64 x0, int t) : ld(ALONG ? f.sx : f.sl) {
        wide = ld % W == 0 && reinterpret_cast<unsigned long long>(f.p) % 16 == 0;
        const int e = wide ? t * W : t;
        row = e / COLS;
        col = e % COLS;
        xs = (int)min(f.size - x0, (i64)L);
        p = f.p + row * ld + col + x0 * f.sx;
    }
    static __device__ constexpr int at(int l, int x) { return ALONG ? x * LD + l : l * LD + x; }

    template <typename U, typename Copier> __device__ void fetch_as(int rows, int cols, T* s, Copier copy) {
        constexpr int STEP = THREADS * sizeof(U) / sizeof(T) / COLS;
        s += row * LD + col;
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP)
            copy(reinterpret_cast<U*>(s + r * LD), reinterpret_cast<const U*>(p + r * ld), row + r < rows && col < cols);
    }
    template <typename Copier> __device__ void fetch(int left, T* s, Copier copy) {
        const int rows = ALONG ? xs : left, cols = ALONG ? left : xs;
        if (wide) fetch_as<typename Vec<T>::type>(rows, cols, s, copy);
        else fetch_as<T>(rows, cols, s, copy);
        p += ALONG ? S : S * ld;
    }
};

// ENTRY is an entry point: name, element type, threads of a block, blocks on a
// multiprocessor, tile, and the function that a block runs.
#define ENTRY(name, T, THREADS, BLOCKS, BM, BN, ...)                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) matmul_##name(                                      \
        const T* a, const T* b, T* c, i64 m, i64 n, i64 k, int transA, int transB) {                                  \
        __VA_ARGS__(Product<T, BM, BN>(a, b, c, m, n, k, transA, transB));                                            \
    }
