// out[i] = x[i] s(x[i]) and its derivative, with s(x) = 1 / (1 + exp(-x)), for i
// in [0, n). One thread per element, in a grid-stride loop: bound by memory.

template <typename T> __device__ T sigmoid(T x) { return 1 / (1 + exp(-x)); }

template <typename T> __device__ void swish(const T* __restrict__ x, T* __restrict__ out, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = x[i] * sigmoid(x[i]);
}

// out[i] = g[i] d/dx (x s(x)) = g[i] s (1 + x (1 - s)) at x[i]
template <typename T>
__device__ void swish_grad(const T* __restrict__ x, const T* __restrict__ g, T* __restrict__ out, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const T s = sigmoid(x[i]);
        out[i] = g[i] * s * (1 + x[i] * (1 - s));
    }
}

extern "C" __global__ void swish_f32(const float* x, float* out, long long n) { swish(x, out, n); }
extern "C" __global__ void swish_f64(const double* x, double* out, long long n) { swish(x, out, n); }
extern "C" __global__ void swish_grad_f32(const float* x, const float* g, float* out, long long n) {
    swish_grad(x, g, out, n);
}
extern "C" __global__ void swish_grad_f64(const double* x, const double* g, double* out, long long n) {
    swish_grad(x, g, out, n);
}
