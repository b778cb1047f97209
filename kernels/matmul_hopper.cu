// C = op(A) op(B) on the tensor cores of compute capability 9.0: wgmma fed by the
// bulk tensor copy engine (TMA). One kernel family for three kinds of products:
//
//   bf16  BF16 operands, float32 sums
//   tf32  float32 operands rounded to 11 bits, float32 sums; both matrices with
//         their elements along k side by side
//   f32   float32 operands as three BF16 planes each (split), six products
//
// All results are float32.
//
// A block is one producer warp and two consumer warpgroups. The producer keeps a
// ring of STAGES pieces of A and B in shared memory filled; each consumer multiplies 64
// rows of A by all BN columns of B. Blocks are persistent: there are no more than fit on the
// device, and each takes tiles of C a grid apart. Tiles are numbered so that those computed
// at one time share rows of A and columns of B in the level-2 cache. The producer fetches for
// the next tile while the consumers still write the last one. With CLUSTER = 2 two blocks compute tiles one above the
// other; each fetches half of their common piece of B, for both. Sums go to C, through an
// epilogue (epilogue.cuh), by way of shared memory, in lines of 128 bytes.
#include "epilogue.cuh"
#include "follow.cuh"
#include "matmul_kinds.cuh"
#include "matmul_planes.cuh"
#include "matmul_shares.cuh"

// ---- Tiles of C

// Shape holds a product kernel's arguments beside its operands.
struct Shape {
    int m, n, k;
    int batch;
    int chunk; // terms of a split of k, a multiple of BK
    i64 ld;    // of C, whose matrices lie m * ld apart, and the sums of splits batch * m * ld
    const Scaling* range; // of float32 operands, or null
    u16* half;            // where C goes in BF16 too, its rows a multiple of 8 elements, or null
    Shares shares;
};

struct Tile {
    int m0, n0, matrix, split, steps;
};

// Tiles numbers the tiles of C, of CLUSTER * 128 rows each, down groups of rows of tiles.
template <int BN, int STEP, int CLUSTER> struct Tiles {
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
        to.steps = (min(s.k - to.split * s.chunk, s.chunk) + STEP - 1) / STEP;
        return to;
    }
};

// ---- The kernel

// Powers is the power of 2 that sums are multiplied by, in two factors, since it may be beyond a float's range.
struct Powers {
    float f, g;
    __device__ __forceinline__ explicit Powers(const Scaling& range) {
        const int exponent = -(range.exponents[0] + range.exponents[1]);
        f = power(exponent / 2), g = power(exponent - exponent / 2);
    }
};

// Part is the shared memory that a warp writes through: 16 rows and 32 columns at a time.
struct Part {
    static constexpr int LD = 32 + 8, SIZE = 16 * LD; // so that four rows of 8 sums use every bank
};

// bring brings the part-th part of a warp's 16 rows to shared memory.
template <typename K> __device__ __forceinline__ void bring(const K& sums, const Powers& by, int part, float* memory) {
    const int lane = threadIdx.x % 32;
    const u32 to = shared_address(memory + lane / 4 * Part::LD + lane % 4 * 2);
    __syncwarp();
#pragma unroll
    for (int p = 0; p < K::BN / 32; p++) {
        if (p != part) continue;
#pragma unroll
        for (int i = 0; i < 16; i += 2) // in this form the compiler branches rather than selects among sums
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + (i / 2 % 2 * 8 * Part::LD + i / 4 * 8) * 4),
                         "f"(sums.value(p * 16 + i) * by.f * by.g), "f"(sums.value(p * 16 + i + 1) * by.f * by.g) : "memory");
    }
    __syncwarp();
}

// BIAS_RECTIFIER are the steps of an epilogue that adds an operand and makes negative sums 0.
constexpr int BIAS_RECTIFIER = 1 << 16 | 0x61;

// rectified is a sum with a bias, as finish computes these steps.
__device__ __forceinline__ float rectified(float sum, float bias) {
    const float z = add(sum, bias);
    return multiply(add(z, 0.0f), float(z >= 0));
}

