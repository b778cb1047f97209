// out = sum over i of a[i] * b[i], for two vectors: three ways in which the blocks
// of a grid make one number, before ../dot.cu (version 0).
//
// 32 x 20 blocks of 256; thread g of G takes the products g, g + G, g + 2 G, ...,
// adds them up in double, and the block adds its threads' sums by a tree.
//
//   1 dot_tree    Blocks store their sums side by side; a second step, on the
//                 device in the op or on the host after DotPartials, adds them in
//                 order: the same bits in every run. Costs the second step.
//   2 dot_mutex   Blocks take turns at one cell: a lock by compare-and-swap, and
//                 fences around what it guards. Any code could stand there, but
//                 the blocks queue, each for a few trips to the memory and back.
//   3 dot_atomic  One atomic for each block on the cell: one trip, made by the
//                 memory itself. As with the lock the order is any, and so may be
//                 the last bit.
//
// All three are slower than ../dot.cu because loads take 4 bytes each, and few are in flight.
#include "blocksum.cuh"

template <typename T> __device__ double thread_dot(const T* __restrict__ a, const T* __restrict__ b, long long n) {
    double acc = 0;
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        acc += (double)a[i] * (double)b[i];
    return acc;
}

template <typename T> __device__ double block_dot(const T* a, const T* b, long long n) {
    __shared__ double s[256];
    return tree_sum(thread_dot(a, b, n), s, threadIdx.x, blockDim.x);
}

template <typename T> __device__ void dot_tree(const T* a, const T* b, double* part, long long n) {
    const double sum = block_dot(a, b, n);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

// The fence after taking the lock keeps reads of the cell from being older than
// the lock; the one before giving it back makes the new sum visible first.
// `volatile` makes the compiler read and write memory.
template <typename T> __device__ void dot_mutex(const T* a, const T* b, Cell* cell, long long n) {
    const double sum = block_dot(a, b, n);
if (threadIdx.x != 0) return; // one thread takes the lock: 32 of one warp would wait for each other
    while (atomicCAS(&cell->lock, 0, 1) != 0) {
    }
    __threadfence();
    volatile double* guarded = &cell->sum;
    *guarded += sum;
    __threadfence();
    atomicExch(&cell->lock, 0);
}

template <typename T> __device__ void dot_atomic(const T* a, const T* b, Cell* cell, long long n) {
    const double sum = block_dot(a, b, n);
    if (threadIdx.x == 0) atomicAdd(&cell->sum, sum);
}

#define ENTRY(VARIANT, NAME, T, OUT)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        dot_##VARIANT##_##NAME(const T* a, const T* b, OUT* out, long long n) {                                   \
        dot_##VARIANT(a, b, out, n);                                                                              \
    }

#define VERSIONS(NAME, T)                                                                                         \
    ENTRY(tree, NAME, T, double)                                                                                  \
    ENTRY(mutex, NAME, T, Cell)                                                                                   \
    ENTRY(atomic, NAME, T, Cell)

VERSIONS(f32, float)
VERSIONS(f64, double)
