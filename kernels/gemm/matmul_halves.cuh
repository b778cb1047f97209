// What the tensor-core kernels read and write in BF16 beside their operands: C, and operands of an epilogue.
#pragma once
#include "epilogue.cuh"
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The bits of a kernel's argument `halves`.
constexpr int HALF_ALSO = 1, HALF_ALONE = 2; // C is written in BF16, its rows a multiple of 8 elements: beside float32, or instead of it
constexpr int HALF_X = 4, HALF_Y = 8;        // the epilogue's first, second operand is in BF16

// from is Operand::from and Epilogue::from for operands that may be in BF16.
__device__ __forceinline__ Operand<float> from(const Operand<float>& o, bool half, i64 z, i64 r, i64 c) {
    const i64 at = z * o.matrix + r * o.row + c * o.col;
    return {half ? reinterpret_cast<const float*>(reinterpret_cast<const u16*>(o.x) + at) : o.x + at, o.matrix, o.row, o.col};
}
__device__ __forceinline__ Epilogue<float> from(const Epilogue<float>& e, int halves, i64 z, i64 r, i64 c) {
    return {e.steps, from(e.x, halves & HALF_X, z, r, c), from(e.y, halves & HALF_Y, z, r, c)};
}

__device__ __forceinline__ float from_bf16(u32 bits) { return __uint_as_float(bits << 16); }

// load_halves reads four neighbours in BF16, col elements apart, of which the first `inside` exist; the others keep their values. With wide
// they are contiguous and aligned to 8 bytes.
__device__ __forceinline__ void load_halves(float* to, const u16* p, i64 col, int inside, bool wide) {
    if (wide && inside >= 4) {
        const uint2 v = *reinterpret_cast<const uint2*>(p);
        to[0] = from_bf16(v.x), to[1] = __uint_as_float(v.x & 0xffff0000);
        to[2] = from_bf16(v.y), to[3] = __uint_as_float(v.y & 0xffff0000);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (e < inside) to[e] = from_bf16(p[e * col]);
    }
}
