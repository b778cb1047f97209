// The kinds of products of matmul_hopper.cu: how a warpgroup adds up its 64 rows of a tile
// from the stages that the producer fills.
#pragma once
#include "matmul_planes.cuh"
#include "wgmma.cuh"

// map_ahead brings a tensor's map, which the first copy would wait for.
__device__ __forceinline__ void map_ahead(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

#define L32                                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define L96                                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}"
#define D96 D64, D32(64)
// wgmma for 64 x 64 elements.
template <int SIZE, int TA, int TB> __device__ __forceinline__ void wgmma(float (&d)[32], u64 a, u64 b, int add) {
    if constexpr (SIZE == 2)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " L32 ", %32, %33, p, 1, 1, %35, %36;\n}"
                     : D32(0) : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 " L32 ", %32, %33, p, 1, 1;\n}"
                     : D32(0) : "l"(a), "l"(b), "r"(add));
}

// wgmma for 64 x 192 elements, in BF16 alone.
template <int SIZE, int TA, int TB> __device__ __forceinline__ void wgmma(float (&d)[96], u64 a, u64 b, int add) {
    static_assert(SIZE == 2, "there are no entry points in TF32");
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 " L96 ", %96, %97, p, 1, 1, %99, %100;\n}"
                 : D96 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
}

// wgmma_f16 is wgmma for operands in F16.
#define WGMMA_F16(SUMS, N, LIST, REGISTERS, A, B, ADD, TRANS_A, TRANS_B)                                                        \
    template <int TA, int TB> __device__ __forceinline__ void wgmma_f16(float (&d)[SUMS], u64 a, u64 b, int add) {              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                          \
                     "wgmma.mma_async.sync.aligned.m64n" N "k16.f32.f16.f16 " LIST ", " A ", " B ", p, 1, 1, " TRANS_A ", " TRANS_B ";\n}" \
                     : REGISTERS : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));                                                 \
    }
WGMMA_F16(32, "64", L32, D32(0), "%32", "%33", "%34", "%35", "%36")
WGMMA_F16(64, "128", L64, D64, "%64", "%65", "%66", "%67", "%68")
WGMMA_F16(96, "192", L96, D96, "%96", "%97", "%98", "%99", "%100")
WGMMA_F16(128, "256", L128, D128, "%128", "%129", "%130", "%131", "%132")

