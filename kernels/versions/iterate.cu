// The first six ways to wait between the half steps of ../iterate.cu (versions 7 and 8), which defines what is computed: P = A X and
// X = B P by turns, a thread per row. A thread takes row t, t + threads of the grid, ...
//
//   begin          X = x, P = 0, both counters = 0, since scratch memory is not initialised.
//   1, 2 half      One half step: the end of the launch is the barrier. Version 2 is the same launches as one CUDA graph.
//   3 to 6 wrap, volatile, acquire, flip
//                  All steps in one launch, with grid barriers that differ in how they wait (barriers.cuh). All blocks must be on the
//                  device at once.
//   none, block    WRONG on purpose: no barrier, and one that only the threads of a block share. They are no versions, and show what happens then.
//
// They are slower than the weights in registers because each half step reads all of A or B again.
#include "barriers.cuh"

// half_step computes out = A in by a thread per row and, if `last`, y = out. A thread has FLIGHT loads in flight. The kernels' second launch
// bound grants the compiler the registers for them: without it, the compiler uses 32 and makes each load wait for the one before.
template <typename T>
__device__ void half_step(const T* __restrict__ w, const double* in, double* out, T* y, int last, long long n, int transposed) {
    constexpr int FLIGHT = 8;
    const long long stride = (long long)gridDim.x * blockDim.x;
    const long long step = transposed ? n : 1;
#pragma unroll 1
    for (long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x; j < n; j += stride) {
        const T* a = w + (transposed ? j : j * n);
        double acc[4] = {};
        long long k = 0;
#pragma unroll 1
        for (; k + FLIGHT <= n; k += FLIGHT) {
            T x[FLIGHT];
            double v[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) x[f] = a[(k + f) * step], v[f] = in[k + f];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) acc[f % 4] += (double)x[f] * v[f];
        }
#pragma unroll 1
        for (; k < n; k++) acc[0] += (double)a[k * step] * in[k];
        const double sum = (acc[0] + acc[1]) + (acc[2] + acc[3]);
        out[j] = sum;
        if (last) y[j] = (T)sum;
    }
}

// whole makes all steps in one launch. The last half step needs no barrier after it.
template <Wait W, typename T>
__device__ void whole(const T* w1, const T* w2, double* X, double* P, unsigned* counter, T* y, long long n, int steps, int transposed) {
#pragma unroll 1
    for (int i = 1; i <= 2 * steps; i++) {
        half_step(w1, X, P, y, i == 2 * steps, n, transposed);
        if (i < 2 * steps) barrier<W>(counter, i);
        const T* w = w1;
        w1 = w2, w2 = w;
        double* p = X;
        X = P, P = p;
    }
}

#define WHOLE(NAME, WAIT, T, SUFFIX)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                               \
        iterate_##NAME##_##SUFFIX(const T* w1, const T* w2, double* X, double* P, unsigned* counter, T* y, long long n, int steps,      \
                                  int transposed) {                                                                                     \
        whole<WAIT>(w1, w2, X, P, counter, y, n, steps, transposed);                                                                    \
    }

#define ITERATE(T, SUFFIX)                                                                                                              \
    extern "C" __global__ void iterate_begin_##SUFFIX(const T* x, double* X, double* P, unsigned* counter, long long n) {               \
        const long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x;                                                           \
        if (j < n) X[j] = (double)x[j], P[j] = 0;                                                                                       \
        if (j < 2) counter[j] = 0;                                                                                                      \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                               \
        iterate_half_##SUFFIX(const T* w, const double* in, double* out, T* y, int last, long long n, int transposed) {                 \
        half_step(w, in, out, y, last, n, transposed);                                                                                  \
    }                                                                                                                                   \
    WHOLE(none, NONE, T, SUFFIX)                                                                                                        \
    WHOLE(block, BLOCK, T, SUFFIX)                                                                                                      \
    WHOLE(wrap, WRAP, T, SUFFIX)                                                                                                        \
    WHOLE(volatile, VOLATILE, T, SUFFIX)                                                                                                \
    WHOLE(acquire, ACQUIRE, T, SUFFIX)                                                                                                  \
    WHOLE(flip, FLIP, T, SUFFIX)

ITERATE(float, f32)
ITERATE(double, f64)
