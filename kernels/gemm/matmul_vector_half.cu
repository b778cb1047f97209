// A matrix in 16 bits times a vector in 16 bits: y[r] = sum over l of x[r][l] * v[l], in float32 by FMA. Bound by memory.
//
// A warp computes ROWS rows, whose lengths are multiples of 8 elements. A lane loads 16 bytes of each row and of the vector at a time, so that the rows' loads are in flight
// together and an element of the vector is converted once for all of them. The warp prefetches the beginning of its rows to L2 before it waits for the kernels that it follows,
// and launches its dependents, as rows of matmul_vector.cu.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
#include "follow.cuh"
#include "matmul_halves.cuh"

constexpr int ROWS = 4, THREADS = 128;

// load_once reads 16 bytes past the first-level cache.
__device__ __forceinline__ uint4 load_once(const u16* p) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

// numbers converts eight elements.
template <bool F16> __device__ __forceinline__ void numbers(float (&to)[8], const uint4& v) {
    const u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = from_half<F16>(F16 ? pairs[i] & 0xffff : pairs[i]);
        to[2 * i + 1] = F16 ? from_half<F16>(pairs[i] >> 16) : __uint_as_float(pairs[i] & 0xffff0000);
    }
}

template <bool F16> __device__ __forceinline__ void rows(const u16* __restrict__ x, const u16* __restrict__ v, float* __restrict__ y, int count, int k) {
    const int lane = threadIdx.x % 32, first = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * ROWS;
    const u16* from[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        from[r] = x + (i64)min(first + r, count - 1) * k;
#if __CUDA_ARCH__ >= 900
        if (lane * 64 < k) asm volatile("prefetch.global.L2 [%0];" ::"l"(from[r] + lane * 64)); // of 128 bytes
#endif
    }
    admit();
    follow();
    float sum[ROWS][2] = {};
#pragma unroll 3
    for (int l = lane * 8; l < k; l += 32 * 8) {
        uint4 a[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) a[r] = load_once(from[r] + l);
        float f[8];
        numbers<F16>(f, *reinterpret_cast<const uint4*>(v + l));
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float b[8];
            numbers<F16>(b, a[r]);
#pragma unroll
            for (int e = 0; e < 8; e++) sum[r][e % 2] = fmaf(b[e], f[e], sum[r][e % 2]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float t = sum[r][0] + sum[r][1];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) t += __shfl_xor_sync(~0u, t, d);
        if (lane == 0 && first + r < count) y[first + r] = t;
    }
}

#define ROWS_OF(suffix, F16)                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) matmul_rows_##suffix(const u16* a, const u16* v, float* c, int count, int k) { rows<F16>(a, v, c, count, k); }
ROWS_OF(bf16, false)
ROWS_OF(f16, true)
