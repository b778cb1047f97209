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
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

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
// barrier_arrive arrives at the barrier at the same place in a block of the cluster. It
// orders nothing beyond the block, and need not: what consumers have read, wgmma's wait has
// finished, and with cluster scope each arrival and wait costs a fence, 1 us a stage.
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
// warpgroup, 32 bytes along k. TA and TB say that a piece has its elements along m or n
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

// Piece is LINES x BK elements of SIZE bytes in PLANES planes, LINES along m or n. As the
// matrix lies in memory, elements along k are side by side (T = 0: rows of BK), or those along m
// or n (T = 1: blocks of 64 lines, BK rows each). Rows of 64 or 128 bytes are swizzled by
// TMA. SHARE blocks of a cluster fetch a part each.
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

    // descriptor is wgmma's of 32 bytes along k from the lines at line, of plane 0 in the piece
    // at address. plane and step move it.
    static __device__ __forceinline__ u64 descriptor(u32 address, int line) {
        constexpr u64 SWIZZLE = ROW == 128 ? 1 : 2;
        constexpr u64 LEADING = T ? BK * 128 : 16, STRIDE = 8 * ROW;
        address += T ? line / BLOCK * BK * 128 : line * ROW;
        return (address & 0x3ffff) >> 4 | LEADING >> 4 << 16 | STRIDE >> 4 << 32 | SWIZZLE << 62;
    }
    static constexpr int plane = PLANE >> 4;
    static constexpr int step = (T ? 32 / SIZE * 128 : 32) >> 4;
};

// ---- Tiles of C

// Scaling is what was done to float32 operands for their range: each was multiplied by a power of 2,
// and planes are scaled against one another.
struct Scaling {
    int exponents[2];
    int scaled;
};

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

// Ring is a position in the ring of stages.
template <int STAGES> struct Ring {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// ---- Kinds of products: how a warpgroup adds up its 64 rows of a tile

// Stages is what a consumer sees of the ring.
template <typename K> struct Stages {
    Ring<K::STAGES> at;
    u32 full, empty; // barriers, 8 bytes each
    u32 memory;      // of stage 0
    int line;        // of A, where this warpgroup's rows start

    __device__ __forceinline__ void wait() { barrier_wait(full + at.stage * 8, at.parity); }
    __device__ __forceinline__ u64 a() const { return K::A::descriptor(memory + at.stage * K::STAGE, line); }
    __device__ __forceinline__ u64 b() const { return K::B::descriptor(memory + at.stage * K::STAGE + K::A::BYTES, 0); }
    // release gives a stage back to the producers of all blocks that fill it, once each warp has called it.
    __device__ __forceinline__ void release(int stage) {
        const int lane = threadIdx.x % 32;
        if (lane < K::CLUSTER) barrier_arrive(empty + stage * 8, lane);
    }
};

// Plain is a b, added up by the tensor cores.
template <int TA, int TB, int SIZE_, int BN_, int CLUSTER_> struct Plain {
    static constexpr int SIZE = SIZE_, BN = BN_, BK = 128 / SIZE, PLANES = 1, CLUSTER = CLUSTER_, STAGES = 4, ROUND = 1;
    using A = Piece<128, BK, SIZE, PLANES, TA, 1>;
    using B = Piece<BN, BK, SIZE, PLANES, TB, CLUSTER>;
    static constexpr int STAGE = A::BYTES + B::BYTES;
    float sum[BN / 2];

    __device__ __forceinline__ void run(Stages<Plain>& s, int steps, bool) {
        int last = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            s.wait();
            const u64 a = s.a(), b = s.b();
            pin(sum);
            wgmma_fence();
#pragma unroll
            for (int l = 0; l < 4; l++) wgmma<SIZE, TA, TB>(sum, a + l * A::step, b + l * B::step, i > 0 || l > 0);
            wgmma_commit();
            pin(sum);
            if (i > 0) {
                wgmma_wait<1>();
                s.release(last);
            }
            last = s.at.stage;
            s.at.next();
        }
        wgmma_wait<0>();
        pin(sum);
        s.release(last);
    }
    __device__ __forceinline__ float value(int i) const { return sum[i]; }
};

