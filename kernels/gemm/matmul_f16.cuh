// mma.sync for operands of 16 bits in F16, beside mma.cuh's in BF16 and TF32; rounding to all three, and sums.
#pragma once
#include "mma.cuh"

// mma_of is mma for elements of 4 bytes in TF32, or of 2 in BF16 or, with F16, F16.
template <int SIZE, bool F16> __device__ __forceinline__ void mma_of(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (F16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        mma<SIZE>(d, a, b0, b1);
#endif
}

// half and tf32 round to nearest, ties to even: to BF16 or, with F16, F16, and to TF32.
template <bool F16> __device__ __forceinline__ u32 half(float2 x) {
    u32 v;
    if constexpr (F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(x.y), "f"(x.x));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(x.y), "f"(x.x));
    return v;
}
__device__ __forceinline__ u32 tf32(float x) {
    u32 v;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
    return v;
}

// four is four neighbouring sums of a row, of the four of two rows that a lane has: lanes that are a pair exchange two.
__device__ __forceinline__ float4 four(const float (&d)[4]) {
    const bool odd = threadIdx.x % 2;
    const float x = __shfl_xor_sync(0xffffffff, odd ? d[0] : d[2], 1), y = __shfl_xor_sync(0xffffffff, odd ? d[1] : d[3], 1);
    return odd ? make_float4(x, y, d[2], d[3]) : make_float4(d[0], d[1], x, y);
}
