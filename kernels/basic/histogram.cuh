// Parts that the histograms share: the bins, a table of counters in shared memory, and the
// plainest kernel. Counters of a block have 32 bits (histogram.go assigns no block more
// elements than that), those of the grid 64.
#pragma once

struct Range {
    int bins;
    double lo, hi, scale;
// bin returns -1 outside. A product may round up to bins.
    __device__ int bin(double x) const {
        return x >= lo && x < hi ? min((int)((x - lo) * scale), bins - 1) : -1;
    }
};

typedef unsigned long long count_t;

extern __shared__ __align__(16) unsigned table[];

__device__ inline void clear_table(int words) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) table[i] = 0;
    __syncthreads();
}

// histogram_global counts in global memory: every element is an atomic on the grid's
// counters.
template <typename T> __device__ void histogram_global(const T* __restrict__ x, count_t* counts, long long n, Range r) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const int k = r.bin((double)x[i]);
        if (k >= 0) atomicAdd(&counts[k], (count_t)1);
    }
}
