// out[i] = a[i] + b[i], i in [0, n).
//
// One thread per 16 bytes; operands start 256-byte aligned, so the vector loads
// are aligned and the tail is at most three elements. 12 bytes of traffic per
// element and one add: bound by memory.
#include "follow_few.cuh"
#include "vector.cuh"

template <typename T>
__device__ void add(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, long long n) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width;
    const long long v = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const bool full = (v + 1) * W <= n;
    Pack<T> x, y;
    follow_and_admit();
    if (full) {
        x.v = reinterpret_cast<const V*>(a)[v];
        y.v = reinterpret_cast<const V*>(b)[v];
    } else {
#pragma unroll
        for (int k = 0; k < W - 1; k++) // at once: a loop would wait for each element
            if (v * W + k < n) x.s[k] = a[v * W + k], y.s[k] = b[v * W + k];
    }
#pragma unroll
    for (int k = 0; k < W; k++) x.s[k] += y.s[k];
    if (full) {
        reinterpret_cast<V*>(out)[v] = x.v;
    } else {
#pragma unroll
        for (int k = 0; k < W - 1; k++)
            if (v * W + k < n) out[v * W + k] = x.s[k];
    }
}

extern "C" __global__ void add_f32(const float* a, const float* b, float* out, long long n) { add(a, b, out, n); }
extern "C" __global__ void add_f64(const double* a, const double* b, double* out, long long n) { add(a, b, out, n); }
