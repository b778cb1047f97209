// The first two ways to a histogram, before ../histogram.cu (version 3), which defines what
// is counted. Its histogram_zero clears all bins.
//
//   1 global    Every element is an atomic on the counters in global memory: up to
//               blocks * threads contend for a frequent cell.
//   2 shared    Each block counts in shared memory and adds its counts to the
//               grid's at the end: only its own threads contend.
#include "histogram.cuh"

template <typename T> __device__ void histogram_shared(const T* __restrict__ x, count_t* counts, long long n, Range r) {
    clear_table(r.bins);
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const int k = r.bin((double)x[i]);
        if (k >= 0) atomicAdd(&table[k], 1u);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < r.bins; k += blockDim.x)
        if (table[k] > 0) atomicAdd(&counts[k], (count_t)table[k]);
}

#define HISTOGRAM(NAME, T)                                                                                          \
    extern "C" __global__ void histogram_global_##NAME(const T* x, count_t* counts, long long n, int bins,          \
                                                       double lo, double hi, double scale) {                        \
        histogram_global(x, counts, n, Range{bins, lo, hi, scale});                                                 \
    }                                                                                                               \
    extern "C" __global__ void histogram_shared_##NAME(const T* x, count_t* counts, long long n, int bins,          \
                                                       double lo, double hi, double scale) {                        \
        histogram_shared(x, counts, n, Range{bins, lo, hi, scale});                                                 \
    }

HISTOGRAM(u8, unsigned char)
HISTOGRAM(i32, int)
HISTOGRAM(i64, long long)
HISTOGRAM(f32, float)
HISTOGRAM(f64, double)
