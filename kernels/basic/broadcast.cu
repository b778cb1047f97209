// out[o][j][i] = in[o][i] / div,  in: outer x inner, out: outer x r x inner
//
// The adjoint of sum.cu's reduction (div is 1, or r for the mean), and with
// outer = inner = 1 the fill of a tensor with one value. One thread writes 16
// bytes of output and finds its first source by one division; the source is
// small or re-read from the cache. 4 bytes of traffic per float32 output.
#include "follow_few.cuh"
#include "vector.cuh"

template <typename T, typename I>
__device__ void broadcast(const T* __restrict__ in, T* __restrict__ out, I total, I r, I inner, T div) {
    constexpr int W = Vec<T>::width;
    const I stride = (I)gridDim.x * blockDim.x, vectors = (total + W - 1) / W;
    follow_and_admit();
    for (I v = (I)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += stride) {
        const I first = v * W, row = first / inner;  // row counts o * r + j
        I i = first - row * inner, o = row / r, j = row - o * r;
        Pack<T> x;
        if (inner % W == 0) {  // the vector lies in one row
            x.v = *reinterpret_cast<const typename Vec<T>::type*>(in + o * inner + i);
        } else {
#pragma unroll
            for (int k = 0; k < W; k++) {
                x.s[k] = first + k < total ? in[o * inner + i] : (T)0;
                if (++i == inner) {
                    i = 0;
                    if (++j == r) j = 0, o++;
                }
            }
        }
        if (div != 1) {
#pragma unroll
            for (int k = 0; k < W; k++) x.s[k] /= div;
        }
        if (first + W <= total) reinterpret_cast<typename Vec<T>::type*>(out)[v] = x.v;
        else
#pragma unroll
            for (int k = 0; k < W; k++)
                if (first + k < total) out[first + k] = x.s[k];
    }
}

#define BROADCAST(NAME, T)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        broadcast_##NAME(const T* in, T* out, long long total, long long r, long long inner, double div) {        \
        if (total < (1ll << 31)) broadcast<T, unsigned>(in, out, total, r, inner, (T)div);                        \
        else broadcast<T, unsigned long long>(in, out, total, r, inner, (T)div);                                  \
    }

BROADCAST(f32, float)
BROADCAST(f64, double)