// store_wide writes the warp's 16 rows of a tile in lines of 128 bytes, with a bias for each column, from shared memory, and a rectifier, or without.
template <bool RECTIFIED, typename K> __device__ __forceinline__ void store_wide(const K& sums, const Powers& by, const Target<float>& target, float* memory, const float* bias) {
    const int row = threadIdx.x % 32 / 8, col = threadIdx.x % 8 * 4;
#pragma unroll
    for (int part = 0; part < K::BN / 32; part++) {
        bring(sums, by, part, memory);
        Pack<float> x;
        if (RECTIFIED) x.v = *reinterpret_cast<const float4*>(bias + part * 32 + col);
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            if (row + r >= target.rows || part * 32 + col >= target.cols) continue;
            Pack<float> y;
            y.v = *reinterpret_cast<const float4*>(memory + (row + r) * Part::LD + col);
#pragma unroll
            for (int e = 0; RECTIFIED && e < 4; e++) y.s[e] = rectified(y.s[e], x.s[e]);
            *reinterpret_cast<float4*>(target.c + (row + r) * target.down + part * 32 + col) = y.v;
        }
    }
}

// Share is what a lane has of an operand of an epilogue: 16 bytes of every fourth row of a part.
struct Share {
    const float* p; // the first
    i64 row, part, col;
    bool wide;
    __device__ __forceinline__ Share(const Operand<float>& x, int r, int c) : p(x.x + r * x.row + c * x.col), row(4 * x.row), part(32 * x.col), col(x.col) {
        wide = col == 1 && row % 4 == 0 && reinterpret_cast<u64>(p) % 16 == 0;
    }
    // load reads the share of a part, with so many rows and columns inside C from the first on; the others become 0.
    __device__ __forceinline__ void load(float (&to)[16], int i, int rows, int cols) const {
        const float* q = p + i * part;
#pragma unroll
        for (int u = 0; u < 4; u++, q += row) {
            if (4 * u >= rows) continue;
            if (wide && cols >= 4) {
                Pack<float> v;
                v.v = *reinterpret_cast<const float4*>(q);
#pragma unroll
                for (int e = 0; e < 4; e++) to[4 * u + e] = v.s[e];
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (e < cols) to[4 * u + e] = q[e * col];
            }
        }
    }
};

// Line is the part of an epilogue's first operand that belongs to a tile's columns, in shared memory, where that operand is the same in
// all rows of C. Each warp brings its own while the products are under way.
template <typename K> struct Line {
    static constexpr int SIZE = K::LINE ? K::BN : 0;
    static __device__ __forceinline__ bool of(const Epilogue<float>& e) { return K::LINE && e.steps >= 1 << 16 && e.x.row == 0; }
    static __device__ __forceinline__ void fetch(const Epilogue<float>& e, const Shape& s, const Tile& tile, float* line) {
        if (!of(e)) return;
        const int lane = threadIdx.x % 32;
        const float* const x = e.x.x + tile.matrix * e.x.matrix;
        __syncwarp(); // all have read the last tile's
#pragma unroll
        for (int i = lane; i < SIZE; i += 32) {
            const bool inside = tile.n0 + i < s.n;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(line + i)),
                         "l"(inside ? x + (tile.n0 + i) * e.x.col : x), "r"(inside ? 4 : 0) : "memory");
        }
    }
    // wait waits for it, before the first column is read.
    static __device__ __forceinline__ void wait() {
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();
    }
};

