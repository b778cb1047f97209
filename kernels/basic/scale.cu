// out[i][j] = s[i] * x[i][j],  x: rows x n, s: rows
//
// The adjoint of a row dot. The matrix is taken as one long vector, so that
// accesses are 16 bytes wide whatever n is; a thread finds the row of a vector's
// first element by one division and counts on from there. 8 bytes of traffic per
// float32: bound by memory.
#include "follow.cuh"
#include "vector.cuh"

template <typename T, typename I>
__device__ void scale(const T* __restrict__ s, const T* __restrict__ x, T* __restrict__ out, I total, I n) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, VECTORS = 2;
    const I first = ((I)blockIdx.x * blockDim.x * VECTORS + threadIdx.x) * W, next = (I)blockDim.x * W;
    Pack<T> p[VECTORS];
    follow();
    admit();
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
        if (first + v * next + W <= total) p[v].v = *reinterpret_cast<const V*>(x + first + v * next);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        I at = first + v * next;
        if (at + W <= total) {
            I row = at / n, i = at - row * n;
            T f = s[row];
#pragma unroll
            for (int k = 0; k < W; k++, i++) {
                if (i == n) i = 0, f = s[++row];
                p[v].s[k] *= f;
            }
            *reinterpret_cast<V*>(out + at) = p[v].v;
        } else {
            for (; at < total; at++) out[at] = s[at / n] * x[at];
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
