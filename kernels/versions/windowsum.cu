// out[row][i] = sum over j in [0, w) of in[row][i + off + j], i in [0, n_out), the
// elements outside [0, n_in) being zero, in two plain ways. Sums are double, the
// result is rounded once.
//
// simple  A thread reads the w elements of its window from global memory; what
//         its neighbours read too comes from the first-level cache.
// shared  The block's 256 threads fetch the 256 + w - 1 elements of their windows
//         into shared memory together, then each adds up its window from there. A
//         window wider than `piece` is taken in pieces.
//
// Both add w elements for each output: at w = 5 they are bound by memory, beyond
// by the w loads. ../windowsum.cu has kernels whose cost does not grow with w.

typedef long long i64;

// simple: one thread per output, rows one after the other.
template <typename T>
__device__ void simple(const T* __restrict__ in, T* __restrict__ out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {
    const i64 o = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= rows * n_out) return;
    const i64 row = o / n_out, first = o % n_out + off;
    double sum = 0;
    for (i64 j = max(first, 0LL); j < min(first + w, n_in); j++) sum += (double)in[row * n_in + j];
    out[o] = (T)sum;
}

// shared: a block per 256 outputs of one row. Shared: 256 + piece - 1 elements.
template <typename T>
__device__ void shared(const T* __restrict__ in, T* __restrict__ out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int piece) {
    extern __shared__ double memory[];
    T* const x = reinterpret_cast<T*>(memory);
    const i64 blocks = (n_out + blockDim.x - 1) / blockDim.x; // of a row
    const i64 row = blockIdx.x / blocks, start = blockIdx.x % blocks * blockDim.x;
    double sum = 0;
    for (i64 done = 0; done < w; done += piece) {
        const int count = (int)min((i64)piece, w - done);
        // The windows reach beyond the block, so some threads fetch twice. The bound is that of
        // the input, not of the outputs: the last windows need the tail, too.
        for (int e = threadIdx.x; e < blockDim.x + count - 1; e += blockDim.x) {
            const i64 j = start + off + done + e;
            x[e] = 0 <= j && j < n_in ? in[row * n_in + j] : T(0);
        }
        __syncthreads();
        for (int j = 0; j < count; j++) sum += (double)x[threadIdx.x + j];
        __syncthreads();
    }
    if (start + threadIdx.x < n_out) out[row * n_out + start + threadIdx.x] = (T)sum;
}

#define ENTRIES(T, S)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                       \
        windowsum_simple_##S(const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {          \
        simple(in, out, n_in, n_out, w, off, rows);                                                         \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                       \
        windowsum_shared_##S(const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int piece) { \
        shared(in, out, n_in, n_out, w, off, rows, piece);                                                  \
    }
ENTRIES(float, f32)
ENTRIES(double, f64)
