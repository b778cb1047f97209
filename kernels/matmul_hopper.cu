// C = op(A) op(B) on the tensor cores of compute capability 9.0: wgmma fed by the
// bulk tensor copy engine (TMA). One kernel family for three kinds of products:
//
//   bf16  BF16 operands, float32 sums
//   tf32  float32 operands rounded to 11 bits, float32 sums; both matrices with
//         their elements along k side by side
//   f32   float32 operands as three BF16 planes each (split), six products
//
// A block is one producer warp and two consumer warpgroups. The producer keeps a
// ring of STAGES pieces of A and B in shared memory filled; each consumer multiplies 64
// rows of A by all BN columns of B. Blocks are persistent: each takes every so many
// tiles of C, numbered so that the tiles computed at one time share rows of A and
// columns of B in the level-2 cache, and the producer fetches for the next tile
// while consumers write the last one. With CLUSTER = 2 two blocks compute tiles one above the
// other; each fetches half of their common piece of B, for both.
//
// All have an epilogue (epilogue.cuh).
#include "epilogue.cuh"
#include "matmul_kinds.cuh"
#include "matmul_planes.cuh"

// ---- Tiles of C

// Shape is what a product kernel is given beside its operands.
struct Shape {
    int m, n, k;
    int batch;
    int chunk; // terms of a split of k, a multiple of BK * ROUND
    i64 ld;    // of C, whose matrices lie m * ld apart; each split's sums, batch * m * ld
    const Scaling* range; // of float32 operands, or null
};

struct Tile {
    int m0, n0, matrix, split, steps;
};

// Tiles numbers the tiles of C, of CLUSTER * 128 rows each, down groups of rows of tiles.
template <int BN, int STEP, int ROUND, int CLUSTER> struct Tiles {
    static constexpr int GROUP = 16 / CLUSTER;
    Shape s;
    int down, across, count;
    __device__ Tiles(const Shape& s) : s(s) {
        down = (s.m + CLUSTER * 128 - 1) / (CLUSTER * 128);
        across = (s.n + BN - 1) / BN;
        count = down * across * s.batch * ((s.k + s.chunk - 1) / s.chunk);
    }
    __device__ __forceinline__ Tile operator[](int i) const {
        const int in = i % (down * across), rest = i / (down * across);
        const int top = in / (GROUP * across) * GROUP, rows = min(down - top, GROUP), t = in % (GROUP * across);
        Tile to;
        to.m0 = (top + t % rows) * (CLUSTER * 128);
        to.n0 = t / rows * BN;
        to.matrix = rest % s.batch;
        to.split = rest / s.batch;
        to.steps = (min(s.k - to.split * s.chunk, s.chunk) + STEP * ROUND - 1) / (STEP * ROUND) * ROUND;
        return to;
    }
};

// ---- The kernel

// Powers is the power of 2 to multiply sums by, in two factors.
struct Powers {
    float f, g;
    __device__ __forceinline__ explicit Powers(const Scaling* range) {
        const int exponent = range ? -(range->exponents[0] + range->exponents[1]) : 0;
        f = power(exponent / 2), g = power(exponent - exponent / 2);
    }
};

// Part is what a warp has of shared memory for writing: 16 rows and 32 columns at a time.
struct Part {
    static constexpr int LD = 32 + 4, SIZE = 16 * LD; // so that the lanes' rows begin in other banks
};

// bring brings a warp's part of its 16 rows to shared memory.
template <typename K> __device__ __forceinline__ void bring(const K& sums, const Powers& by, int part, float* memory) {
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < K::BN / 2; i += 2) {
        const int row = lane / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2;
        const float2 v = make_float2(sums.value(i) * by.f * by.g, sums.value(i + 1) * by.f * by.g);
        if (i / 16 == part) *reinterpret_cast<float2*>(memory + row * Part::LD + col % 32) = v;
    }
    __syncwarp();
}

// store_lines writes rows that begin anywhere, a warp's lanes side by side.
template <typename K> __device__ __forceinline__ void store_lines(const K& sums, const Shape& s, const Tile& to, float* c, int row0, float* memory) {
    const int lane = threadIdx.x % 32;
    const Powers by(s.range);
    row0 += threadIdx.x % 128 / 32 * 16;
    c += ((i64)to.split * s.batch + to.matrix) * s.m * s.ld + row0 * s.ld + to.n0 + lane;
#pragma unroll 1
    for (int part = 0; part < K::BN / 32; part++) {
        bring(sums, by, part, memory);
        if (to.n0 + part * 32 + lane >= s.n) continue;
#pragma unroll 4
        for (int r = 0; r < min(16, s.m - row0); r++) c[r * s.ld + part * 32] = memory[r * Part::LD + lane];
    }
}

