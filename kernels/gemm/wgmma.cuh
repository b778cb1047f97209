// The instructions under kernels on the tensor cores of compute capability 9.0: barriers in shared
// memory, bulk tensor copies (TMA), products of warpgroups (wgmma) and the pieces of matrices
// that they work on.
#pragma once
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// TensorMap is the driver's CUtensorMap, which it encodes and TMA reads.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// ---- Barriers and copies

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// barrier_arrive arrives at the barrier at the same address in a block of the cluster. It
// orders no memory operations beyond the block, and need not: wgmma's wait guarantees that the consumers'
// reads have finished, and with cluster scope each arrival and wait would cost a fence, 1 us a stage.
__device__ __forceinline__ void barrier_arrive(u32 bar, u32 block) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(bar), "r"(block) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n}" ::"r"(bar), "r"(parity) : "memory");
}

// fetch copies a box of a tensor to shared memory, of this block or of all blocks in mask.
template <bool MULTICAST>
__device__ __forceinline__ void fetch(u32 to, const TensorMap* map, u32 bar, int x, int y, int plane, int matrix, u16 mask) {
    if (MULTICAST)
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(plane), "r"(matrix), "h"(mask)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(plane), "r"(matrix)
            : "memory");
}

template <int CLUSTER> __device__ __forceinline__ void cluster_sync() {
    if (CLUSTER == 1) {
        __syncthreads();
        return;
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <int R> __device__ __forceinline__ void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> __device__ __forceinline__ void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }

// Two warpgroups take turns: turn_wait waits for the other's turn_pass. Group 1 passes the first turn to group 0 before
// the loop, and group 0 takes the last one after it, so that passes and waits come in pairs.
__device__ __forceinline__ void turn_wait(int group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory"); }
__device__ __forceinline__ void turn_pass(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory"); }

// ---- wgmma

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// pin keeps the compiler from moving uses of accumulators across the wait before it.
template <int N> __device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D32(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24)
#define D64 D32(0), D32(32)
#define D128 D32(0), D32(32), D32(64), D32(96)
#define L64                                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define L128                                                                         \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// wgmma starts d = a b, or d += a b where add is not 0: 64 x N elements over a
// warpgroup, 32 bytes along k. TA and TB are set if a piece has its elements along m or n
// side by side. Thread t holds in d[4 j + 2 r + e] the element in row t / 4 % 8 + 8 r of the
// 16 rows of its warp and column 8 j + t % 4 * 2 + e.
template <int SIZE, int TA, int TB> __device__ __forceinline__ void wgmma(float (&d)[64], u64 a, u64 b, int add) {
    if constexpr (SIZE == 2)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " L64 ", %64, %65, p, 1, 1, %67, %68;\n}"
                     : D64 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 " L64 ", %64, %65, p, 1, 1;\n}"
                     : D64 : "l"(a), "l"(b), "r"(add));
}
template <int SIZE, int TA, int TB> __device__ __forceinline__ void wgmma(float (&d)[128], u64 a, u64 b, int add) {
    if constexpr (SIZE == 2)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " L128 ", %128, %129, p, 1, 1, %131, %132;\n}"
                     : D128 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 " L128 ", %128, %129, p, 1, 1;\n}"
                     : D128 : "l"(a), "l"(b), "r"(add));
}

// ---- Pieces of the operands in shared memory

// Piece is LINES x BK elements of SIZE bytes in PLANES planes, LINES along m or n. They keep the order
// of the matrix in memory: elements along k side by side (T = 0: rows of BK), or those along m
// or n (T = 1: blocks of 64 lines, BK rows each). TMA swizzles rows of 64 or 128 bytes.
// SHARE blocks of a cluster fetch a part each.
template <int LINES, int BK, int SIZE, int PLANES, int T, int SHARE> struct Piece {
    static constexpr int ROW = T ? 128 : BK * SIZE, BLOCK = 128 / SIZE;
    static constexpr int PLANE = LINES * BK * SIZE, BYTES = PLANE * PLANES;
    static_assert(ROW == 128 || ROW == 64, "a row is as long as a swizzle");
    static_assert(!T || SIZE == 2, "wgmma transposes 16-bit elements alone");

    // fetch starts the copies of the part-th part of the piece at (line, k0).
    static __device__ __forceinline__ void fetch_part(u32 to, const TensorMap* map, u32 bar, int line, int k0, int matrix, int part) {
        constexpr u16 ALL = (1 << SHARE) - 1;
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++, to += PLANE) {
            if (T) {
#pragma unroll
                for (int i = 0; i < LINES / BLOCK / SHARE; i++) {
                    const int block = part * (LINES / BLOCK / SHARE) + i;
                    fetch<(SHARE > 1)>(to + block * BK * 128, map, bar, line + block * BLOCK, k0, plane, matrix, ALL);
                }
            } else {
                fetch<(SHARE > 1)>(to + part * (LINES / SHARE) * ROW, map, bar, k0, line + part * (LINES / SHARE), plane, matrix, ALL);
            }
        }
    }

    // descriptor is wgmma's descriptor of 32 bytes along k, from line on, of plane 0 of the piece at
    // address. Adding plane or step moves it to the next plane or the next 32 bytes.
    static __device__ __forceinline__ u64 descriptor(u32 address, int line) {
        constexpr u64 SWIZZLE = ROW == 128 ? 1 : 2;
        constexpr u64 LEADING = T ? BK * 128 : 16, STRIDE = 8 * ROW;
        address += T ? line / BLOCK * BK * 128 : line * ROW;
        return (address & 0x3ffff) >> 4 | LEADING >> 4 << 16 | STRIDE >> 4 << 32 | SWIZZLE << 62;
    }
    static constexpr int plane = PLANE >> 4;
    static constexpr int step = (T ? 32 / SIZE * 128 : 32) >> 4;
};