// Six is a b for float32 in three planes, x = x0 + x1 + x2 (see split). Of the nine products of
// planes the six largest count: a0 b0, and the low ones a0 b1, a1 b0, a0 b2, a1 b1, a2 b0.
//
// The tensor cores cut off where FMA rounds, 16 terms at a time. So they add up 32 terms alone, the
// low products first, and additions that round do the rest. What rounding has cut off joins the next
// terms (Kahan's sum), so that long sums lose no more than short ones.
//
// Where numbers are of all sizes, x1 and x2 would lose bits below the least denormal number of
// BF16. Then they are scaled: x = x0 + x1 / 2^8 + x2 / 2^16, and
//
//	high = a0 b0
//	low  = a0 b1 + a1 b0 + (a0 b2 + a1 b1 + a2 b0) / 2^8
//	a b  = high + low / 2^8
//
// So are those of operands that are not finite: high is what IEEE arithmetic gives, and low, which may be
// NaN there, is left out.
template <int TA, int TB, int CLUSTER_> struct Six {
    static constexpr int SIZE = 2, BN = 128, BK = 32, PLANES = 3, CLUSTER = CLUSTER_, STAGES = 4, ROUND = 2;
    using A = Piece<128, BK, SIZE, PLANES, TA, 1>;
    using B = Piece<BN, BK, SIZE, PLANES, TB, CLUSTER>;
    static constexpr int STAGE = A::BYTES + B::BYTES;
    float sum[64], part[64], other[64];

    // multiply starts d += plane i of a * plane j of b, or = without add.
    static __device__ __forceinline__ void multiply(float (&d)[64], u64 a, int i, u64 b, int j, int add = 1) {
#pragma unroll
        for (int l = 0; l < 2; l++)
            wgmma<SIZE, TA, TB>(d, a + i * A::plane + l * A::step, b + j * B::plane + l * B::step, add || l > 0);
    }
    // add is sum += x; x becomes what rounding has cut off. In this form the compiler takes element
    // after element and needs fewer registers.
    static __device__ __forceinline__ void add(float& sum, float& x) {
        asm volatile("{\n.reg .f32 s, t;\nadd.rn.f32 s, %0, %1;\nsub.rn.f32 t, s, %0;\nsub.rn.f32 %1, %1, t;\nmov.f32 %0, s;\n}"
                     : "+f"(sum), "+f"(x));
    }
    // start starts the products of the next stage, in one group, and returns which stage it is.
    static __device__ __forceinline__ int start(Stages<Six>& s, float (&d)[64]) {
        const int now = s.at.stage;
        s.wait();
        const u64 a = s.a(), b = s.b();
        s.at.next();
        pin(d);
        wgmma_fence();
        multiply(d, a, 2, b, 0);
        multiply(d, a, 1, b, 1);
        multiply(d, a, 0, b, 2);
        multiply(d, a, 1, b, 0);
        multiply(d, a, 0, b, 1);
        multiply(d, a, 0, b, 0);
        wgmma_commit();
        return now;
    }
    // finish adds up the products of a stage, while those of LEFT later ones are under way.
    template <int LEFT> __device__ __forceinline__ void finish(Stages<Six>& s, int stage, float (&d)[64]) {
        wgmma_wait<LEFT>();
        pin(d);
        s.release(stage);
#pragma unroll
        for (int e = 0; e < 64; e++) add(sum[e], d[e]);
    }
    // run_plain leaves no products under way from one round to the next: the compiler would not
    // keep to three sets of accumulators. The block's other warpgroup fills the gap.
    __device__ __forceinline__ void run_plain(Stages<Six>& s, int steps) {
#pragma unroll 1
        for (int i = 0; i < steps; i += 2) {
            const int first = start(s, part), second = start(s, other);
            finish<1>(s, first, part);
            finish<0>(s, second, other);
        }
#pragma unroll
        for (int e = 0; e < 64; e++) sum[e] += part[e] + other[e];
    }
    // run_scaled is slower: low products of two scales take turns in part with the high ones.
    __device__ __forceinline__ void run_scaled(Stages<Six>& s, int steps) {
        float(&low)[64] = other;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            s.wait();
            const u64 a = s.a(), b = s.b();
            pin(part);
            wgmma_fence();
            multiply(part, a, 2, b, 0, 0);
            multiply(part, a, 1, b, 1);
            multiply(part, a, 0, b, 2);
            multiply(low, a, 0, b, 1);
            multiply(low, a, 1, b, 0);
            wgmma_commit();
            wgmma_wait<0>();
            pin(part);
            pin(low);
#pragma unroll
            for (int e = 0; e < 64; e++) low[e] = fmaf(part[e], 1.0f / 256, low[e]);
            pin(part);
            pin(low);
            wgmma_fence();
            multiply(part, a, 0, b, 0, 0);
            wgmma_commit();
            wgmma_wait<0>();
            pin(part);
            s.release(s.at.stage);
            s.at.next();
#pragma unroll
            for (int e = 0; e < 64; e++) {
                add(sum[e], part[e]);
                low[e] = fmaf(part[e], 256, low[e]);
            }
        }
#pragma unroll
        for (int e = 0; e < 64; e++)
            if (fabsf(sum[e]) <= 3.4028234664e38f) sum[e] = fmaf(low[e], 1.0f / 256, sum[e]);
    }
    __device__ __forceinline__ void run(Stages<Six>& s, int steps, bool scaled) {
#pragma unroll
        for (int i = 0; i < 64; i++) sum[i] = part[i] = other[i] = 0;
        if (scaled) run_scaled(s, steps);
        else run_plain(s, steps);
    }
    __device__ __forceinline__ float value(int i) const { return sum[i]; }
};

