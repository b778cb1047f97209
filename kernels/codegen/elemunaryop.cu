// a[i] = op(a[i]), i in [0, n): the element-wise ops of one operand of
// Gorgonia's own CUDA machine, which asks for them as elemunaryop.OP_TYPE.
//
// Names, order of arguments and grid are Gorgonia's: one thread an element,
// blocks of at most 1024 along x, blocks along y and z where x does not suffice.
// 8 bytes of traffic per float32 element: bound by memory.
//stheno:targets ptx

__device__ inline long long element() {
    const long long block = blockIdx.x + (long long)gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z);
    return block * blockDim.x + threadIdx.x;
}

// Neither overflows, and both keep small values: exp is taken of -|x| only.
__device__ inline float sigmoid(float x) {
    const float e = expf(-fabsf(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}
__device__ inline double sigmoid(double x) {
    const double e = exp(-fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}
__device__ inline float softplus(float x) { return (x > 0 ? x : x - x) + log1pf(expf(-fabsf(x))); }
__device__ inline double softplus(double x) { return (x > 0 ? x : x - x) + log1p(exp(-fabs(x))); }

#define KERNEL(NAME, TYPE, T, EXPR)                                                          \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_##TYPE(T* a, long long n) {    \
        const long long i = element();                                                       \
        if (i >= n) return;                                                                  \
        const T x = a[i];                                                                    \
        a[i] = EXPR;                                                                         \
    }

// UNARY has one expression for both types, FUNCTION a function of each.
#define UNARY(NAME, EXPR)          \
    KERNEL(NAME, f32, float, EXPR) \
    KERNEL(NAME, f64, double, EXPR)
#define FUNCTION(NAME, F32, F64)     \
    KERNEL(NAME, f32, float, F32(x)) \
    KERNEL(NAME, f64, double, F64(x))

FUNCTION(abs, fabsf, fabs)
FUNCTION(ceil, ceilf, ceil)
FUNCTION(floor, floorf, floor)
FUNCTION(sin, sinf, sin)
FUNCTION(cos, cosf, cos)
FUNCTION(exp, expf, exp)
FUNCTION(ln, logf, log)
FUNCTION(log2, log2f, log2)
FUNCTION(sqrt, sqrtf, sqrt)
FUNCTION(tanh, tanhf, tanh)
FUNCTION(log1p, log1pf, log1p)
FUNCTION(expm1, expm1f, expm1)
FUNCTION(sigmoid, sigmoid, sigmoid)
FUNCTION(softplus, softplus, softplus)
KERNEL(invSqrt, f32, float, 1 / sqrtf(x))
KERNEL(invSqrt, f64, double, 1 / sqrt(x))
UNARY(sign, (x > 0) - (x < 0))
UNARY(neg, -x)
UNARY(inv, 1 / x)
UNARY(square, x * x)
UNARY(cube, x * x * x)
