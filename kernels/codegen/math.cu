// y = f(x), one element: the functions of element-wise expressions.
//
// No plan launches these kernels. A kernel that is generated from an expression
// takes the PTX between the load of x and the store of y (expr/splice.go), so that
// the functions in it are compiled by a compiler, once, at build time. It runs on
// every device: the PTX is for the oldest one.
//
// Errors are those of CUDA's functions, at most 2 units in the last place, of
// sigmoid and softplus at most 4. Denormal numbers are kept.
//stheno:targets ptx

#include "functions.cuh"

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
