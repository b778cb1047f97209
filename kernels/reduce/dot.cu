// out[i] = sum over j of a[i][j] * b[i][j]   (rows x n; one row for two vectors)
//
// The reduction of sum.cu with products for terms, in double: a product of two
// float32 is exact there. 8 bytes of traffic and one DFMA per float32 pair:
// bound by memory. Chunks of a row leave double partial sums, which the last block
// adds up.
#include "reduce.cuh"

#define DOT(NAME, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                          \
        dot_rows_##NAME(const T* a, const T* b, T* out, double* parts, unsigned* arrivals, long long n, long long chunk, int splits, int once, double div) { \
        reduce_rows<T>(Product<T>{a, b}, out, parts, arrivals, n, chunk, splits, once, div);                              \
    }

// dot_short: a group of `lanes` neighbouring lanes, a power of 2, adds up two rows of n terms, a block's rows apart.
template <typename T> __device__ __forceinline__ void dot_short(const T* __restrict__ a, const T* __restrict__ b, T* out, long long rows, int n, int lanes) {
    constexpr int ROWS = 2, FLIGHT = 4;
    const int log = __ffs(lanes) - 1, lane = threadIdx.x & (lanes - 1), each = blockDim.x >> log;
    const long long row = (long long)blockIdx.x * (each * ROWS) + (threadIdx.x >> log);
    a += row * n, b += row * n;
    admit();
    follow();
    double acc[ROWS] = {};
    for (int i = lane; i < n; i += FLIGHT * lanes) {
        T x[ROWS][FLIGHT], y[ROWS][FLIGHT];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) {
                const bool in = i + f * lanes < n && row + r * each < rows;
                const int at = i + f * lanes + r * each * n;
                x[r][f] = in ? a[at] : T(0), y[r][f] = in ? b[at] : T(0);
            }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) acc[r] += (double)x[r][f] * (double)y[r][f];
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const double sum = warp_sum(acc[r], lanes);
        if (row + r * each < rows && lane == 0) out[row + r * each] = (T)sum;
    }
}

#define SHORT(NAME, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        dot_short_##NAME(const T* a, const T* b, T* out, long long rows, int n, int lanes) {                      \
        dot_short<T>(a, b, out, rows, n, lanes);                                                                  \
    }

DOT(f32, float)
DOT(f64, double)
SHORT(f32, float)
SHORT(f64, double)
