// The kinds of tiles of conv_hopper.cu: how warpgroups multiply them, and where their operands are in shared memory.
#pragma once
#include "matmul_kinds.cuh"
#include "matmul_output.cuh"

// Narrow tiles have 64 rows: both warpgroups multiply the same rows of A, each by its own half of B. The three stages are those of a kind of 128 rows, of which two share memory for A.
template <int TA, int TB> struct Stages<Six<TA, TB, 0>> {
    using K = Six<TA, TB, 0>;
    static constexpr int STAGES = 3, SHARED_A = K::A::BYTES;
    Ring<STAGES> at;
    u32 full, empty;
    u32 memory;
    int group, line;

    static __device__ __forceinline__ u32 a_of(u32 memory, int stage) { return memory + stage / 2 * SHARED_A + stage % 2 * (K::A::PLANE / 2); }
    static __device__ __forceinline__ u32 b_of(u32 memory, int stage, int group) { return memory + 2 * SHARED_A + (2 * stage + group) * K::B::BYTES; }
    __device__ __forceinline__ void wait() { barrier_wait(full + at.stage * 8, at.parity); }
    __device__ __forceinline__ u64 a() const { return K::A::descriptor(a_of(memory, at.stage), 0); }
    __device__ __forceinline__ u64 b() const { return K::B::descriptor(b_of(memory, at.stage, group), 0); }
    __device__ __forceinline__ void release(int stage) {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage * 8, 0);
    }
};

// Kinds of one matrix have CLUSTER 1 if a block is alone on its SM with tiles of 128 rows, NARROW with tiles of 64 rows, as above, and NARROW_PAIR if an SM has two blocks of these: while
// one writes its tile, the other multiplies.
enum { NARROW = 0, NARROW_PAIR = -2 };
template <int CLUSTER> constexpr bool narrow = CLUSTER == NARROW || CLUSTER == NARROW_PAIR;
template <int CLUSTER> constexpr bool paired = CLUSTER < 0;

// PlainStages are stages of A bytes of A each.
template <typename K, int CLUSTER, int A> struct PlainStages {
    static constexpr int SIZE_A = A, BYTES = A + (narrow<CLUSTER> ? 2 : 1) * K::B::BYTES;
    static constexpr int STAGES = (paired<CLUSTER> ? 100 : 200) * 1024 / BYTES;
    Ring<STAGES> at;
    u32 full, empty;
    u32 memory;
    int group, line;

    __device__ __forceinline__ void wait() { barrier_wait(full + at.stage * 8, at.parity); }
    __device__ __forceinline__ u64 a() const { return K::A::descriptor(memory + at.stage * BYTES, narrow<CLUSTER> ? 0 : line); }
    __device__ __forceinline__ u64 b() const { return K::B::descriptor(memory + at.stage * BYTES + A + (narrow<CLUSTER> ? group : 0) * K::B::BYTES, 0); }
    __device__ __forceinline__ void release(int stage) {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage * 8, 0);
    }
};
#define STAGES_OF(CLUSTER) \
    template <int TA, int TB, int SIZE, int BN, bool F16> \
    struct Stages<Plain<TA, TB, SIZE, BN, CLUSTER, F16>> : PlainStages<Plain<TA, TB, SIZE, BN, CLUSTER, F16>, CLUSTER, Piece<128, 128 / SIZE, SIZE, 1, TA, 1>::BYTES / (narrow<CLUSTER> ? 2 : 1)> {};
STAGES_OF(1)
STAGES_OF(NARROW)
STAGES_OF(NARROW_PAIR)

