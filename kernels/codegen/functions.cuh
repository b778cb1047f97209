// Functions of a number that CUDA lacks, for kernels that are generated from
// expressions (math.cu) and for epilogues of products: the same bits in both.
#pragma once

// The reciprocal of a number in [1, 2], within 1 unit in the last place.
__device__ inline float inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline double inverse(double x) { return 1 / x; }

// 1 / (1 + e^-x) with an exponential that does not overflow.
template <typename T> __device__ inline T sigmoid(T x) {
    const T e = exp(-fabs(x));
    return (x < 0 ? e : T(1)) * inverse(1 + e);
}

// ln(1 + e^x) with an exponential that does not overflow. A NaN is in both terms.
template <typename T> __device__ inline T softplus(T x) { return fmax(x, T(0)) + log1p(exp(-fabs(x))); }
