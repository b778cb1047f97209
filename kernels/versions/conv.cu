// Convolution by its definition: see conv.cu in kernels/gemm for the formula and for the kernel without a matrix of windows in memory.
#include "windows.cuh"
typedef long long i64;

// A thread computes an output: it reads a filter, and the elements of the image under it, from global memory. Threads of a warp have pixels of a row, so that both reads are of few lines.
extern "C" __global__ void __launch_bounds__(256) conv_direct_f32(const float* images, const float* filters, float* out, const int pixels, const int channels, const int count, AXES) {
    const Axis axes[2] = {AXES_OF}, rows = axes[0], columns = axes[1];
    const int filter = blockIdx.x % count, pixel = blockIdx.x / count * 256 + threadIdx.x;
    if (pixel >= pixels) return;
    const int plane = rows.out * columns.out, image = pixel / plane, at = pixel % plane, top = rows.begin(at / columns.out), left = columns.begin(at % columns.out);
    const float *x = images + (i64)image * channels * rows.in * columns.in, *w = filters + (i64)filter * channels * rows.size * columns.size;
    float sum = 0;
    for (int c = 0; c < channels; c++, x += rows.in * columns.in)
        for (int i = 0; i < rows.size; i++)
            for (int j = 0; j < columns.size; j++, w++) {
                const int y = top + i * rows.dilation, z = left + j * columns.dilation;
                if (rows.inside(y) && columns.inside(z)) sum += *w * x[y * columns.in + z];
            }
    out[((i64)image * count + filter) * plane + at] = sum;
}
