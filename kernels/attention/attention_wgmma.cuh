// Products of warpgroups for attention: 16-bit operands of either type, the second one from shared memory, the first from there or from registers.
#pragma once
#include "attention_tensor.cuh"
#include "wgmma.cuh"

#define LIST32                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// multiply starts d = a b, or d += a b where add is not 0: 64 x N elements over a warpgroup, 16 terms of BF16 or, HALF, F16. TA and TB are set if an operand has its
// elements along m or n contiguous. Four registers of a hold elements of a warp's 16 rows as mma.sync has them.
#define SHARED_OPERANDS(COUNT, N, LIST, LISTED, A, B, ADD, TRANSA, TRANSB)                                                                     \
    template <bool HALF, int TA, int TB> __device__ __forceinline__ void multiply(float (&d)[COUNT], u64 a, u64 b, int add) {                  \
        if constexpr (HALF)                                                                                                                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32.f16.f16 " LIST ", " A   \
                         ", " B ", p, 1, 1, " TRANSA ", " TRANSB ";\n}" : LISTED : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));                \
        else                                                                                                                                   \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32.bf16.bf16 " LIST ", " A \
                         ", " B ", p, 1, 1, " TRANSA ", " TRANSB ";\n}" : LISTED : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));                \
    }
SHARED_OPERANDS(32, "64", LIST32, D32(0), "%32", "%33", "%34", "%35", "%36")
SHARED_OPERANDS(64, "128", L64, D64, "%64", "%65", "%66", "%67", "%68")

#define REGISTER_OPERANDS(COUNT, N, LIST, LISTED, A, B, ADD, TRANSB)                                                                          \
    template <bool HALF, int TB> __device__ __forceinline__ void multiply(float (&d)[COUNT], const u32 (&a)[4], u64 b, int add) {              \
        if constexpr (HALF)                                                                                                                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32.f16.f16 " LIST ", " A   \
                         ", " B ", p, 1, 1, " TRANSB ";\n}" : LISTED : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB)); \
        else                                                                                                                                   \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32.bf16.bf16 " LIST ", " A \
                         ", " B ", p, 1, 1, " TRANSB ";\n}" : LISTED : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB)); \
    }
REGISTER_OPERANDS(32, "64", LIST32, D32(0), "{%32, %33, %34, %35}", "%36", "%37", "%38")
REGISTER_OPERANDS(64, "128", L64, D64, "{%64, %65, %66, %67}", "%68", "%69", "%70")

// describe is wgmma's descriptor of a tile in shared memory of panels of 64 columns, 128 bytes a row, swizzled by TMA. Of contiguous elements along k, 16 terms are
// 32 bytes of a row; ACROSS, 16 terms are 16 rows, and panels of ROWS rows follow one another along m or n.
template <int ROWS, bool ACROSS> __device__ __forceinline__ u64 describe(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)((ACROSS ? ROWS * 128 : 16) >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void pin(u32 (&d)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("" : "+r"(d[i])::"memory");
}

// Position is one in a ring of stages.
template <int STAGES> struct Position {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// arrive arrives at a barrier of the block. release arrives for a warp, after the warp's accesses to shared memory.
__device__ __forceinline__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void release(u32 bar) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(bar);
}

// barriers_ready makes barriers that thread 0 has initialized visible to the block and to TMA.
__device__ __forceinline__ void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// Panels is a tile of ROWS rows of D columns in shared memory, panels of 64 columns one after the other.
template <int ROWS, int D> struct Panels {
    static constexpr int BYTES = ROWS * D * 2;
    static __device__ __forceinline__ void fetch_rows(u32 to, const TensorMap* map, u32 bar, int row, int head, int batch) {
#pragma unroll
        for (int i = 0; i < D / 64; i++) fetch<false>(to + i * ROWS * 128, map, bar, i * 64, row, head, batch, 0);
    }
    // terms is the offset in descriptors of 16 terms along the rows' elements, lines that of 16 rows as terms.
    static constexpr __device__ __forceinline__ u64 terms(int l) { return l / 4 * (ROWS * 128 >> 4) + l % 4 * 2; }
    static constexpr __device__ __forceinline__ u64 lines(int l) { return l * (16 * 128 >> 4); }
};

// scores starts s = a b^T, of 64 rows of a tile of A rows and all rows of a tile of B rows.
template <bool HALF, int D, int A, int B> __device__ __forceinline__ void scores(float (&s)[B / 2], u32 a, u32 b) {
    const u64 x = describe<A, false>(a), y = describe<B, false>(b);
#pragma unroll
    for (int l = 0; l < D / 16; l++) multiply<HALF, 0, 0>(s, x + Panels<A, D>::terms(l), y + Panels<B, D>::terms(l), l > 0);
}

// weigh_rows starts o += w b, or o = w b where add is 0, of 64 x B weights in registers and B rows.
template <bool HALF, int D, int B> __device__ __forceinline__ void weigh_rows(float (&o)[D / 2], u32 (&w)[B / 16][4], u32 b, int add) {
    const u64 y = describe<B, true>(b);
#pragma unroll
    for (int l = 0; l < B / 16; l++) multiply<HALF, 1>(o, w[l], y + Panels<B, D>::lines(l), add || l > 0);
}

template <int N> __device__ __forceinline__ void pin(u32 (&w)[N][4]) {
#pragma unroll
    for (int l = 0; l < N; l++) pin(w[l]);
}

// Other devices have other instructions: the entry points are empty there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__
#else
#define BODY(...)
#endif
