// out[i][j] = s[i] * x[i][j],  x: rows x n, s: rows
//
// The adjoint of a row dot. The matrix is taken as one long vector, so that
// accesses are 16 bytes wide whatever n is; a thread finds the row of a vector's
// first element by one division and counts on from there. 8 bytes of traffic per
// float32: bound by memory.
#include "follow_few.cuh"
#include "vector.cuh"

template <typename T, typename I>
__device__ void scale(const T* __restrict__ s, const T* __restrict__ x, T* __restrict__ out, I total, I n) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, VECTORS = 2;
    const I first = ((I)blockIdx.x * blockDim.x * VECTORS + threadIdx.x) * W, next = (I)blockDim.x * W;
    Pack<T> p[VECTORS], f[VECTORS];
    follow_and_admit();
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const I at = first + v * next;
        if (at + W <= total) {
            p[v].v = *reinterpret_cast<const V*>(x + at);
        } else {
#pragma unroll
            for (int k = 0; k < W - 1; k++)
                if (at + k < total) p[v].s[k] = x[at + k];
        }
    }
#pragma unroll
    for (int v = 0; v < VECTORS; v++) { // all factors before the first is used: a loop over rows would wait for each
        const I at = first + v * next;
        if (at >= total) break;
        const I last = min(at + W, total) - 1;
        I row = at / n, i = at - row * n;
        if (n >= W) { // a vector is in two rows at most
            const T here = s[row], after = s[last - at < n - i ? row : row + 1];
#pragma unroll
            for (int k = 0; k < W; k++) f[v].s[k] = k < n - i ? here : after;
        } else {
#pragma unroll
            for (int k = 0; k < W; k++) {
                if (at + k <= last) f[v].s[k] = s[row];
                if (++i == n) i = 0, row++;
            }
        }
    }
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const I at = first + v * next;
#pragma unroll
        for (int k = 0; k < W; k++) p[v].s[k] *= f[v].s[k];
        if (at + W <= total) {
            *reinterpret_cast<V*>(out + at) = p[v].v;
        } else {
#pragma unroll
            for (int k = 0; k < W - 1; k++)
                if (at + k < total) out[at + k] = p[v].s[k];
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
