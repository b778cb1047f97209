// Prepares operands of products in less than float32 for the kernels on the tensor cores: rounds them to BF16 or F16, or
// brings their elements along k side by side. A launch prepares one or both operands of a product: blocks (x, 0)
// the first one, blocks (x, 1) the second.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
#include "follow.cuh"

typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

// packed is two numbers rounded to BF16 or, with F16, F16, to nearest and ties to even, the first in the lower half.
template <bool F16> __device__ __forceinline__ u32 packed(float low, float high) {
    u32 v = 0;
#if __CUDA_ARCH__ >= 800
    if constexpr (F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
#endif
    return v;
}

#define OPERANDS const float *a, u16 *toA, const i64 rowsA, const int colsA, const int pitchA, const float *b, u16 *toB, const i64 rowsB, const int colsB, const int pitchB
// round_rows writes rows of cols elements to rows of pitch, a multiple of 8, 8 elements a thread. An operand
// has fewer than 2^31 vectors of 8 elements.
template <bool F16> __device__ __forceinline__ void round_rows(OPERANDS) {
    follow();
    const float* const x = blockIdx.y == 0 ? a : b;
    u16* const to = blockIdx.y == 0 ? toA : toB;
    const i64 rows = blockIdx.y == 0 ? rowsA : rowsB;
    const int cols = blockIdx.y == 0 ? colsA : colsB, pitch = blockIdx.y == 0 ? pitchA : pitchB;
    const u32 vectors = pitch / 8, count = rows * vectors;
    const bool wide = cols % 4 == 0 && reinterpret_cast<unsigned long long>(x) % 16 == 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const u32 row = i / vectors;
        const int col = (i - row * vectors) * 8;
        const float* const p = x + (i64)row * cols + col;
        float v[8];
        if (wide && col + 8 <= cols) {
            *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(p);
            *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(p + 4);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = col + j < cols ? p[j] : 0;
        }
        *reinterpret_cast<uint4*>(to + (i64)i * 8) = make_uint4(packed<F16>(v[0], v[1]), packed<F16>(v[2], v[3]), packed<F16>(v[4], v[5]), packed<F16>(v[6], v[7]));
    }
}
extern "C" __global__ void __launch_bounds__(256) matmul_round_bf16(OPERANDS) { round_rows<false>(a, toA, rowsA, colsA, pitchA, b, toB, rowsB, colsB, pitchB); }
extern "C" __global__ void __launch_bounds__(256) matmul_round_f16(OPERANDS) { round_rows<true>(a, toA, rowsA, colsA, pitchA, b, toB, rowsB, colsB, pitchB); }

// matmul_round_tf32 writes matrices of rows x cols elements to rows of pitch elements, transposed with trans. It
// rounds nothing: TMA rounds elements to TF32 as it copies them. A block moves squares of SIDE x SIDE elements.
extern "C" __global__ void __launch_bounds__(256) matmul_round_tf32(const float* a, float* toA, const int rowsA, const int colsA, const int pitchA, const int transA,
                                                                    const float* b, float* toB, const int rowsB, const int colsB, const int pitchB, const int transB,
                                                                    const int batch) {
    follow();
#if __CUDA_ARCH__ == 900 // plans have it nowhere else
    constexpr int SIDE = 64;
    __shared__ float square[SIDE][SIDE + 1];
    const float* const x = blockIdx.y == 0 ? a : b;
    float* const to = blockIdx.y == 0 ? toA : toB;
    const int rows = blockIdx.y == 0 ? rowsA : rowsB, cols = blockIdx.y == 0 ? colsA : colsB;
    const int pitch = blockIdx.y == 0 ? pitchA : pitchB, trans = blockIdx.y == 0 ? transA : transB;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int across = (cols + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
    const i64 size = (i64)rows * cols, stored = (i64)(trans ? cols : rows) * pitch;
    for (i64 i = blockIdx.x; i < (i64)across * down * batch; i += gridDim.x) {
        const i64 matrix = i / (across * down);
        const int in = i % (across * down), row0 = in / across * SIDE, col0 = in % across * SIDE;
        const float* const from = x + matrix * size;
        float* const out = to + matrix * stored;
        __syncthreads(); // all have read the square before
#pragma unroll
        for (int r = warp; r < SIDE; r += 8)
#pragma unroll
            for (int c = lane; c < SIDE; c += 32)
                if (row0 + r < rows && col0 + c < cols) square[r][c] = from[(i64)(row0 + r) * cols + col0 + c];
        __syncthreads();
        if (trans) {
#pragma unroll
            for (int c = warp; c < SIDE; c += 8)
#pragma unroll
                for (int r = lane; r < SIDE; r += 32)
                    if (row0 + r < rows && col0 + c < cols) out[(i64)(col0 + c) * pitch + row0 + r] = square[r][c];
        } else {
#pragma unroll
            for (int r = warp; r < SIDE; r += 8)
#pragma unroll
                for (int c = lane; c < SIDE; c += 32)
                    if (row0 + r < rows && col0 + c < cols) out[(i64)(row0 + r) * pitch + col0 + c] = square[r][c];
        }
    }
#endif
}
