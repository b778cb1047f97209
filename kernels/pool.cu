// Pooling, plane by plane, y over windows of x, and the derivative by x of what has the
// derivative dy by y:
//
//	max:      y[o] = the greatest of the window      dx[i] = the sum of dy[o] of the windows whose first greatest element is i
//	average:  y[o] = the sum of the window / div     dx[i] = the sum of dy[o] of the windows around i, / div
//
// Elements of a window outside of the plane are left out. Windows and sums are in the
// order in which elements lie. The greatest is that by >, from the least number on: a NaN
// never is, and a window of nothing greater than that number gives it, and has no
// derivative.
//
// A thread does several elements of the output, neighbouring threads neighbours; what
// these read twice comes from the cache. Bound by memory. SIZE is the rows and columns of
// a window, 0 if not known.
#include "windows.cuh"

template <typename T> __device__ T least();
template <> __device__ float least() { return __int_as_float(0xff7fffff); }
template <> __device__ double least() { return __longlong_as_double(0xffefffffffffffffll); }

// Sets the thread's EACH elements of an output of planes to f(plane, row, column, index).
// planeDiv and rowDiv divide by the elements of a plane and of a row.
template <int EACH, typename T, typename F>
__device__ void elements(T* __restrict__ out, long long total, Divide planeDiv, Divide rowDiv, F f) {
    const long long first = (long long)blockIdx.x * (blockDim.x * EACH);
    const long long plane = total < (1ll << 31) ? planeDiv((unsigned)first) : first / planeDiv.d;
    const unsigned rest = first - plane * planeDiv.d;
    auto element = [&](unsigned at) {
        const unsigned p = planeDiv(rest + at), r = rest + at - p * planeDiv.d, y = rowDiv(r);
        return f(plane + p, (int)y, (int)(r - y * rowDiv.d), first + at);
    };
    if (first + blockDim.x * EACH <= total) {
        T result[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) result[e] = element(threadIdx.x + e * blockDim.x);
#pragma unroll
        for (int e = 0; e < EACH; e++) out[first + threadIdx.x + e * blockDim.x] = result[e];
    } else {
        for (unsigned at = threadIdx.x; first + at < total; at += blockDim.x) out[first + at] = element(at);
    }
}

template <typename T, int SIZE, bool MAX>
__device__ void pool(const T* __restrict__ in, T* __restrict__ out, long long total, Axis v, Axis h, T div, Divide planeDiv, Divide rowDiv) {
    elements<4>(out, total, planeDiv, rowDiv, [&](long long plane, int oy, int ox, long long) {
        const T* from = in + plane * v.in * h.in;
        const int y = v.begin(oy), x = h.begin(ox);
        T result = MAX ? least<T>() : 0;
        auto take = [&](T e) {
            if (!MAX) result += e;
            else if (e > result) result = e;
        };
        if constexpr (SIZE > 0) {
            T window[SIZE * SIZE]; // loaded together
#pragma unroll
            for (int k = 0; k < SIZE * SIZE; k++) {
                const int i = y + k / SIZE, j = x + k % SIZE;
                window[k] = v.inside(i) && h.inside(j) ? from[i * h.in + j] : MAX ? least<T>() : 0;
            }
#pragma unroll
            for (int k = 0; k < SIZE * SIZE; k++) take(window[k]);
        } else {
            const int bottom = min(y + v.size, v.in), right = min(x + h.size, h.in);
            for (int i = max(y, 0); i < bottom; i++)
                for (int j = max(x, 0); j < right; j++) take(from[i * h.in + j]);
        }
        return MAX ? result : result / div;
    });
}

// The windows along an axis that have element at, from first to last.
struct Around {
    int first, last;
    __device__ Around(Axis a, Divide stride, int at) {
        at += a.pad;
        first = at < a.size ? 0 : stride(at - a.size + a.stride);
        last = min((int)stride(at), a.out - 1);
    }
};