// Ring is a position in the ring of stages.
template <int STAGES> struct Ring {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// Stages is a consumer's view of the ring.
template <typename K> struct Stages {
    Ring<K::STAGES> at;
    u32 full, empty; // barriers, 8 bytes each
    u32 memory;      // of stage 0
    int group;       // this warpgroup's number
    int line;        // of A, where its rows start

    __device__ __forceinline__ void wait() { barrier_wait(full + at.stage * 8, at.parity); }
    __device__ __forceinline__ u64 a() const { return K::A::descriptor(memory + at.stage * K::STAGE, line); }
    __device__ __forceinline__ u64 b() const { return K::B::descriptor(memory + at.stage * K::STAGE + K::A::BYTES, 0); }
    // release gives a stage back to the producers of all blocks that fill it, once each warp has called it.
    __device__ __forceinline__ void release(int stage) {
        const int lane = threadIdx.x % 32;
        if (lane < K::CLUSTER) barrier_arrive(empty + stage * 8, lane);
    }
};

// accumulate adds up steps of products in sum. multiply starts those of a stage; the stage before is released when its products are complete.
template <int SUMS, typename S, typename Multiply> __device__ __forceinline__ void accumulate(float (&sum)[SUMS], S& s, int steps, Multiply multiply) {
    int last = 0;
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
        s.wait();
        const u64 a = s.a(), b = s.b();
        pin(sum);
        wgmma_fence();
        multiply(a, b, i > 0);
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

// Plain is a b, added up by the tensor cores. Elements of 2 bytes are BF16 or, with F16, F16.
template <int TA, int TB, int SIZE_, int BN_, int CLUSTER_, bool F16_ = false> struct Plain {
    static constexpr int SIZE = SIZE_, BN = BN_, BK = 128 / SIZE, PLANES = 1, CLUSTER = CLUSTER_, STAGES = 4 * 384 / (128 + BN);
    static constexpr bool TURNS = false, SHARED = false, LINE = true, F16 = F16_;
    using A = Piece<128, BK, SIZE, PLANES, TA, 1>;
    using B = Piece<BN, BK, SIZE, PLANES, TB, CLUSTER>;
    static constexpr int STAGE = A::BYTES + B::BYTES;
    float sum[BN / 2];

    template <typename Shape> static __device__ __forceinline__ int form(const Scaling& range, const Shape&) { return range.form; }
    template <typename From> __device__ __forceinline__ void run(From& s, int steps, int) {
        accumulate(sum, s, steps, [&](u64 a, u64 b, int add) {
#pragma unroll
            for (int l = 0; l < 4; l++) {
                if constexpr (F16) wgmma_f16<TA, TB>(sum, a + l * A::step, b + l * B::step, add || l > 0);
                else wgmma<SIZE, TA, TB>(sum, a + l * A::step, b + l * B::step, add || l > 0);
            }
        });
    }
    __device__ __forceinline__ float value(int i) const { return sum[i]; }
};

// Six is a b for float32 in three planes, x = x0 + x1 + x2 (see split). Of the nine products of
// planes the six largest count: a0 b0, and the low ones a0 b1, a1 b0, a0 b2, a1 b1, a2 b0.
//
// Where FMA rounds, the tensor cores truncate, after every 16 terms. So they add up no more than 32 terms,
// the low products first, and additions that round do the rest. The part that rounding cuts off joins the
// next terms (Kahan's sum), so that long sums lose no more than short ones. That takes three additions and a move of each
// sum, which cost time and power beside the products, so one plain addition takes 4 to 16 times 32 terms together first. The two
// warpgroups take turns: while one adds, the other multiplies.
//
// Where magnitudes differ much, x1 and x2 would lose bits below the least denormal number of
// BF16. Then they are scaled: x = x0 + x1 / 2^8 + x2 / 2^16, and
//
//	high = a0 b0
//	low  = a0 b1 + a1 b0 + (a0 b2 + a1 b1 + a2 b0) / 2^8
//	a b  = high + low / 2^8
//
// With infinities or NaN among the numbers, or where sums may overflow, high is kept apart from low, in planes of either form: it is the result
// of IEEE arithmetic, and low, which may be NaN there, is left out.
template <int TA, int TB, int CLUSTER_, bool PAIRS = false> struct Six {
    static constexpr int SIZE = 2, BN = 128, BK = 32, PLANES = 3, CLUSTER = CLUSTER_, STAGES = 4;
    static constexpr bool TURNS = true, SHARED = true, LINE = false, F16 = false; // there is no room for lines
    using A = Piece<128, BK, SIZE, PLANES, TA, 1>;
    using B = Piece<BN, BK, SIZE, PLANES, TB, CLUSTER>;
    static constexpr int STAGE = A::BYTES + B::BYTES;
    float sum[64], part[64];

    static constexpr int SHORT = 448; // min reduction length of PLAIN

    // form returns how splits are multiplied for a reduction length of k. For a small k, high and low products have separate accumulators,
    // as with infinities. If one term dominates a sum, most of the error comes from truncating high and low products together.
    // Separate accumulators take 8 to 13 % longer.
    //
    //                                     apart  together  cuBLAS
    // mean error, terms 2^-60 to 2^60
    //   k = 320                            0.57      0.78    0.72
    //   k = 512                               -      0.78    0.78
    // time, us
    //   4096 x 256 x 4096                   117       104     189
    template <typename Shape> static __device__ __forceinline__ int form(const Scaling& range, const Shape& s) {
        const int form = range.settle(s.range);
        return form == Scaling::PLAIN && s.k < SHORT ? (int)Scaling::APART : form;
    }
    // multiply starts d += plane i of a * plane j of b, or, without add, d = that product.
    static __device__ __forceinline__ void multiply(float (&d)[64], u64 a, int i, u64 b, int j, int add = 1) {
#pragma unroll
        for (int l = 0; l < 2; l++)
            wgmma<SIZE, TA, TB>(d, a + i * A::plane + l * A::step, b + j * B::plane + l * B::step, add || l > 0);
    }
    // add is sum += x; x becomes the part that rounding has cut off. In this form the compiler takes one
    // element after the other and needs fewer registers.
    static __device__ __forceinline__ void add(float& sum, float& x) {
        asm volatile("{\n.reg .f32 s, t;\nadd.rn.f32 s, %0, %1;\nsub.rn.f32 t, s, %0;\nsub.rn.f32 %1, %1, t;\nmov.f32 %0, s;\n}"
                     : "+f"(sum), "+f"(x));
    }
    __device__ __forceinline__ void run_plain(Stages<Six>& s, int steps) {
        const int most = min(max(steps / 8, 4), 16); // steps in plain additions: few enough that what those cut off is little beside the rest
        float some[64];
#pragma unroll
        for (int e = 0; e < 64; e++) some[e] = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i += most) {
#pragma unroll 1
            for (int left = min(most, steps - i); left > 0; left--) {
                s.wait();
                const u64 a = s.a(), b = s.b();
                turn_wait(s.group);
                pin(part);
                wgmma_fence();
                multiply(part, a, 2, b, 0, 0);
                multiply(part, a, 1, b, 1);
                multiply(part, a, 0, b, 2);
                multiply(part, a, 1, b, 0);
                multiply(part, a, 0, b, 1);
                multiply(part, a, 0, b, 0);
                wgmma_commit();
                turn_pass(s.group);
                wgmma_wait<0>();
                pin(part);
                s.release(s.at.stage);
                s.at.next();
#pragma unroll
                for (int e = 0; e < 64; e++) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(some[e]) : "f"(part[e]));
            }
#pragma unroll
            for (int e = 0; e < 64; e++) add(sum[e], some[e]);
        }
#pragma unroll
        for (int e = 0; e < 64; e++) sum[e] += some[e];
    }
    // run_scaled is slower: low products, which have two scales, share the registers of part with the high ones.
    __device__ __forceinline__ void run_scaled(Stages<Six>& s, int steps) {
        float low[64];
#pragma unroll
        for (int e = 0; e < 64; e++) low[e] = 0;
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
    // run_apart is for planes that are not scaled, with infinities or NaN among the numbers or the sums. The tensor cores add up all low products, and the high ones of one
    // step or, with PAIRS, of two of longer sums. Without, products with NaN take 1.05 to 1.14 times as long as others.
    __device__ __forceinline__ void run_apart(Stages<Six>& s, int steps) {
        float low[64];
#pragma unroll
        for (int e = 0; e < 64; e++) low[e] = 0;
        if (!PAIRS || steps * BK < SHORT) add_apart<1>(s, low, steps);
        else add_apart<2>(s, low, steps);
#pragma unroll
        for (int e = 0; e < 64; e++)
            if (fabsf(sum[e]) <= 3.4028234664e38f) sum[e] += low[e];
    }
    // MOST is no variable: the loop would spill.
    template <int MOST> __device__ __forceinline__ void add_apart(Stages<Six>& s, float (&low)[64], int steps) {
#pragma unroll 1
        for (int i = 0; i < steps; i += MOST) {
#pragma unroll
            for (int l = 0; l < MOST; l++) {
                if ((PAIRS || l > 0) && i + l == steps) break;
                s.wait();
                const u64 a = s.a(), b = s.b();
                turn_wait(s.group);
                pin(part);
                pin(low);
                wgmma_fence();
                multiply(low, a, 2, b, 0);
                multiply(low, a, 1, b, 1);
                multiply(low, a, 0, b, 2);
                multiply(low, a, 1, b, 0);
                multiply(low, a, 0, b, 1);
                multiply(part, a, 0, b, 0, l > 0);
                wgmma_commit();
                turn_pass(s.group);
                wgmma_wait<0>();
                pin(part);
                pin(low);
                s.release(s.at.stage);
                s.at.next();
            }
#pragma unroll
            for (int e = 0; e < 64; e++) {
                add(sum[e], part[e]);
                asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(low[e]) : "f"(part[e]));
            }
        }
    }
    __device__ __forceinline__ void run(Stages<Six>& s, int steps, int form) {
#pragma unroll
        for (int i = 0; i < 64; i++) sum[i] = part[i] = 0;
        s.line = __shfl_sync(0xffffffff, s.line, 0); // the same in all lanes: so the compiler keeps descriptors in uniform registers
        s.group = __shfl_sync(0xffffffff, s.group, 0);
        if (form == Scaling::SCALED) run_scaled(s, steps);
        else if (form == Scaling::APART) run_apart(s, steps);
        else run_plain(s, steps);
    }
    __device__ __forceinline__ float value(int i) const { return sum[i]; }
};