// store writes the warpgroup's 64 rows of a tile. Steps of an epilogue, which are many instructions, are in a loop; without
// them rows that begin anywhere are written by single elements, side by side.
template <typename K>
__device__ __forceinline__ void store(const K& sums, const Powers& by, const Shape& s, const Tile& to, float* c, int row0, const Epilogue<float>& epilogue, float* memory, const float* line) {
    const int lane = threadIdx.x % 32;
    row0 += threadIdx.x % 128 / 32 * 16;
    Target<float> target;
    target.c = c + ((i64)to.split * s.batch + to.matrix) * s.m * s.ld + row0 * s.ld + to.n0;
    target.across = 1;
    target.down = s.ld;
    target.rows = s.m - row0;
    target.cols = s.n - to.n0;
    target.wide = s.ld % 4 == 0 && s.n % 4 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
    target.epilogue = epilogue.from(to.matrix, row0, to.n0);
    const bool lined = Line<K>::of(epilogue);
    if (lined) Line<K>::wait();
    if (epilogue.steps == 0 && target.wide && !s.half) {
        store_wide<false>(sums, by, target, memory, nullptr);
        return;
    }
    if (K::LINE && lined && epilogue.steps == BIAS_RECTIFIER && target.wide && !s.half) {
        store_wide<true>(sums, by, target, memory, line);
        return;
    }
    const int row = lane / 8, col = lane % 8 * 4;
    if (epilogue.steps != 0 || s.half) {
        const Share x(target.epilogue.x, row, col), y(target.epilogue.y, row, col);
        float* q = target.c + row * s.ld + col;
#pragma unroll 1
        for (int part = 0; part < K::BN / 32; part++, q += 32) {
            const int inside = target.cols - part * 32 - col;
            float a[16] = {}, b[16] = {}, v[16];
            if (lined) {
                Pack<float> f;
                f.v = *reinterpret_cast<const float4*>(line + part * 32 + col);
#pragma unroll
                for (int i = 0; i < 16; i++) a[i] = f.s[i % 4];
            } else if (target.epilogue.steps >= 1 << 16) {
                x.load(a, part, target.rows - row, inside); // on their way while sums are brought
            }
            if (target.epilogue.steps >= 2 << 16) y.load(b, part, target.rows - row, inside);
            bring(sums, by, part, memory);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                Pack<float> f;
                f.v = *reinterpret_cast<const float4*>(memory + (row + 4 * u) * Part::LD + col);
#pragma unroll
                for (int e = 0; e < 4; e++) v[4 * u + e] = f.s[e];
            }
            if (target.epilogue.steps == BIAS_RECTIFIER) {
#pragma unroll
                for (int i = 0; i < 16; i++) v[i] = rectified(v[i], a[i]);
            } else {
                finish(target.epilogue.steps & 0xffff, v, a, b);
            }
#pragma unroll
            for (int u = 0; u < 4; u++) {
                if (row + 4 * u >= target.rows) continue;
                float* const to = q + 4 * u * s.ld;
                if (target.wide) {
                    if (inside > 0) *reinterpret_cast<float4*>(to) = make_float4(v[4 * u], v[4 * u + 1], v[4 * u + 2], v[4 * u + 3]);
                } else {
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (e < inside) to[e] = v[4 * u + e];
                }
                if (s.half && inside > 0)
                    *reinterpret_cast<uint2*>(s.half + (to - c)) = make_uint2(bf16x2(v[4 * u], v[4 * u + 1]), bf16x2(v[4 * u + 2], v[4 * u + 3]));
            }
        }
        return;
    }
#pragma unroll 1
    for (int part = 0; part < K::BN / 32; part++) {
        bring(sums, by, part, memory);
        const int col0 = part * 32;
        if (col0 + lane >= target.cols) continue;
#pragma unroll 4
        for (int r = 0; r < min(16, target.rows); r++) target.c[r * s.ld + col0 + lane] = memory[r * Part::LD + lane];
    }
}

extern __shared__ unsigned char dynamic[];

