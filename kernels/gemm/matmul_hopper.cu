// C = op(A) op(B) on the tensor cores of compute capability 9.0: wgmma fed by the
// bulk tensor copy engine (TMA). One kernel family for three kinds of products:
//
//   bf16  BF16 operands, float32 sums; f16 the same in F16
//   tf32  float32 operands rounded to 11 bits, float32 sums; both matrices with
//         their elements along k side by side
//   f32   float32 operands as three BF16 planes each (split), six products
//
// Results are float32, or BF16 for bf16, F16 for f16.
//
// A block is one producer warp and two consumer warpgroups. The producer keeps a
// ring of STAGES pieces of A and B in shared memory filled; each consumer multiplies 64
// rows of A by all BN columns of B. Blocks are persistent: the grid fits on the device
// at once, and each block computes tiles of C in a grid-stride loop. Tiles are numbered so that those computed
// at one time share rows of A and columns of B in the level-2 cache. The producer fetches for
// the next tile while the consumers still write the last one. Two blocks of a cluster compute tiles one above the
// other, or side by side; each fetches half of their common piece of B, or A, for both. Of rounded operands the blocks of a
// cluster can also divide K, and add up their sums (matmul_clusters.cuh). Sums go to C, through an epilogue, by way of shared memory, in lines of 128 bytes (matmul_output.cuh).
//stheno:targets sm_80 sm_90a ptx
#include "follow.cuh"
#include "matmul_clusters.cuh"
#include "matmul_rescale.cuh"

extern __shared__ unsigned char dynamic[];