// ---- The kernel

// bf16x2 is two numbers rounded to BF16, the first in the lower half.
__device__ __forceinline__ u32 bf16x2(float low, float high) {
    u32 v = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
#endif
    return v;
}
__device__ __forceinline__ void put(float* c, float x, float y) { *reinterpret_cast<float2*>(c) = make_float2(x, y); }
__device__ __forceinline__ void put(float* c, float x) { *c = x; }
__device__ __forceinline__ void put(u16* c, float x, float y) { *reinterpret_cast<u32*>(c) = bf16x2(x, y); }
__device__ __forceinline__ void put(u16* c, float x) { *c = (u16)bf16x2(x, 0); }

// power is 2^e, e in [-252, 127]; below 2^-126 it is 0 or nearly so.
__device__ __forceinline__ float power(int e) { return __uint_as_float((u32)(max(e, -126) + 127) << 23); }

// store writes the warpgroup's 64 rows of a tile.
template <typename K, typename T> __device__ __forceinline__ void store(const K& sums, const Shape& s, const Tile& to, T* c, int row0) {
    const int t = threadIdx.x % 128, row = row0 + t / 32 * 16 + t % 32 / 4, col = to.n0 + t % 4 * 2;
    c += ((i64)to.split * s.batch + to.matrix) * s.m * s.ld + row * s.ld + col;
    const bool pairs = s.ld % 2 == 0 && s.n % 2 == 0;
    const int exponent = s.range ? -(s.range->exponents[0] + s.range->exponents[1]) : 0;
    const float f = power(exponent / 2), g = power(exponent - exponent / 2);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + 8 * r >= s.m) continue;
#pragma unroll
        for (int j = 0; j < K::BN / 8; j++) {
            T* q = c + 8 * r * s.ld + 8 * j;
            const float x = sums.value(4 * j + 2 * r) * f * g, y = sums.value(4 * j + 2 * r + 1) * f * g;
            if (pairs) {
                if (col + 8 * j < s.n) put(q, x, y);
            } else {
                if (col + 8 * j < s.n) put(q, x);
                if (col + 8 * j + 1 < s.n) put(q + 1, y);
            }
        }
    }
}

