// What versions 8 to 14 of MatMul have in common, beside the instructions in ../wgmma.cuh: C = A B of n x n matrices in BF16, with sums and C in
// float32, on the tensor cores of compute capability 9.0. n is a multiple of the tiles' sides.
//
// There a warpgroup, four warps, starts a product of 64 x N x 16 elements (wgmma) that reads both factors from shared memory, and
// goes on while the tensor cores work; its sums are in registers, N / 2 a thread.
#pragma once
#include "wgmma.cuh"
typedef long long i64;

// Pieces of A and B are 64 terms deep: in BF16 128 bytes, as long as the swizzle, which exchanges the 16-byte parts of each row by the row's number,
// so that tensor cores read parts of eight rows from different banks. As the matrices lie in memory, a piece of A has its terms side by side, one
// of B its columns.
constexpr int DEPTH = 64;
template <int ROWS> using PieceA = Piece<ROWS, DEPTH, 2, 1, 0, 1>;
template <int COLS, int SHARE = 1> using PieceB = Piece<COLS, DEPTH, 2, 1, 1, SHARE>;

// multiply starts sums += 64 rows of a piece of A, from row on, times a piece of B; or sums = without add.
template <typename A, typename B, int N> __device__ __forceinline__ void multiply(float (&sums)[N], u32 a, int row, u32 b, bool add) {
    const u64 x = A::descriptor(a, row), y = B::descriptor(b, 0);
#pragma unroll
    for (int l = 0; l < DEPTH / 16; l++) wgmma<2, 0, 1>(sums, x + l * A::step, y + l * B::step, add || l > 0);
}

// store writes the 64 rows of sums of a warpgroup to C: four threads write 32 bytes of a row.
template <int N> __device__ __forceinline__ void store(float* c, int n, int row, int col, const float (&sums)[N]) {
    const int t = threadIdx.x % 128;
    c += (i64)(row + t / 32 * 16 + t % 32 / 4) * n + col + t % 4 * 2;
#pragma unroll
    for (int i = 0; i < N; i += 2) *reinterpret_cast<float2*>(c + i / 2 % 2 * 8 * n + i / 4 * 8) = make_float2(sums[i], sums[i + 1]);
}

// Ring is a place in a ring of stages, and the parity of the turn: barrier_wait waits for the end of a barrier's phase of that parity.
template <int STAGES> struct Ring {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// Barriers are those of a ring of stages, in dynamic shared memory: full counts the bytes that TMA has brought to a stage, empty the warps that have read
// it. The stages follow, at a multiple of 1024 bytes.
template <int STAGES> struct Barriers {
    u32 full, empty, memory;
    __device__ __forceinline__ Barriers(unsigned char* dynamic, int readers) {
        full = (shared_address(dynamic) + 1023) / 1024 * 1024, empty = full + STAGES * 8, memory = full + 1024;
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++) {
                barrier_init(full + i * 8, 1);
                barrier_init(empty + i * 8, readers);
            }
            asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory"); // TMA sees them too
        }
    }
};
extern __shared__ unsigned char dynamic[];

// Tiles numbers tiles of ROWS x COLS elements of C down groups of GROUP rows of tiles, so that many with successive numbers lie in about a square.
template <int ROWS, int COLS, int GROUP> struct Tiles {
    int down, across;
    __device__ __forceinline__ explicit Tiles(int n) : down(n / ROWS), across(n / COLS) {}
    __device__ __forceinline__ int count() const { return down * across; }
    __device__ __forceinline__ int top(int i) const { return i / (GROUP * across) * GROUP; } // of the group
    __device__ __forceinline__ int rows(int i) const { return min(down - top(i), GROUP); }
    __device__ __forceinline__ int row(int i) const { return (top(i) + i % (GROUP * across) % rows(i)) * ROWS; }
    __device__ __forceinline__ int col(int i) const { return i % (GROUP * across) / rows(i) * COLS; }
};

// Other devices don't have these instructions: the entry points are empty there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ON_HOPPER(...) __VA_ARGS__
#define BLOCKS_OF_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define ON_HOPPER(...)
#define BLOCKS_OF_CLUSTER(n)
#endif