// product runs a block. Its dynamic shared memory: the barriers, then the stages, at a multiple of 1024 bytes, then
// a Part and a Line for each of the consumers' warps.
template <typename K>
__device__ __forceinline__ void product(const TensorMap* mapA, const TensorMap* mapB, const TensorMap* againA, const TensorMap* againB, float* c, const Shape& s, const Cluster& of, const Epilogue<float>& epilogue) {
    constexpr int STAGES = K::STAGES;
    const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, full = start, empty = start + STAGES * 8, memory = start + 1024;
    if (threadIdx.x == 32 && K::PLANES == 1) map_ahead(mapA), map_ahead(mapB);
    if (threadIdx.x < STAGES) {
        barrier_init(full + threadIdx.x * 8, 1);
        barrier_init(empty + threadIdx.x * 8, 8 * of.sources()); // the consumers' warps
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (K::SHARED) follow(); // a walk of shared tiles branches
    const Places<K::BN, K::BK> tiles(s, of);
    Walk<K::BK> walk(s.shares, tiles.count, s.k, of.blocks());
    Section part{};
    bool any = walk.next(part);
    Place to;
    if (!K::SHARED) to = tiles[part]; // before the wait; others have no registers for it
    if (of.shared()) cluster_sync<2>();
    else __syncthreads();
    const Inbox<K> inbox(of, s.k, memory);
    if (of.parts > 1) inbox.open();
    if (!K::SHARED) follow();
    Scaling range{}; // loaded while the first stages are under way
    if (K::PLANES == 3) range = *s.range;

    const int group = threadIdx.x / 128;
    if (group == 0) {
        registers_down<K::PLANES == 3 ? 24 : 40>();
        if (threadIdx.x == 0) {
            Ring<STAGES> at;
            const TensorMap* const fromA = range.again(0) ? againA : mapA;
            const TensorMap* const fromB = range.again(1) ? againB : mapB;
            const u16 above = of.above(), beside = of.beside();
#pragma unroll 1
            for (bool next = K::SHARED; any; any = walk.next(part), next = true) {
                if (next) to = tiles[part];
#pragma unroll 1
                for (int l = 0; l < to.steps; l++, at.next()) {
                    const u32 bar = full + at.stage * 8, stage = memory + at.stage * K::STAGE;
                    barrier_wait(empty + at.stage * 8, at.parity ^ 1);
                    barrier_expect(bar, K::STAGE);
                    if constexpr (K::PLANES == 3) {
                        K::A::fetch_part(stage, fromA, bar, to.m0, to.k0 + l * K::BK, to.matrix, 0);
                        K::B::fetch_part(stage + K::A::BYTES, fromB, bar, to.n0, to.k0 + l * K::BK, to.matrix, of.row());
                    } else {
                        fetch_share<128, K::BK, K::TRANS_A>(stage, fromA, bar, to.m0, to.k0 + l * K::BK, to.matrix, of.col(), of.logAcross, beside);
                        fetch_share<K::BN, K::BK, K::TRANS_B>(stage + K::A::BYTES, fromB, bar, to.n0, to.k0 + l * K::BK, to.matrix, of.row(), of.logDown, above);
                    }
                }
            }
            if constexpr (K::PLANES == 1) {
                if constexpr (K::SIZE == 2) admit(); // little is left to do; steps in TF32 took longer with it
            }
        }
        __syncwarp();
        if (of.parts > 1) inbox.ready(), inbox.closed(); // as in join
    } else {
        registers_up<K::PLANES == 3 ? 240 : 232>();
        const int number = group - 1;
        const int form = K::form(range, s);
        Stages<K> stages{{}, full, empty, memory, number, number * 64};
        if constexpr (!K::SHARED) stages.sources = of.sources(), stages.source = of.source(threadIdx.x % 32);
        float* const own = reinterpret_cast<float*>(dynamic + (memory - shared_address(dynamic)) + STAGES * K::STAGE) + (threadIdx.x / 32 - 4) * (Part::SIZE + Line<K>::SIZE);
        float* const line = own + Part::SIZE;
        const bool turns = K::TURNS && any;
        if (turns && number == 1) turn_pass(1);
#pragma unroll 1
        for (bool next = K::SHARED; any; any = walk.next(part), next = true) {
            if (next) to = tiles[part];
            Line<K>::fetch(epilogue, s, to, line);
            K sums;
            sums.run(stages, to.steps, form);
            if constexpr (K::SHARED) {
                if (part.parts > 1 && !gather<2 * K::CLUSTER>(sums.sum, s.shares, part, of.rank * 2 + number, number)) continue;
            } else {
                if (of.parts > 1 && !join(sums, of, inbox)) continue;
            }
            if constexpr (K::PLANES == 3) {
                const float unit = range.unit();
#pragma unroll
                for (float& x : sums.sum) x *= unit;
            }
            store(sums, range, s, to, c, to.m0 + number * 64, epilogue, own, line);
        }
        if (turns && number == 0) turn_wait(0);
    }
    if (of.shared()) cluster_sync<2>(); // no block ends while another fills its memory or arrives at its barriers
}

// Other devices have other instructions: the entry points are empty there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__
#define BLOCKS_OF_Six(n) __cluster_dims__(n, 1, 1)
#else
#define BODY(...)
#define BLOCKS_OF_Six(n)
#endif
#define BLOCKS_OF_Rounded(n) // a launch sets them; n is 0 where their number differs
// Arguments that only some kinds have: products of planes take the scaling of their operands, and the maps of planes
// that were written again, and share tiles; products of rounded operands take the place of the result in 16 bits, and what is in 16 bits.
#define AGAIN_OF_Six const __grid_constant__ TensorMap againA, const __grid_constant__ TensorMap againB,
#define AGAIN_OF_Rounded
#define RANGE_OF_Six const Scaling *range,
#define RANGE_OF_Rounded
#define HALVES_OF_Six , const int shared, float *parts, int *arrivals
#define HALVES_OF_Rounded , u16 *half, const int halves, const int cluster
#define SHAPE_OF_Six &againA, &againB, c, Shape{m, n, k, batch, chunk, ld, range, nullptr, 0, {shared, parts, arrivals}}
#define CLUSTER_OF_Six(n) Cluster(n - 1 | 1 << 8)
#define SHAPE_OF_Rounded nullptr, nullptr, c, Shape{m, n, k, batch, chunk, ld, nullptr, halves & (HALF_ALSO | HALF_ALONE) ? half : nullptr, halves, {}}
#define CLUSTER_OF_Rounded(n) Cluster(n > 0 ? n - 1 | 1 << 8 : cluster)
#define ENTRY(name, CLUSTER, KIND, ...)                                                                                                     \
    extern "C" __global__ void BLOCKS_OF_##KIND(CLUSTER) __launch_bounds__(384, 1) matmul_hopper_##name(                                \
        const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AGAIN_OF_##KIND float* c, RANGE_OF_##KIND const int m,  \
        const int n, const int k, const int batch, const int chunk, const i64 ld, EPILOGUE_ARGUMENTS(float) HALVES_OF_##KIND) {                            \
        BODY(product<KIND<__VA_ARGS__>>(&a, &b, SHAPE_OF_##KIND, CLUSTER_OF_##KIND(CLUSTER), EPILOGUE(float));)                                                       \
    }
#define TRANSPOSES(name, CLUSTER, KIND, ...)              \
    ENTRY(name##_nn, CLUSTER, KIND, 0, 1, __VA_ARGS__)    \
    ENTRY(name##_nt, CLUSTER, KIND, 0, 0, __VA_ARGS__)    \
    ENTRY(name##_tn, CLUSTER, KIND, 1, 1, __VA_ARGS__)    \
    ENTRY(name##_tt, CLUSTER, KIND, 1, 0, __VA_ARGS__)
TRANSPOSES(f32, 1, Six, 1, true)
TRANSPOSES(f32_pair, 2, Six, 2, true)
TRANSPOSES(bf16_narrow, 0, Rounded, 2, 64)
TRANSPOSES(bf16_one, 0, Rounded, 2, 128)
TRANSPOSES(bf16_mid, 0, Rounded, 2, 192)
TRANSPOSES(bf16, 0, Rounded, 2, 256)
TRANSPOSES(f16_narrow, 0, Rounded, 2, 64, true)
TRANSPOSES(f16_one, 0, Rounded, 2, 128, true)
TRANSPOSES(f16_mid, 0, Rounded, 2, 192, true)
TRANSPOSES(f16, 0, Rounded, 2, 256, true)
ENTRY(tf32_narrow_nt, 1, Rounded, 0, 0, 4, 64)
ENTRY(tf32_one_nt, 1, Rounded, 0, 0, 4, 128)
ENTRY(tf32_nt, 2, Rounded, 0, 0, 4, 256)

// split writes the planes of both operands of a product, the first blocksA blocks those of A, and to ranges the
// range of the numbers that each block has read. If all blocks are A's, there is no B. rescale writes planes again
// where the ranges, countA and countB of them, ask for it, and records that in scaling. columnsA and columnsB say whether lines of the
// operands, rows of op(A) and columns of op(B), are columns in memory. For apart and preferred see Scales. It clears what the product counts
// arrivals in.
#define OPERANDS                                                                         \
    const float *a, u16 *planesA, int rowsA, int colsA, int pitchA, i64 ldA, i64 strideA, \
    const float *b, u16 *planesB, int rowsB, int colsB, int pitchB, i64 ldB, i64 strideB, int batch
#define OPERAND(second)                                                                                                            \
    (Matrix{second ? b : a, second ? planesB : planesA, second ? rowsB : rowsA, second ? colsB : colsA, second ? pitchB : pitchA, batch, \
            second ? ldB : ldA, second ? strideB : strideA})
extern "C" __global__ void __launch_bounds__(256, 4) matmul_hopper_split(OPERANDS, const int blocksA, uint2* ranges) {
    admit(); // all blocks are on the device at once
    follow();
#if __CUDA_ARCH__ >= 800
    const bool second = blockIdx.x >= blocksA;
    Range range = split<2>(OPERAND(second), second ? blockIdx.x - blocksA : blockIdx.x, second ? gridDim.x - blocksA : blocksA);
    range.join();
    if (threadIdx.x == 0) ranges[blockIdx.x] = range.packed();
#endif
}
extern "C" __global__ void __launch_bounds__(256, 2)
    matmul_hopper_rescale(OPERANDS, const uint2* rangesA, const int countA, const uint2* rangesB, const int countB, const int columnsA, const int columnsB, const int preferred,
                          Scaling* scaling, const int apart, int* arrivals, const int count) {
    admit();
    follow();
#if __CUDA_ARCH__ >= 800
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) arrivals[i] = 0;
    Range range[2];
#pragma unroll 8
    for (int i = threadIdx.x; i < countA; i += blockDim.x) range[0].add(rangesA[i]);
#pragma unroll 8
    for (int i = threadIdx.x; i < countB; i += blockDim.x) range[1].add(rangesB[i]);
    range[0].join();
    range[1].join();
    const Scales scales(range, apart, preferred, ldA ? SHIFT : 0, ldB ? SHIFT : 0); // planes that a generated kernel has stored have the numbers themselves
    const Scaling as{scales.form, scales.rewritten, scales.lines, scales.open ? (int)gridDim.x : 0};
    if (blockIdx.x == 0 && threadIdx.x == 0) *scaling = as;
#pragma unroll 1
    for (int second = 0; second < 2; second++) {
        if (!as.again(second)) continue;
        const bool lines = second == as.lines;
        const bool high = rescale(OPERAND(second), scales, second ? columnsB : columnsA, lines ? scaling->exponents() : nullptr, blockIdx.x, gridDim.x);
        if (lines && threadIdx.x == 0) scaling->found()[blockIdx.x] = high;
    }
#endif
}
