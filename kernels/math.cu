// y = f(x), one element: the functions of element-wise expressions.
//
// No plan launches these kernels. A kernel that is generated from an expression
// takes the PTX between the load of x and the store of y (expr/splice.go), so that
// the functions in it are compiled by a compiler, once, at build time. It runs on
// every device: the PTX is for the oldest one.
//
// Errors are those of CUDA's functions, at most 2 units in the last place, of
// sigmoid and softplus at most 4. Denormal numbers are kept.

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

#define UNARY(NAME)                                                             \
    extern "C" __global__ void NAME##_f32(float x, float* y) { *y = NAME(x); }  \
    extern "C" __global__ void NAME##_f64(double x, double* y) { *y = NAME(x); }

UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log2)
UNARY(log1p)
UNARY(sin)
UNARY(cos)
UNARY(tanh)
UNARY(erf)
UNARY(sigmoid)
UNARY(softplus)

extern "C" __global__ void pow_f32(float x, float y, float* z) { *z = pow(x, y); }
extern "C" __global__ void pow_f64(double x, double y, double* z) { *z = pow(x, y); }
