// out = sum over i of in[i]: the way from the first idea to ../sum.cu, in numbered
// versions (sum.go launches them, and describes what each one measures).
//
// In all of them thread g of G takes the elements g, g + G, g + 2 G, ..., so that
// neighbouring threads read neighbouring elements, and adds them up in double.
// They differ in how the threads' sums become one.
//
//   1 sum_thread       One thread takes everything. Nothing else is under way
//                      while it waits for memory.
//   2 sum_atomic       One block of 256: each thread adds its sum to a cell by an
//                      atomic. One multiprocessor works, the others are idle.
//   3 sum_atomic       16 blocks of 256: 4096 atomics on one cell, which the
//                      memory serves one after the other, in any order: the last
//                      bit may differ from run to run.
//   4 sum_blockatomic  The threads of a block add up in shared memory, by a tree;
//                      one atomic for each block. The order is still any.
//   5 sum_tree         The same blocks store their sums side by side, and a second
//                      step adds those in order: no atomics, the same bits in
//                      every run. 16 blocks fill 16 of some hundred
//                      multiprocessors.
//   6 sum_naive        32 x 80 blocks of 1024 fill the device; in each, thread 0
//                      adds 1024 values while 1023 threads wait.
//   7 sum_tree         As 6 with a tree of ten steps. Each step has a barrier for
//                      1024 threads and a turn through shared memory.
//   8 sum_shuffle      Warps add up through registers by shuffles, then one warp
//                      adds the warps' sums: one barrier. Loads are still of 4
//                      bytes each.
//   9 sum_blocks2d     For a matrix: blocks of 16 x 16 stride over both axes on a
//                      grid of 64 x 64. A row of a block reads 64 bytes, half of
//                      what a warp asks for at once when it lies along a row.
//
// ../sum.cu itself (version 0) takes 16 bytes at a time, four loads in flight.
#include "blocksum.cuh"

template <typename T>
__device__ double thread_sum(const T* __restrict__ in, long long n) {
    double acc = 0;
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        acc += (double)in[i];
    return acc;
}

// Both axes have their own extent of the grid: rows step by its y, columns by
// its x.
template <typename T>
__device__ double thread_sum2d(const T* __restrict__ in, long long rows, long long cols) {
    double acc = 0;
    const long long dy = (long long)gridDim.y * blockDim.y, dx = (long long)gridDim.x * blockDim.x;
    for (long long y = (long long)blockIdx.y * blockDim.y + threadIdx.y; y < rows; y += dy)
        for (long long x = (long long)blockIdx.x * blockDim.x + threadIdx.x; x < cols; x += dx)
            acc += (double)in[y * cols + x];
    return acc;
}

template <typename T> __device__ void sum_thread(const T* in, T* out, long long n) {
    *out = (T)thread_sum(in, n);
}

template <typename T> __device__ void sum_atomic(const T* in, Cell* cell, long long n) {
    atomicAdd(&cell->sum, thread_sum(in, n));
}

template <typename T> __device__ void sum_blockatomic(const T* in, Cell* cell, long long n) {
    __shared__ double s[256];
    const double sum = tree_sum(thread_sum(in, n), s, threadIdx.x, blockDim.x);
    if (threadIdx.x == 0) atomicAdd(&cell->sum, sum);
}

template <typename T> __device__ void sum_naive(const T* in, double* part, long long n) {
    __shared__ double s[1024];
    const double sum = naive_sum(thread_sum(in, n), s);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

template <typename T> __device__ void sum_tree(const T* in, double* part, long long n) {
    __shared__ double s[1024];
    const double sum = tree_sum(thread_sum(in, n), s, threadIdx.x, blockDim.x);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

template <typename T> __device__ void sum_shuffle(const T* in, double* part, long long n) {
    const double sum = block_sum(thread_sum(in, n));
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

template <typename T> __device__ void sum_blocks2d(const T* in, double* part, long long rows, long long cols) {
    __shared__ double s[256];
    const int tid = threadIdx.y * blockDim.x + threadIdx.x;
    const double sum = tree_sum(thread_sum2d(in, rows, cols), s, tid, blockDim.x * blockDim.y);
    if (tid == 0) part[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

extern "C" __global__ void sum_clear(Cell* cell) {
    cell->sum = 0;
    cell->lock = 0;
}

#define ENTRY(BLOCK, VARIANT, NAME, T, OUT)                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK) sum_##VARIANT##_##NAME(const T* in, OUT* out, long long n) { \
        sum_##VARIANT(in, out, n);                                                                                \
    }

#define VERSIONS(NAME, T)                                                                                         \
    ENTRY(1, thread, NAME, T, T)                                                                                  \
    ENTRY(256, atomic, NAME, T, Cell)                                                                             \
    ENTRY(256, blockatomic, NAME, T, Cell)                                                                        \
    ENTRY(1024, naive, NAME, T, double)                                                                           \
    ENTRY(1024, tree, NAME, T, double)                                                                            \
    ENTRY(1024, shuffle, NAME, T, double)                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        sum_blocks2d_##NAME(const T* in, double* out, long long rows, long long cols) {                           \
        sum_blocks2d(in, out, rows, cols);                                                                        \
    }                                                                                                             \
    extern "C" __global__ void sum_round_##NAME(const Cell* cell, T* out) { *out = (T)cell->sum; }

VERSIONS(f32, float)
VERSIONS(f64, double)
