// Elements of images, found from the splits that a generated kernel has stored with channels last in their place (see codegen.SplitChannelsLast). Kernels of conv.cu read the elements where splits would need
// scaling; otherwise the kernel does nothing.
//stheno:targets sm_90a ptx
#include "follow.cuh"
#include "matmul_rescale.cuh"

#if __CUDA_ARCH__ == 900
#define DECODE_BODY(...) __VA_ARGS__
__device__ __forceinline__ void images(const float* splits, float* out, int count, int channels, int pixels) {
    const u32 vectors = channels / 8;
    const Matrix a{splits, nullptr, count * pixels, channels, channels, 1, 0, 0};
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < a.rows * vectors; i += gridDim.x * blockDim.x) {
        Octet o{0, i / vectors};
        o.col = (i - o.row * vectors) * 8;
        decode(o, a);
        const u32 image = o.row / pixels;
        float* const to = out + ((i64)image * channels + o.col) * pixels + (o.row - image * pixels);
#pragma unroll
        for (int j = 0; j < 8; j++) to[(i64)j * pixels] = o.v[j];
    }
}
#else
#define DECODE_BODY(...)
#endif

extern "C" __global__ void __launch_bounds__(256) conv_decode_f32(const float* splits, float* out, int count, int channels, int pixels, const int* when) {
    DECODE_BODY(follow(); if (*when) images(splits, out, count, channels, pixels); admit();)
}
