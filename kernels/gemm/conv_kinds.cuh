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

// Turned is the product of two TF32 operands whose rows along K are not contiguous, which wgmma takes in 16 bits alone: windows of GROUPS * 64 channels and gradients of BN filters, 64 pixels at a time. A warpgroup
// loads its 64 channels to registers. Two warps transpose the gradients, and one is the producer, as its copies are many. Eight pixels of an instruction are in the order 0, 2, 4, 6, 1, 3, 5, 7, with which
// no two threads of a load meet in a bank. Boxes that TMA copies are 64 pixels of 128 bytes.
template <int GROUPS_, int BN_> struct Turned {
    static constexpr int GROUPS = GROUPS_, BN = BN_, BK = 64, BOX = BK * 128;
    static constexpr bool SHARED = false;
    float sum[BN / 2];
};

// Square is 32 pixels of 32 filters that a warp transposes. Eight threads load eight lines of four pixels at once, and store eight lines of four filters.
struct Square {
    float v[2][4][4];
    __device__ __forceinline__ void load(u32 at) {
        const int lane = threadIdx.x % 32, c = lane % 8;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int a = (c >> 2 | c & 2) ^ (lane / 8 + 4 * u); // four pixels, see Turned
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int pixel = a / 2 * 8 + 2 * j + a % 2;
                asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[u][j][0]), "=f"(v[u][j][1]), "=f"(v[u][j][2]), "=f"(v[u][j][3]) : "r"(at + pixel * 128 + (c ^ pixel & 7) * 16) : "memory");
            }
        }
    }
    __device__ __forceinline__ void store(u32 at) const {
        const int lane = threadIdx.x % 32, c = lane % 8;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int a = (c >> 2 | c & 2) ^ (lane / 8 + 4 * u);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int filter = 4 * c + e;
                asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at + filter * 128 + (a ^ filter & 7) * 16), "f"(v[u][0][e]), "f"(v[u][1][e]), "f"(v[u][2][e]), "f"(v[u][3][e]) : "memory");
            }
        }
    }
};

// turn transposes the gradients of a stage. Square 2 w + s has pixels 32 s and on of filters 32 w and on. It moves to square BN / 32 s + w, where all filters are lines at one distance. Each of the two
// warps has the squares of its own cycles of this permutation.
template <int BN> __device__ __forceinline__ void turn(u32 memory, int warp) {
    Square x, y;
    if constexpr (BN == 64) {
        const u32 first = memory + warp * 4096, second = memory + (3 - warp) * 4096;
        x.load(first), y.load(second);
        __syncwarp();
        x.store(warp == 0 ? first : second), y.store(warp == 0 ? second : first);
    } else {
        static_assert(BN == 128, "the cycles of eight squares");
        const u32 alone = memory + 7 * warp * 4096, first = memory + (1 + 2 * warp) * 4096, second = memory + (4 + warp) * 4096, third = memory + (2 + 4 * warp) * 4096;
        x.load(alone), y.load(first);
        __syncwarp();
        x.store(alone), x.load(second);
        __syncwarp();
        y.store(second), y.load(third);
        __syncwarp();
        x.store(third), y.store(first);
    }
}

// wgmma_rows is wgmma for an operand of 64 rows in registers, in TF32.
#define WGMMA_ROWS(SUMS, N, LIST, REGISTERS, A0, A1, A2, A3, B, ADD)                                                        \
    __device__ __forceinline__ void wgmma_rows(float (&d)[SUMS], const u32 (&a)[4], u64 b, int add) {                       \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                      \
                     "wgmma.mma_async.sync.aligned.m64n" N "k8.f32.tf32.tf32 " LIST ", {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1;\n}" \
                     : REGISTERS : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                           \
    }
WGMMA_ROWS(32, "64", L32, D32(0), "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_ROWS(64, "128", L64, D64, "%64", "%65", "%66", "%67", "%68", "%69")

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
template <int GROUPS, int BN> struct Layout<Turned<GROUPS, BN>> {
    using K = Turned<GROUPS, BN>;
    static constexpr int M = BN, N = GROUPS * 64, BYTES = (M + N) * 4 * K::BK, STAGES = 200 * 1024 / BYTES;
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