// Three is a b for operands of two BF16 matrices each, x = x0 + x1: a1 b0 + a0 b1 + a0 b0, which is more precise than TF32.
template <int TA, int TB, int BN_, int CLUSTER_> struct Three {
    static constexpr int SIZE = 2, BN = BN_, BK = 32, PLANES = 2, CLUSTER = CLUSTER_;
    static constexpr bool TURNS = false, SHARED = false, F16 = false;
    using A = Piece<narrow<CLUSTER> ? 64 : 128, BK, SIZE, PLANES, TA, 1>;
    using B = Piece<BN, BK, SIZE, PLANES, TB, 1>;
    float sum[BN / 2];

    __device__ __forceinline__ void run(Stages<Three>& s, int steps, int) {
        accumulate(sum, s, steps, [&](u64 a, u64 b, int add) {
#pragma unroll
            for (int p = 2; p >= 0; p--)
#pragma unroll
                for (int l = 0; l < 2; l++) wgmma<SIZE, TA, TB>(sum, a + (p == 2) * A::plane + l * A::step, b + (p == 1) * B::plane + l * B::step, add || p < 2 || l > 0);
        });
    }
    __device__ __forceinline__ float value(int i) const { return sum[i]; }
};
template <int TA, int TB, int BN, int CLUSTER>
struct Stages<Three<TA, TB, BN, CLUSTER>> : PlainStages<Three<TA, TB, BN, CLUSTER>, CLUSTER, Piece<narrow<CLUSTER> ? 64 : 128, 32, 2, 2, TA, 1>::BYTES> {};

// Layout is where a stage's operands are: those of M rows by N columns of a kind's tiles.
template <typename K_> struct Layout {
    using K = K_;
    using S = Stages<K>;
    static constexpr bool NARROW = narrow<K::CLUSTER>;
    static constexpr int M = NARROW ? 64 : 128, N = NARROW ? 2 * K::BN : K::BN, STAGES = S::STAGES, BYTES = S::BYTES, ALL = STAGES * BYTES;
    static constexpr int ROWS = NARROW ? 0 : 64, COLUMNS = NARROW ? K::BN : 0; // to the second warpgroup's part of the tile
    static constexpr int BLOCKS = paired<K::CLUSTER> ? 2 : 1, STAGING = paired<K::CLUSTER> ? 32 * 144 / 4 : Part::SIZE * 4; // blocks of an SM; bytes for what a warp writes
    static __device__ __forceinline__ u32 a(u32 memory, int stage, int plane) { return memory + stage * BYTES + plane * K::A::PLANE; }
    static __device__ __forceinline__ u32 b(u32 memory, int stage, int plane, int half) { return memory + stage * BYTES + S::SIZE_A + half * K::B::BYTES + plane * K::B::PLANE; }
};
template <int TA, int TB> struct Layout<Six<TA, TB, 1>> {
    using K = Six<TA, TB, 1>;
    static constexpr int M = 128, N = K::BN, STAGES = K::STAGES, BYTES = K::STAGE, ALL = STAGES * K::STAGE;
    static constexpr int ROWS = 64, COLUMNS = 0, BLOCKS = 1, STAGING = Part::SIZE * 4;
    static __device__ __forceinline__ u32 a(u32 memory, int stage, int plane) { return memory + stage * K::STAGE + plane * K::A::PLANE; }
    static __device__ __forceinline__ u32 b(u32 memory, int stage, int plane, int) { return memory + stage * K::STAGE + K::A::BYTES + plane * K::B::PLANE; }
};
template <int TA, int TB> struct Layout<Six<TA, TB, 0>> {
    using S = Stages<Six<TA, TB, 0>>;
    using K = typename S::K;
    static constexpr int M = 64, N = 2 * K::BN, STAGES = S::STAGES, BYTES = K::A::BYTES / 2 + 2 * K::B::BYTES, ALL = 2 * S::SHARED_A + 2 * STAGES * K::B::BYTES;
    static constexpr int ROWS = 0, COLUMNS = K::BN, BLOCKS = 1, STAGING = Part::SIZE * 4;
    static __device__ __forceinline__ u32 a(u32 memory, int stage, int plane) { return S::a_of(memory, stage) + plane * K::A::PLANE; }
    static __device__ __forceinline__ u32 b(u32 memory, int stage, int plane, int half) { return S::b_of(memory, stage, half) + plane * K::B::PLANE; }
};
