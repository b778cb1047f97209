// Loads and stores of 16-bit C and of the 16-bit operands of an epilogue, for the tensor-core kernels. Elements are BF16 or, with F16, F16.
#pragma once
#include "epilogue.cuh"
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The bits of a kernel's argument `halves`.
constexpr int HALF_ALSO = 1, HALF_ALONE = 2; // C is written in 16 bits, its rows a multiple of 8 elements: beside float32, or instead of it
constexpr int HALF_X = 4, HALF_Y = 8;        // the epilogue's first, second operand is in 16 bits

// from is Operand::from and Epilogue::from for operands that may be in 16 bits.
__device__ __forceinline__ Operand<float> from(const Operand<float>& o, bool half, i64 z, i64 r, i64 c) {
    const i64 at = z * o.matrix + r * o.row + c * o.col;
    return {half ? reinterpret_cast<const float*>(reinterpret_cast<const u16*>(o.x) + at) : o.x + at, o.matrix, o.row, o.col};
}
__device__ __forceinline__ Epilogue<float> from(const Epilogue<float>& e, int halves, i64 z, i64 r, i64 c) {
    return {e.steps, from(e.x, halves & HALF_X, z, r, c), from(e.y, halves & HALF_Y, z, r, c)};
}

// from_half is the number in the lower 16 bits.
template <bool F16> __device__ __forceinline__ float from_half(u32 bits) {
    if constexpr (!F16) return __uint_as_float(bits << 16);
    float x;
    asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(x) : "r"(bits));
    return x;
}

// packed is two numbers rounded to nearest, ties to even, the first in the lower half.
template <bool F16> __device__ __forceinline__ u32 packed(float low, float high) {
    u32 v = 0;
#if __CUDA_ARCH__ >= 800
    if constexpr (F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
#endif
    return v;
}

// load_halves reads four neighbours in 16 bits, col elements apart, of which the first `inside` exist; the others keep their values. With wide
// they are contiguous and aligned to 8 bytes.
template <bool F16> __device__ __forceinline__ void load_halves(float* to, const u16* p, i64 col, int inside, bool wide) {
    if (wide && inside >= 4) {
        const uint2 v = *reinterpret_cast<const uint2*>(p);
        to[0] = from_half<F16>(v.x), to[1] = F16 ? from_half<F16>(v.x >> 16) : __uint_as_float(v.x & 0xffff0000);
        to[2] = from_half<F16>(v.y), to[3] = F16 ? from_half<F16>(v.y >> 16) : __uint_as_float(v.y & 0xffff0000);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (e < inside) to[e] = from_half<F16>(p[e * col]);
    }
}
