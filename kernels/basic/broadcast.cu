// out[o][j][i] = in[o][i] / div,  in: outer x inner, out: outer x r x inner
//
// The adjoint of sum.cu's reduction (div is 1, or r for the mean), and with
// outer = inner = 1 the fill of a tensor with one value. A thread writes two
// vectors of 16 bytes, and loads the elements of both before it stores them. Indices
// below 2^31 are divided by multiplication: byR and byInner divide by r and inner.
#include "follow_few.cuh"
#include "vector.cuh"
#include "windows.cuh" // Divide

template <typename I> struct Quotient { // of 64 bits
    I d;
    __device__ I operator()(I n) const { return n / d; }
};

template <typename T, typename I, typename D>
__device__ void broadcast(const T* __restrict__ in, T* __restrict__ out, I total, I r, I inner, D by_r, D by_inner, T div) {
    constexpr int W = Vec<T>::width, VECTORS = 2;
    const I begin = ((I)blockIdx.x * blockDim.x * VECTORS + threadIdx.x) * W, step = blockDim.x * W;
    Pack<T> x[VECTORS];
    follow_and_admit();
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const I first = begin + q * step;
        if (first >= total) break;
        const I row = by_inner(first);  // counts o * r + j
        I i = first - row * inner, o = by_r(row), j = row - o * r;
        if (inner % W == 0) {  // the vector lies in one row
            x[q].v = *reinterpret_cast<const typename Vec<T>::type*>(in + o * inner + i);
        } else {
#pragma unroll
            for (int k = 0; k < W; k++) {
                x[q].s[k] = first + k < total ? in[o * inner + i] : (T)0;
                if (++i == inner) {
                    i = 0;
                    if (++j == r) j = 0, o++;
                }
            }
        }
    }
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const I first = begin + q * step;
        if (first >= total) break;
        if (div != 1) {
#pragma unroll
            for (int k = 0; k < W; k++) x[q].s[k] /= div;
        }
        if (first + W <= total) *reinterpret_cast<typename Vec<T>::type*>(out + first) = x[q].v;
        else
#pragma unroll
            for (int k = 0; k < W; k++)
                if (first + k < total) out[first + k] = x[q].s[k];
    }
}

#define BROADCAST(NAME, T)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        broadcast_##NAME(const T* in, T* out, long long total, long long r, long long inner, int r_d, int r_magic, int r_shift, int inner_d, int inner_magic, \
                         int inner_shift, double div) {                                                           \
        using L = unsigned long long;                                                                             \
        if (total < (1ll << 31))                                                                                  \
            broadcast<T, unsigned>(in, out, total, r, inner, Divide{r_d, r_magic, r_shift}, Divide{inner_d, inner_magic, inner_shift}, (T)div); \
        else broadcast<T, L>(in, out, total, r, inner, Quotient<L>{(L)r}, Quotient<L>{(L)inner}, (T)div);         \
    }

BROADCAST(f32, float)
BROADCAST(f64, double)