template <typename T>
__device__ void maxDiff(const T* __restrict__ in, const T* __restrict__ pooled, const T* __restrict__ grad, T* __restrict__ out, long long total,
                        Axis v, Axis h, Divide planeDiv, Divide rowDiv, Divide downDiv, Divide acrossDiv) {
    elements<2>(out, total, planeDiv, rowDiv, [&](long long plane, int y, int x, long long at) {
        const T* from = in + plane * v.in * h.in;
        const long long windows = plane * v.out * h.out;
        const T value = in[at];
        const Around down(v, downDiv, y), across(h, acrossDiv, x);
        T sum = 0;
        for (int oy = down.first; oy <= down.last; oy++)
            for (int ox = across.first; ox <= across.last; ox++) {
                const long long o = windows + (long long)oy * h.out + ox;
                const T greatest = pooled[o], slope = grad[o];
                if (value != greatest || value == least<T>()) continue;
                const int left = max(h.begin(ox), 0), right = min(h.begin(ox) + h.size, h.in);
                bool first = true;
                for (int i = max(v.begin(oy), 0); first && i <= y; i++)
                    for (int j = left; first && j < (i < y ? right : x); j++) first = from[i * h.in + j] != value;
                if (first) sum += slope;
            }
        return sum;
    });
}

template <typename T>
__device__ void averageDiff(const T* __restrict__ grad, T* __restrict__ out, long long total, Axis v, Axis h, T div, Divide planeDiv,
                            Divide rowDiv, Divide downDiv, Divide acrossDiv) {
    elements<2>(out, total, planeDiv, rowDiv, [&](long long plane, int y, int x, long long) {
        const T* from = grad + plane * v.out * h.out;
        const Around down(v, downDiv, y), across(h, acrossDiv, x);
        T sum = 0;
        for (int oy = down.first; oy <= down.last; oy++)
            for (int ox = across.first; ox <= across.last; ox++) sum += from[oy * h.out + ox];
        return sum / div;
    });
}

#define AXES                                                                                                      \
    int ih, int oh, int kh, int sh, int dh, int ph, int iw, int ow, int kw, int sw, int dw, int pw
#define DIVIDE(name) int name##0, int name##1, int name##2

#define POOL(OP, MAX, NAME, SIZE, T)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        pool_##OP##_##NAME(const T* in, T* out, long long total, AXES, double div, DIVIDE(plane), DIVIDE(row)) {  \
        pool<T, SIZE, MAX>(in, out, total, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}, (T)div,            \
                           {plane0, plane1, plane2}, {row0, row1, row2});                                         \
    }

#define DIFFS(NAME, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                          \
        pool_max_diff_##NAME(const T* in, const T* pooled, const T* grad, T* out, long long total, AXES,          \
                             DIVIDE(plane), DIVIDE(row), DIVIDE(down), DIVIDE(across)) {                          \
        maxDiff<T>(in, pooled, grad, out, total, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw},              \
                   {plane0, plane1, plane2}, {row0, row1, row2}, {down0, down1, down2},                           \
                   {across0, across1, across2});                                                                  \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        pool_average_diff_##NAME(const T* grad, T* out, long long total, AXES, double div, DIVIDE(plane),         \
                                 DIVIDE(row), DIVIDE(down), DIVIDE(across)) {                                     \
        averageDiff<T>(grad, out, total, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}, (T)div,              \
                       {plane0, plane1, plane2}, {row0, row1, row2}, {down0, down1, down2},                       \
                       {across0, across1, across2});                                                              \
    }

#define POOLS(NAME, SIZE, T)       \
    POOL(max, true, NAME, SIZE, T) \
    POOL(average, false, NAME, SIZE, T)

POOLS(2x2_f32, 2, float)
POOLS(2x2_f64, 2, double)
POOLS(3x3_f32, 3, float)
POOLS(3x3_f64, 3, double)
POOLS(f32, 0, float)
POOLS(f64, 0, double)
DIFFS(f32, float)
DIFFS(f64, double)
