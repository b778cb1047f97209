// out[i][j] = s[i] * x[i][j],  x: rows x n, s: rows
//
// The adjoint of a row dot. Each block takes a piece of one row (or, for short
// rows, whole threads' worth of elements of several), one element a thread in a
// coalesced stride: with n of any size the rows start unaligned, so accesses
// are one element wide. 8 bytes of traffic per float32: bound by memory.

template <typename T, typename I>
__device__ void scale(const T* __restrict__ s, const T* __restrict__ x, T* __restrict__ out, I total, I n) {
    const I stride = (I)gridDim.x * blockDim.x;
    constexpr int FLIGHT = 4;
    for (I i = (I)blockIdx.x * blockDim.x * FLIGHT + threadIdx.x; i < total; i += stride * FLIGHT) {
        T v[FLIGHT], f[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            const I at = i + k * (I)blockDim.x;
            if (at < total) v[k] = x[at], f[k] = s[at / n];
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            const I at = i + k * (I)blockDim.x;
            if (at < total) out[at] = f[k] * v[k];
        }
    }
}

// 32-bit indexes where they suffice: a 64-bit division costs as much as the
// whole rest of the loop.
#define SCALE(NAME, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        scale_rows_##NAME(const T* s, const T* x, T* out, long long total, long long n) {                         \
        if (total < (1ll << 31)) scale<T, unsigned>(s, x, out, (unsigned)total, (unsigned)n);                     \
        else scale<T, unsigned long long>(s, x, out, total, n);                                                   \
    }

SCALE(f32, float)
SCALE(f64, double)