// store writes the warpgroup's 64 rows of a tile; n is even.
template <typename K> __device__ __forceinline__ void store(const K& sums, const Shape& s, const Tile& to, float* c, int row0) {
    const int t = threadIdx.x % 128, row = row0 + t / 32 * 16 + t % 32 / 4, col = to.n0 + t % 4 * 2;
    c += ((i64)to.split * s.batch + to.matrix) * s.m * s.ld + row * s.ld + col;
    const bool pairs = s.ld % 2 == 0;
    const Powers by(s.range);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + 8 * r >= s.m) continue;
#pragma unroll
        for (int j = 0; j < K::BN / 8; j++) {
            float* q = c + 8 * r * s.ld + 8 * j;
            if (col + 8 * j >= s.n) continue;
            const float x = sums.value(4 * j + 2 * r) * by.f * by.g, y = sums.value(4 * j + 2 * r + 1) * by.f * by.g;
            if (pairs) *reinterpret_cast<float2*>(q) = make_float2(x, y);
            else q[0] = x, q[1] = y;
        }
    }
}

// store_finished writes them with an epilogue by way of shared memory, so that steps, which are many
// instructions, are in a loop.
template <typename K>
__device__ __forceinline__ void store_finished(const K& sums, const Shape& s, const Tile& to, float* c, int row0, const Epilogue<float>& epilogue,
                                               float* memory) {
    const int lane = threadIdx.x % 32;
    const Powers by(s.range);
    row0 += threadIdx.x % 128 / 32 * 16;
    Target<float> target;
    target.c = c + ((i64)to.split * s.batch + to.matrix) * s.m * s.ld + row0 * s.ld + to.n0;
    target.across = 1;
    target.down = s.ld;
    target.rows = s.m - row0;
    target.cols = s.n - to.n0;
    target.wide = s.ld % 4 == 0 && s.n % 4 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
    target.epilogue = epilogue.from(to.matrix, row0, to.n0);
#pragma unroll 1
    for (int part = 0; part < K::BN / 32; part++) {
        bring(sums, by, part, memory);
#pragma unroll 1
        for (int i = lane * 4; i < 16 * 32; i += 256) {
            const int rows[] = {i / 32, i / 32 + 4}, cols[] = {part * 32 + i % 32, part * 32 + i % 32};
            Pack<float> v[2];
#pragma unroll
            for (int u = 0; u < 2; u++) v[u].v = *reinterpret_cast<const float4*>(memory + rows[u] * Part::LD + i % 32);
            target.finish(rows, cols, v);
        }
    }
}

extern __shared__ unsigned char dynamic[];

// Dynamic shared memory: the barriers, then the stages, at a multiple of 1024 bytes; with an epilogue, what
// the consumers' warps need for it.
template <typename K> constexpr int shared_bytes = 2048 + K::STAGES * K::STAGE;

template <typename K>
__device__ __forceinline__ void product(const TensorMap* mapA, const TensorMap* mapB, float* c, const Shape& s, const Epilogue<float>& epilogue) {
    constexpr int CLUSTER = K::CLUSTER, STAGES = K::STAGES;
    const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, full = start, empty = start + STAGES * 8, memory = start + 1024;
    u32 rank = 0;
    if (CLUSTER > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 8 * CLUSTER); // the consumers' warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    cluster_sync<CLUSTER>();

    const Tiles<K::BN, K::BK, K::ROUND, CLUSTER> tiles(s);
    const int first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    const int group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<24>();
        if (threadIdx.x == 0) {
            Ring<STAGES> at;
#pragma unroll 1
            for (int i = first; i < tiles.count; i += step) {
                const Tile to = tiles[i];
                const int k0 = to.split * s.chunk, row = to.m0 + rank * 128;
#pragma unroll 1
                for (int l = 0; l < to.steps; l++, at.next()) {
                    const u32 bar = full + at.stage * 8, stage = memory + at.stage * K::STAGE;
                    barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(bar, K::STAGE);
                    K::A::fetch_part(stage, mapA, bar, row, k0 + l * K::BK, to.matrix, 0);
                    K::B::fetch_part(stage + K::A::BYTES, mapB, bar, to.n0, k0 + l * K::BK, to.matrix, rank);
                }
            }
        }
        __syncwarp();
    } else {
        registers_up<240>();
        Stages<K> stages{{}, full, empty, memory, (group - 1) * 64};
#pragma unroll 1
        for (int i = first; i < tiles.count; i += step) {
            const Tile to = tiles[i];
            K sums;
            sums.run(stages, to.steps, s.range && s.range->scaled);
            const int row = to.m0 + rank * 128 + (group - 1) * 64;
            if (epilogue.steps != 0 || s.n % 2 != 0) {
                unsigned char* const after = dynamic + (memory - shared_address(dynamic)) + STAGES * K::STAGE;
                float* const own = reinterpret_cast<float*>(after) + (threadIdx.x / 32 - 4) * Part::SIZE;
                if (epilogue.steps != 0) store_finished(sums, s, to, c, row, epilogue, own);
                else store_lines(sums, s, to, c, row, own);
                continue;
            }
            store(sums, s, to, c, row);
        }
    }
    if (CLUSTER > 1) cluster_sync<CLUSTER>(); // no block ends while another fills its memory or arrives at its barriers
}

