// mma.sync for operands of 16 bits in F16, beside mma.cuh's in BF16 and TF32.
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