extern __shared__ unsigned char dynamic[];

// Dynamic shared memory: the barriers, then the stages, at a multiple of 1024 bytes.
template <typename K> constexpr int shared_bytes = 2048 + K::STAGES * K::STAGE;

template <typename K, typename T> __device__ __forceinline__ void product(const TensorMap* mapA, const TensorMap* mapB, T* c, const Shape& s) {
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
            store(sums, s, to, c, to.m0 + rank * 128 + (group - 1) * 64);
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
#define ENTRY(name, T, CLUSTER, ...)                                                                                           \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(CLUSTER) __launch_bounds__(384, 1) matmul_hopper_##name(                    \
        const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, T* c, const Scaling* range, const int m, const int n, const int k, \
        const int batch, const int chunk, const i64 ld) {                                                                      \
        BODY(product<__VA_ARGS__>(&a, &b, c, Shape{m, n, k, batch, chunk, ld, range});)                                               \
    }
#define TRANSPOSES(name, T, CLUSTER, KIND, ...)               \
    ENTRY(name##_nn, T, CLUSTER, KIND<0, 1, __VA_ARGS__>)      \
    ENTRY(name##_nt, T, CLUSTER, KIND<0, 0, __VA_ARGS__>)      \
    ENTRY(name##_tn, T, CLUSTER, KIND<1, 1, __VA_ARGS__>)      \
    ENTRY(name##_tt, T, CLUSTER, KIND<1, 0, __VA_ARGS__>)
TRANSPOSES(f32, float, 1, Six, 1)
TRANSPOSES(f32_pair, float, 2, Six, 2)
TRANSPOSES(bf16, u16, 2, Plain, 2, 256, 2)
ENTRY(tf32_nt, float, 2, Plain<0, 0, 4, 256, 2>)

// ---- Operands

// bf16 is x rounded to BF16; a finite x stays finite.
__device__ __forceinline__ float bf16(float x) {
    const u32 bits = __float_as_uint(x), round = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return __uint_as_float(bits | 0x7fff0000); // NaN
    if (size >= 0x7f7f8000 && size < 0x7f800000) return __uint_as_float(bits & 0xffff0000);
    return __uint_as_float(round);
}

// Planar is how a matrix is written: times 2^e, x = p[0] + p[1] / scale + p[2] / scale^2. That is exact for
// scale = 2^8 and any finite x, for scale = 1 and |x| >= 2^-109. With whole, p[0] is not 0 unless x is: there
// are infinities to multiply it by.
struct Planar {
    int e;
    float scale;
    bool whole;
    __device__ __forceinline__ void planes(float x, float (&p)[3]) const {
        p[0] = bf16(x);
        p[1] = p[2] = 0;
        if ((__float_as_uint(x) & 0x7f800000) == 0x7f800000) return;
        if (whole && p[0] == 0 && x != 0) p[0] = copysignf(__uint_as_float(0x10000), x);
        const float r = (x - p[0]) * scale;
        p[1] = bf16(r);
        p[2] = bf16((r - p[1]) * scale);
    }
};

// Matrix is rows x cols float32 elements, ld apart, of each of a batch, and where its planes
// go: rows of pitch elements, a multiple of 8.
struct Matrix {
    const float* x;
    u16* to;
    int rows, cols, pitch, batch;
    i64 ld, stride;
};

// Range is the largest and the least size of finite numbers other than 0, as bits, and whether there
// are others.
struct Range {
    u32 most = 0, least = 0x7f800000;
    bool finite = true;
    __device__ __forceinline__ void add(float x) {
        const u32 size = __float_as_uint(x) & 0x7fffffff;
        if (size >= 0x7f800000) {
            finite = false;
        } else if (size > 0) {
            most = max(most, size);
            least = min(least, size);
        }
    }
    // A range in memory has its largest size and, in the sign's bit, whether a number is not finite.
    __device__ __forceinline__ uint2 packed() const { return make_uint2(most | (finite ? 0 : 0x80000000), least); }
    __device__ __forceinline__ void add(uint2 r) {
        most = max(most, r.x & 0x7fffffff);
        least = min(least, r.y);
        finite &= r.x < 0x80000000;
    }
    // join is the range of all threads of the block.
    __device__ void join() {
        __shared__ uint2 warps[8];
        for (int d = 16; d > 0; d /= 2) {
            most = max(most, __shfl_xor_sync(0xffffffff, most, d));
            least = min(least, __shfl_xor_sync(0xffffffff, least, d));
        }
        finite = __all_sync(0xffffffff, finite);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = packed();
        __syncthreads();
        for (int w = 0; w < blockDim.x / 32; w++) add(warps[w]);
        __syncthreads(); // for the next join
    }
    // exponent finds a power of 2 to multiply by that brings all numbers from 2^floor to 2^50, the
    // largest to 2^-30 at least, so that sums of products don't overflow or lose bits as denormal
    // numbers, and reports whether there is one; else it is 0.
    __device__ bool exponent(int floor, int& e) const {
        e = 0;
        if (most == 0 || low() >= floor && high() >= -30 && high() < 50) return true;
        if (low() + 49 - high() < floor) return false;
        e = 49 - high();
        return true;
    }
    // beside lowers the exponent of small numbers so that products with others, up to 2^hi, don't overflow.
    __device__ void beside(int hi, int& e) const {
        if (e > 0) e = max(min(e, 98 - hi - high()), 0);
    }
    // low and high are exponents of the ends, denormal or not.
    __device__ int low() const { return log(least); }
    __device__ int high() const { return log(most); }
    static __device__ int log(u32 bits) { return bits >> 23 ? (int)(bits >> 23) - 127 : -118 - __clz(bits); }
};

// split writes the planes of a matrix, 8 elements a thread, and returns the range of the elements that it
// has read. A matrix has fewer than 2^31 vectors of 8 elements. Without as, planes are those of numbers that
// are neither tiny nor huge, which takes half as long.
__device__ __forceinline__ Range split(const Matrix& a, const Planar* as) {
    const u32 vectors = a.pitch / 8, count = a.batch * a.rows * vectors;
    const i64 plane = (i64)a.rows * a.pitch;
    const bool wide = a.ld % 4 == 0 && a.stride % 4 == 0 && reinterpret_cast<u64>(a.x) % 16 == 0;
    Range range;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 line = i / vectors, matrix = a.batch > 1 ? line / a.rows : 0, row = line - matrix * a.rows;
        const int col = (i - line * vectors) * 8;
        const float* x = a.x + matrix * a.stride + row * a.ld + col;
        float v[8];
        if (wide && col + 8 <= a.cols) {
            *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(x);
            *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(x + 4);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = col + j < a.cols ? x[j] : 0;
        }
        u16* to = a.to + matrix * 3 * plane + (i64)row * a.pitch + col;
        if (!as) {
#pragma unroll
            for (int j = 0; j < 8; j++) range.add(v[j]);
#pragma unroll
            for (int q = 0; q < 3; q++) {
                u32 w[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    w[j] = bf16x2(v[2 * j], v[2 * j + 1]);
                    v[2 * j] -= __uint_as_float(w[j] << 16);
                    v[2 * j + 1] -= __uint_as_float(w[j] & 0xffff0000);
                }
                *reinterpret_cast<uint4*>(to + q * plane) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        } else {
            const float f = power(as->e / 2), g = power(as->e - as->e / 2);
            float p[8][3];
#pragma unroll
            for (int j = 0; j < 8; j++) as->planes(v[j] * f * g, p[j]);
#pragma unroll
            for (int q = 0; q < 3; q++) {
                u32 w[4];
#pragma unroll
                for (int j = 0; j < 4; j++) w[j] = __byte_perm(__float_as_uint(p[2 * j][q]), __float_as_uint(p[2 * j + 1][q]), 0x7632);
                *reinterpret_cast<uint4*>(to + q * plane) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
    return range;
}

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