// Other devices have other instructions: the entry points are empty there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__
#define BLOCKS_OF_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define BODY(...)
#define BLOCKS_OF_CLUSTER(n)
#endif
#define SCALING_OF_Six const Scaling *range,
#define RANGE_OF_Six range
#define SCALING_OF_Plain
#define RANGE_OF_Plain nullptr
#define ENTRY(name, CLUSTER, KIND, ...)                                                                                              \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(CLUSTER) __launch_bounds__(384, 1) matmul_hopper_##name(                          \
        const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, SCALING_OF_##KIND const int m,         \
        const int n, const int k, const int batch, const int chunk, const i64 ld, EPILOGUE_ARGUMENTS(float)) {                     \
        BODY(product<KIND<__VA_ARGS__>>(&a, &b, c, Shape{m, n, k, batch, chunk, ld, RANGE_OF_##KIND}, EPILOGUE(float));)            \
    }
#define TRANSPOSES(name, CLUSTER, KIND, ...)           \
    ENTRY(name##_nn, CLUSTER, KIND, 0, 1, __VA_ARGS__) \
    ENTRY(name##_nt, CLUSTER, KIND, 0, 0, __VA_ARGS__) \
    ENTRY(name##_tn, CLUSTER, KIND, 1, 1, __VA_ARGS__) \
    ENTRY(name##_tt, CLUSTER, KIND, 1, 0, __VA_ARGS__)
TRANSPOSES(f32, 1, Six, 1)
TRANSPOSES(f32_pair, 2, Six, 2)
TRANSPOSES(bf16, 2, Plain, 2, 256, 2)
TRANSPOSES(bf16_one, 1, Plain, 2, 128, 1)
ENTRY(tf32_nt, 2, Plain, 0, 0, 4, 256, 2)
ENTRY(tf32_one_nt, 1, Plain, 0, 0, 4, 128, 1)

// split writes the planes of both operands of a product, blocks (x, 0) of the one, blocks (x, 1)
// of the other, and to ranges what range of numbers each block has found. rescale writes the planes
// again if the ranges ask for it, and to scaling what it did.
#define OPERANDS                                                                         \
    const float *a, u16 *planesA, int rowsA, int colsA, int pitchA, i64 ldA, i64 strideA, \
    const float *b, u16 *planesB, int rowsB, int colsB, int pitchB, i64 ldB, i64 strideB, int batch
#define OPERAND                                                                         \
    (blockIdx.y == 0 ? Matrix{a, planesA, rowsA, colsA, pitchA, batch, ldA, strideA}     \
                     : Matrix{b, planesB, rowsB, colsB, pitchB, batch, ldB, strideB})
extern "C" __global__ void __launch_bounds__(256) matmul_hopper_split(OPERANDS, uint2* ranges) {
    Range range = split(OPERAND, nullptr);
    range.join();
    if (threadIdx.x == 0) ranges[blockIdx.y * gridDim.x + blockIdx.x] = range.packed();
}
extern "C" __global__ void __launch_bounds__(256) matmul_hopper_rescale(OPERANDS, const uint2* ranges, const int count, Scaling* scaling) {
    Range range[2];
    for (int y = 0; y < 2; y++) {
        for (int i = threadIdx.x; i < count; i += blockDim.x) range[y].add(ranges[y * count + i]);
        range[y].join();
    }
    int e[2];
    const bool finite = range[0].finite && range[1].finite;
    const bool plain = range[0].exponent(-109, e[0]) & range[1].exponent(-109, e[1]) & finite;
    if (!plain) {
        const bool fits[] = {range[0].exponent(-125, e[0]), range[1].exponent(-125, e[1])};
        for (int y = 0; y < 2; y++)
            if (!fits[y]) range[1 - y].beside(range[y].high(), e[1 - y]);
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *scaling = Scaling{{e[0], e[1]}, !plain};
    const Planar as{blockIdx.y == 0 ? e[0] : e[1], plain ? 1.0f : 256.0f, !finite};
    if (as.e != 0 || !plain) split(OPERAND, &as);
}