// product runs a block. Its dynamic shared memory: the barriers, then the stages, at a multiple of 1024 bytes, then
// a Part and a Line for each of the consumers' warps.
template <typename K>
__device__ __forceinline__ void product(const TensorMap* mapA, const TensorMap* mapB, const TensorMap* againA, const TensorMap* againB, float* c, const Shape& s, const Epilogue<float>& epilogue) {
    constexpr int CLUSTER = K::CLUSTER, STAGES = K::STAGES;
    const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, full = start, empty = start + STAGES * 8, memory = start + 1024;
    u32 rank = 0;
    if (CLUSTER > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        if (K::PLANES == 1) map_ahead(mapA), map_ahead(mapB);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 8 * CLUSTER); // the consumers' warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    cluster_sync<CLUSTER>();
    follow();
    Scaling range{}; // loaded while the first stages are under way
    if (K::PLANES == 3) range = *s.range;

    const Tiles<K::BN, K::BK, CLUSTER> tiles(s);
    Walk<K::BK> walk(s.shares, tiles.count, s.k, CLUSTER);
    const int group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<24>();
        if (threadIdx.x == 0) {
            Ring<STAGES> at;
            const TensorMap* const fromA = range.again(0) ? againA : mapA;
            const TensorMap* const fromB = range.again(1) ? againB : mapB;
#pragma unroll 1
            for (Section part; walk.next(part);) {
                Tile to = tiles[part.tile];
                if (part.steps > 0) to.steps = part.steps;
                const int k0 = to.split * s.chunk + part.k0, row = to.m0 + rank * 128;
#pragma unroll 1
                for (int l = 0; l < to.steps; l++, at.next()) {
                    const u32 bar = full + at.stage * 8, stage = memory + at.stage * K::STAGE;
                    barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(bar, K::STAGE);
                    K::A::fetch_part(stage, fromA, bar, row, k0 + l * K::BK, to.matrix, 0);
                    K::B::fetch_part(stage + K::A::BYTES, fromB, bar, to.n0, k0 + l * K::BK, to.matrix, rank);
                }
            }
        }
        __syncwarp();
    } else {
        registers_up<240>();
        const int number = group - 1;
        const Powers by(range);
        const int form = K::form(range, s.k);
        Stages<K> stages{{}, full, empty, memory, number, number * 64};
        float* const own = reinterpret_cast<float*>(dynamic + (memory - shared_address(dynamic)) + STAGES * K::STAGE) + (threadIdx.x / 32 - 4) * (Part::SIZE + Line<K>::SIZE);
        float* const line = own + Part::SIZE;
        const bool turns = K::TURNS && walk.any();
        if (turns && number == 1) turn_pass(1);
#pragma unroll 1
        for (Section part; walk.next(part);) {
            Tile to = tiles[part.tile];
            if (part.steps > 0) to.steps = part.steps;
            Line<K>::fetch(epilogue, s, to, line);
            K sums;
            sums.run(stages, to.steps, form);
            if constexpr (K::SHARED) {
                if (part.parts > 1 && !gather<2 * CLUSTER>(sums.sum, s.shares, part, rank * 2 + number, number)) continue;
            }
            store(sums, by, s, to, c, to.m0 + rank * 128 + number * 64, epilogue, own, line);
        }
        if (turns && number == 0) turn_wait(0);
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
// Arguments that only some kinds have: products of planes take the scaling of their operands, and the maps of planes
// that were written again, and share tiles; products of rounded operands take the place of the result in BF16, used if halves is set.
#define AGAIN_OF_Six const __grid_constant__ TensorMap againA, const __grid_constant__ TensorMap againB,
#define AGAIN_OF_Plain
#define RANGE_OF_Six const Scaling *range,
#define RANGE_OF_Plain
#define HALVES_OF_Six , const int shared, float *parts, int *arrivals
#define HALVES_OF_Plain , u16 *half, const int halves
#define SHAPE_OF_Six &againA, &againB, c, Shape{m, n, k, batch, chunk, ld, range, nullptr, {shared, parts, arrivals}}
#define SHAPE_OF_Plain nullptr, nullptr, c, Shape{m, n, k, batch, chunk, ld, nullptr, halves ? half : nullptr, {}}
#define ENTRY(name, CLUSTER, KIND, ...)                                                                                                     \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(CLUSTER) __launch_bounds__(384, 1) matmul_hopper_##name(                                \
        const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AGAIN_OF_##KIND float* c, RANGE_OF_##KIND const int m,  \
        const int n, const int k, const int batch, const int chunk, const i64 ld, EPILOGUE_ARGUMENTS(float) HALVES_OF_##KIND) {                            \
        BODY(product<KIND<__VA_ARGS__>>(&a, &b, SHAPE_OF_##KIND, EPILOGUE(float));)                                                       \
    }
#define TRANSPOSES(name, CLUSTER, KIND, ...)              \
    ENTRY(name##_nn, CLUSTER, KIND, 0, 1, __VA_ARGS__)    \
    ENTRY(name##_nt, CLUSTER, KIND, 0, 0, __VA_ARGS__)    \
    ENTRY(name##_tn, CLUSTER, KIND, 1, 1, __VA_ARGS__)    \
    ENTRY(name##_tt, CLUSTER, KIND, 1, 0, __VA_ARGS__)
TRANSPOSES(f32, 1, Six, 1)
TRANSPOSES(f32_pair, 2, Six, 2)
TRANSPOSES(bf16_narrow, 1, Plain, 2, 64, 1)
TRANSPOSES(bf16_one, 1, Plain, 2, 128, 1)
TRANSPOSES(bf16, 2, Plain, 2, 256, 2)
ENTRY(tf32_narrow_nt, 1, Plain, 0, 0, 4, 64, 1)
ENTRY(tf32_one_nt, 1, Plain, 0, 0, 4, 128, 1)
ENTRY(tf32_nt, 2, Plain, 0, 0, 4, 256, 2)

// split writes the planes of both operands of a product, the first blocksA blocks those of A, and to ranges the
// range of the numbers that each block has read. If all blocks are A's, there is no B. rescale writes planes again
// where the ranges, countA and countB of them, ask for it, and records that in scaling. With apart, planes that are right but
// for infinities and NaN stay as they are. It clears what the product counts arrivals in.
#define OPERANDS                                                                         \
    const float *a, u16 *planesA, int rowsA, int colsA, int pitchA, i64 ldA, i64 strideA, \
    const float *b, u16 *planesB, int rowsB, int colsB, int pitchB, i64 ldB, i64 strideB, int batch
#define OPERAND(second)                                                                                                            \
    (Matrix{second ? b : a, second ? planesB : planesA, second ? rowsB : rowsA, second ? colsB : colsA, second ? pitchB : pitchA, batch, \
            second ? ldB : ldA, second ? strideB : strideA})
extern "C" __global__ void __launch_bounds__(256, 4) matmul_hopper_split(OPERANDS, const int blocksA, uint2* ranges) {
    admit(); // all blocks are on the device at once
    follow();
    const bool second = blockIdx.x >= blocksA;
    Range range = split<2>(OPERAND(second), nullptr, second ? blockIdx.x - blocksA : blockIdx.x, second ? gridDim.x - blocksA : blocksA);
    range.join();
    if (threadIdx.x == 0) ranges[blockIdx.x] = range.packed();
}
extern "C" __global__ void __launch_bounds__(256)
    matmul_hopper_rescale(OPERANDS, const uint2* rangesA, const int countA, const uint2* rangesB, const int countB, Scaling* scaling, const int apart, int* arrivals, const int count) {
    admit();
    follow();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) arrivals[i] = 0;
    Range range[2];
    for (int i = threadIdx.x; i < countA; i += blockDim.x) range[0].add(rangesA[i]);
    for (int i = threadIdx.x; i < countB; i += blockDim.x) range[1].add(rangesB[i]);
    range[0].join();
    range[1].join();
    int e[2];
    const bool finite = range[0].finite && range[1].finite;
    const bool plain = range[0].exponent(-109, e[0]) & range[1].exponent(-109, e[1]) & (finite || apart);
    if (!plain) {
        const bool fits[] = {range[0].exponent(-125, e[0]), range[1].exponent(-125, e[1])};
        if (!fits[0]) range[1].beside(range[0].high(), e[1]);
        if (!fits[1]) range[0].beside(range[1].high(), e[0]);
    }
    const Scaling as{{e[0], e[1]}, !plain ? Scaling::SCALED : finite ? Scaling::PLAIN : Scaling::APART};
    if (blockIdx.x == 0 && threadIdx.x == 0) *scaling = as;
#pragma unroll 1
    for (int second = 0; second < 2; second++) {
        const Planar planar{second ? e[1] : e[0], plain ? 1.0f : 256.0f, !finite};
        if (as.again(second)) split<1>(OPERAND(second), &planar, blockIdx.x, gridDim.x);
    }
}
