// topk: out[r][i] = the index of the i-th largest of the n elements of row r, i < k, and if `valued` is not 0
// values[r][i] = that element. Of equal elements the first one counts as larger, and NaN counts as largest. A block selects from a row (select.cuh). Where there are few rows, it
// selects from a part of one: topk_part writes the indices of the part's largest elements, and topk_join selects among
// these. Bound by memory.
#include "follow.cuh"
#include "select.cuh"

extern __shared__ __align__(16) unsigned char shared[];

template <typename T> __device__ Candidates<T> candidates(int capacity) {
    __shared__ SelectMemory memory;
    return Candidates<T>(shared, capacity, memory);
}

// write stores the selected elements of a row.
template <typename T> __device__ void write(Candidates<T>& c, const T* x, long long* out, T* values, int k, int valued) {
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        const unsigned at = c.index(i);
        out[i] = at;
        if (valued) values[i] = x[at];
    }
}

template <typename T> __device__ void topk(const T* x, long long* out, T* values, int n, int k, int goal, int capacity, int valued) {
    follow();
    Candidates<T> c = candidates<T>(capacity);
    const long long row = blockIdx.x;
    c.select(Row<T>{x + row * n, 0, (unsigned)n, n % Row<T>::W == 0}, k, goal, true);
    write(c, x + row * n, out + row * k, values + row * k, k, valued);
}

// Blocks are numbered by (part, row); a part has `each` elements, a multiple of 16 bytes.
template <typename T> __device__ void topk_part(const T* x, unsigned* list, int n, int k, int goal, int capacity, int parts, int each) {
    follow();
    Candidates<T> c = candidates<T>(capacity);
    const long long row = blockIdx.x / parts;
    const unsigned from = blockIdx.x % parts * each, own = min(each, (int)(n - from));
    const int found = c.select(Row<T>{x + row * n, from, own, n % Row<T>::W == 0}, k, goal, false);
    for (int i = threadIdx.x; i < k; i += blockDim.x) list[(long long)blockIdx.x * k + i] = i < found ? c.index(i) : none;
}

template <typename T>
__device__ void topk_join(const T* x, const unsigned* list, long long* out, T* values, int n, int k, int goal, int capacity, int parts, int valued) {
    follow();
    Candidates<T> c = candidates<T>(capacity);
    const long long row = blockIdx.x;
    c.select(Listed<T>{x + row * n, list + row * parts * k, (unsigned)(parts * k)}, k, goal, true);
    write(c, x + row * n, out + row * k, values + row * k, k, valued);
}

#define TOPK(name, T)                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(4096 / sizeof(T))                                                                                                \
        topk_##name(const T* x, long long* out, T* values, int n, int k, int goal, int capacity, int valued) {                                       \
        topk(x, out, values, n, k, goal, capacity, valued);                                                                                          \
    }                                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(4096 / sizeof(T))                                                                                                \
        topk_part_##name(const T* x, unsigned* list, int n, int k, int goal, int capacity, int parts, int each) {                                    \
        topk_part(x, list, n, k, goal, capacity, parts, each);                                                                                       \
    }                                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(4096 / sizeof(T))                                                                                                \
        topk_join_##name(const T* x, const unsigned* list, long long* out, T* values, int n, int k, int goal, int capacity, int parts, int valued) { \
        topk_join(x, list, out, values, n, k, goal, capacity, parts, valued);                                                                        \
    }

TOPK(f32, float)
TOPK(f64, double)
