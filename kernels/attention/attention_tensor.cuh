// What the attention kernels on tensor cores share. Elements are of 16 bits, BF16 or, HALF, F16. A tile of scores is 16 rows a warp; a thread has rows lane / 4 and 8 beyond, and of
// each 8 columns 2 (lane % 4) and the next one: s[4 j + 2 r + e] is in row lane / 4 + 8 r and column 8 j + 2 (lane % 4) + e. Four such numbers of two neighbouring groups of
// columns are, rounded, the first operand of a product of 16 terms.
#pragma once
#include "attention.cuh"
typedef unsigned short u16;
typedef unsigned int u32;

constexpr float LOG2E = 1.4426950408889634f;

// packed rounds two numbers to 16 bits, x in the lower half.
template <bool HALF> __device__ __forceinline__ u32 packed(float x, float y) {
    u32 d;
    if constexpr (HALF)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(y), "f"(x));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(y), "f"(x));
    return d;
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// pack rounds a tile to 16 bits, as the first operand of a product.
template <bool HALF, int N> __device__ __forceinline__ void pack(u32 (&w)[N / 8][4], const float (&s)[N]) {
#pragma unroll
    for (int l = 0; l < N / 8; l++)
#pragma unroll
        for (int i = 0; i < 4; i++) w[l][i] = packed<HALF>(s[8 * l + 2 * i], s[8 * l + 2 * i + 1]);
}

// Span is the least and the largest limit of ROWS queries from t0 on. All lanes of a warp call it.
template <int ROWS> struct Span {
    int low, high;
    __device__ __forceinline__ Span(const Problem<float>& p, int batch, int t0) {
        const int last = min(t0 + ROWS, p.queries) - 1;
        low = p.limit(batch, t0), high = p.limit(batch, last);
        if (p.counts.bytes) {
            for (int i = threadIdx.x % 32; i < ROWS; i += 32) {
                const int limit = p.limit(batch, min(t0 + i, last));
                low = min(low, limit), high = max(high, limit);
            }
            for (int d = 16; d > 0; d /= 2) low = min(low, __shfl_xor_sync(~0u, low, d)), high = max(high, __shfl_xor_sync(~0u, high, d));
        }
    }
};

// mask makes scores -Inf beyond the limits of the thread's two rows; the first column of the tile is key j0.
template <int N> __device__ __forceinline__ void mask(float (&s)[N], const int (&limit)[2], int j0) {
    const int column = j0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < N; j++)
        if (column + j / 4 * 8 + j % 2 >= limit[j / 2 % 2]) s[j] = -INFINITY;
}

// weigh makes exponentials of scores, sets the factors of what was computed with the last maxima, and reports whether a factor of the warp is not 1. Unless EXACT, one multiply-add scales a
// score and subtracts the scaled maximum, whose rounding error overflows for scores from about 2^30 on, and a warp keeps the last maxima of its rows unless the exponentials of one would exceed
// 2^8. While one row's exponentials are computed, so is the maximum of the other.
template <bool EXACT = false, int N> __device__ __forceinline__ bool weigh(float (&s)[N], float (&most)[2], float (&total)[2], float (&factor)[2], float scale) {
    float base[2], from[2], high[2] = {most[0], most[1]}, add[2] = {0, 0};
    bool grow[2] = {true, true};
    auto largest = [&](int r, int j) { high[r] = fmaxf(high[r], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1])); };
    auto begin = [&](int r) {
        high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 1));
        high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 2));
        if constexpr (!EXACT) {
            grow[r] = __any_sync(~0u, (high[r] - most[r]) * scale > 8);
            if (!grow[r]) high[r] = most[r];
        }
        base[r] = high[r] == -INFINITY ? 0 : high[r], from[r] = base[r] * scale;
        factor[r] = grow[r] ? exp2_fast(EXACT ? (most[r] - base[r]) * scale : most[r] * scale - from[r]) : 1;
        most[r] = high[r];
    };
    auto exponential = [&](int r, int j) {
#pragma unroll
        for (int i = 4 * j + 2 * r; i < 4 * j + 2 * r + 2; i++) s[i] = exp2_fast(EXACT ? (s[i] - base[r]) * scale : fmaf(s[i], scale, -from[r]));
    };
    auto sum = [&](int r, int j) { add[r] += s[4 * j + 2 * r], add[r] += s[4 * j + 2 * r + 1]; };
#pragma unroll
    for (int j = 0; j < N / 4; j++) largest(0, j);
    begin(0);
#pragma unroll
    for (int j = 0; j < N / 4; j++) exponential(0, j), largest(1, j);
    begin(1);
#pragma unroll
    for (int j = 0; j < N / 4; j++) exponential(1, j), sum(0, j);
#pragma unroll
    for (int j = 0; j < N / 4; j++) sum(1, j);
#pragma unroll
    for (int r = 0; r < 2; r++) total[r] = total[r] * factor[r] + add[r];
    return grow[0] || grow[1];
}

// weight is exp2(scale s - lse), at most 1: of huge scores the rounding error of the difference alone would overflow.
__device__ __forceinline__ float weight(float s, float scale, float lse) {
    float x;
    asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(x) : "f"(fmaf(s, scale, -lse)));
    return exp2_fast(x);
}

// store_rows writes a warp's 16 rows of D elements, of which the thread has rows lane / 4 and 8 beyond, times a factor each, 0 if the factor is: sums of a row without keys may be NaN. They go through 16 * D * 2 bytes of shared memory, 16-byte
// pieces of a row exchanged, so that global memory gets whole lines. (As an assignment, a store of 16 bytes becomes four of 4.)
template <bool HALF, int D> __device__ __forceinline__ void store_rows(const float (&o)[D / 2], const float (&factor)[2], u32 memory, u16* to, i64 stride, int rows, int dim) {
    constexpr int PIECES = D / 8, LINES = 32 / PIECES; // of a row, that a warp stores at a time
    const int lane = threadIdx.x % 32, first = lane / PIECES, piece = lane % PIECES;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < PIECES; j += 2) {
        u32 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = factor[i % 2] == 0 ? 0 : packed<HALF>(o[4 * j + 2 * i] * factor[i % 2], o[4 * j + 2 * i + 1] * factor[i % 2]);
#if __CUDA_ARCH__ >= 900
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(memory + lane % 16 * (D * 2) + (j + lane / 16 ^ lane % 8) * 16), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
#else
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(memory + (lane / 4 + i % 2 * 8) * (D * 2) + (j + i / 2 ^ lane / 4) * 16 + lane % 4 * 4), "r"(x[i]) : "memory");
#endif
    }
    __syncwarp();
    to += first * stride + piece * 8, rows = piece * 8 < dim ? rows - first : 0;
#pragma unroll
    for (int line = 0; line < 16; line += LINES, to += LINES * stride) {
        u32 x[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(memory + (line + first) * (D * 2) + (piece ^ (line + first) & 7) * 16) : "memory");
        if (line < rows) asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
    }
    __syncwarp();
}
