// a[i] = op(a[i], b[i]) and its forms with a scalar, i in [0, n): the
// element-wise ops of two operands of Gorgonia's own CUDA machine, which asks
// for them as elembinop.OP_FORM_TYPE:
//
//   vv   a[i] = op(a[i], b[i])     vs   a[i] = op(a[i], b[0])
//   ss   a[0] = op(a[0], b[0])     sv   b[i] = op(a[0], b[i])
//
// Comparisons return 1 or 0 of the operands' type. Names, order of arguments and
// grid are Gorgonia's: one thread an element, blocks of at most 1024 along x,
// blocks along y and z where x does not suffice. 12 bytes of traffic per float32
// element and one operation: bound by memory.
//stheno:targets ptx

__device__ inline long long element() {
    const long long block = blockIdx.x + (long long)gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z);
    return block * blockDim.x + threadIdx.x;
}

#define FORMS(NAME, TYPE, T, EXPR)                                                                          \
    __device__ inline T NAME##_##TYPE(T x, T y) { return EXPR; }                                            \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_vv_##TYPE(T* a, const T* b, long long n) {    \
        const long long i = element();                                                                      \
        if (i < n) a[i] = NAME##_##TYPE(a[i], b[i]);                                                        \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_vs_##TYPE(T* a, const T* b, long long n) {    \
        const long long i = element();                                                                      \
        if (i < n) a[i] = NAME##_##TYPE(a[i], b[0]);                                                        \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_sv_##TYPE(const T* a, T* b, long long n) {    \
        const long long i = element();                                                                      \
        if (i < n) b[i] = NAME##_##TYPE(a[0], b[i]);                                                        \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(1024) NAME##_ss_##TYPE(T* a, const T* b, long long) {      \
        if (element() == 0) a[0] = NAME##_##TYPE(a[0], b[0]);                                               \
    }

#define BINARY(NAME, EXPR)         \
    FORMS(NAME, f32, float, EXPR)  \
    FORMS(NAME, f64, double, EXPR)

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x * y)
BINARY(div, x / y)
BINARY(lt, x < y)
BINARY(lte, x <= y)
BINARY(gt, x > y)
BINARY(gte, x >= y)
BINARY(eq, x == y)
BINARY(ne, x != y)
FORMS(pow, f32, float, powf(x, y))
FORMS(pow, f64, double, pow(x, y))
FORMS(mod, f32, float, fmodf(x, y))
FORMS(mod, f64, double, fmod(x, y))
