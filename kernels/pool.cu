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
// these read twice comes from the cache. It loads all that it can name before it looks
// at any. Bound by memory.
#include "windows.cuh"

template <typename T> __device__ T least();
template <> __device__ float least() { return __int_as_float(0xff7fffff); }
template <> __device__ double least() { return __longlong_as_double(0xffefffffffffffffll); }

// Sets the thread's EACH elements of an output of planes to finish(load(plane, row, column,
// index)). planeDiv and rowDiv divide by the elements of a plane and of a row.
template <int EACH, typename T, typename L, typename F>
__device__ void elements(T* __restrict__ out, long long total, Divide planeDiv, Divide rowDiv, L load, F finish) {
    const long long first = (long long)blockIdx.x * (blockDim.x * EACH);
    const long long plane = total < (1ll << 31) ? planeDiv((unsigned)first) : first / planeDiv.d;
    const unsigned rest = first - plane * planeDiv.d;
    auto element = [&](unsigned at) {
        const unsigned p = planeDiv(rest + at), r = rest + at - p * planeDiv.d, y = rowDiv(r);
        return load(plane + p, (int)y, (int)(r - y * rowDiv.d), first + at);
    };
    if (first + blockDim.x * EACH <= total) {
        decltype(element(0)) loaded[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) loaded[e] = element(threadIdx.x + e * blockDim.x);
#pragma unroll
        for (int e = 0; e < EACH; e++) out[first + threadIdx.x + e * blockDim.x] = finish(loaded[e]);
    } else {
        for (unsigned at = threadIdx.x; first + at < total; at += blockDim.x) out[first + at] = finish(element(at));
    }
}

// SIZE is the rows and columns of a window, 0 if not known.
template <typename T, int SIZE, bool MAX>
__device__ void pool(const T* __restrict__ in, T* __restrict__ out, long long total, Axis v, Axis h, T div, Divide planeDiv, Divide rowDiv) {
    const T start = MAX ? least<T>() : 0;
    auto take = [](T& result, T e) {
        if (!MAX) result += e;
        else if (e > result) result = e;
    };
    auto window = [&](long long plane, int oy, int ox, long long) {
        const T* from = in + plane * v.in * h.in;
        const int y = v.begin(oy), x = h.begin(ox);
        T result = start;
        if constexpr (SIZE > 0) {
            T e[SIZE][SIZE];
            if (y >= 0 && x >= 0 && y + SIZE <= v.in && x + SIZE <= h.in) {
#pragma unroll
                for (int i = 0; i < SIZE; i++)
#pragma unroll
                    for (int j = 0; j < SIZE; j++) e[i][j] = from[(y + i) * h.in + x + j];
            } else {
#pragma unroll
                for (int i = 0; i < SIZE; i++)
#pragma unroll
                    for (int j = 0; j < SIZE; j++) e[i][j] = v.inside(y + i) && h.inside(x + j) ? from[(y + i) * h.in + x + j] : start;
            }
#pragma unroll
            for (int i = 0; i < SIZE; i++)
#pragma unroll
                for (int j = 0; j < SIZE; j++) take(result, e[i][j]);
        } else {
            const int bottom = min(y + v.size, v.in), right = min(x + h.size, h.in);
            for (int i = max(y, 0); i < bottom; i++)
                for (int j = max(x, 0); j < right; j++) take(result, from[i * h.in + j]);
        }
        return result;
    };
    elements<4>(out, total, planeDiv, rowDiv, window, [&](T result) { return MAX ? result : result / div; });
}

// The windows along an axis that have element at, from first to last.
struct Around {
    int first, last;
    __device__ Around() {}
    __device__ Around(Axis a, Divide stride, int at) {
        at += a.pad;
        first = at < a.size ? 0 : stride(at - a.size + a.stride);
        last = min((int)stride(at), a.out - 1);
    }
};

// The elements of a thread where windows overlap by MOST along an axis.
template <int MOST> constexpr int EACH = MOST == 1 ? 4 : MOST == 2 ? 2 : 1;

// An element of the input of a max-pool, and what is known of the windows around it.
template <typename T, int MOST> struct Place {
    const T* from; // its plane
    long long windows; // those of the plane
    int y, x;
    T value;
    Around down, across;
    T greatest[MOST * MOST], slope[MOST * MOST];
};

// MOST is how many windows along an axis have an element at most, 0 if not known.
template <typename T, int MOST>
__device__ void maxDiff(const T* __restrict__ in, const T* __restrict__ pooled, const T* __restrict__ grad, T* __restrict__ out, long long total,
                        Axis v, Axis h, Divide planeDiv, Divide rowDiv, Divide downDiv, Divide acrossDiv) {
    constexpr int KEPT = MOST ? MOST : 1;
    auto load = [&](long long plane, int y, int x, long long at) {
        Place<T, KEPT> p;
        p.from = in + plane * v.in * h.in, p.windows = plane * v.out * h.out, p.y = y, p.x = x, p.value = in[at];
        p.down = Around(v, downDiv, y), p.across = Around(h, acrossDiv, x);
        if (MOST) {
#pragma unroll
            for (int k = 0; k < KEPT * KEPT; k++) {
                const int oy = p.down.first + k / KEPT, ox = p.across.first + k % KEPT;
                const bool exists = oy <= p.down.last && ox <= p.across.last;
                const long long o = p.windows + (long long)oy * h.out + ox;
                p.greatest[k] = exists ? pooled[o] : least<T>();
                p.slope[k] = exists ? grad[o] : 0;
            }
        }
        return p;
    };
    auto slope = [&](const Place<T, KEPT>& p, int oy, int ox, T greatest, T slope) {
        if (p.value != greatest || p.value == least<T>()) return (T)0;
        const int left = max(h.begin(ox), 0), right = min(h.begin(ox) + h.size, h.in);
        for (int i = max(v.begin(oy), 0); i <= p.y; i++)
            for (int j = left; j < (i < p.y ? right : p.x); j++)
                if (p.from[i * h.in + j] == p.value) return (T)0; // an earlier one is as great
        return slope;
    };
    elements<EACH<MOST>>(out, total, planeDiv, rowDiv, load, [&](const Place<T, KEPT>& p) {
        T sum = 0;
        if (MOST) {
#pragma unroll
            for (int k = 0; k < KEPT * KEPT; k++) sum += slope(p, p.down.first + k / KEPT, p.across.first + k % KEPT, p.greatest[k], p.slope[k]);
        } else {
            for (int oy = p.down.first; oy <= p.down.last; oy++)
                for (int ox = p.across.first; ox <= p.across.last; ox++) {
                    const long long o = p.windows + (long long)oy * h.out + ox;
                    sum += slope(p, oy, ox, pooled[o], grad[o]);
                }
        }
        return sum;
    });
}

template <typename T, int MOST>
__device__ void averageDiff(const T* __restrict__ grad, T* __restrict__ out, long long total, Axis v, Axis h, T div, Divide planeDiv,
                            Divide rowDiv, Divide downDiv, Divide acrossDiv) {
    auto load = [&](long long plane, int y, int x, long long) {
        const T* from = grad + plane * v.out * h.out;
        const Around down(v, downDiv, y), across(h, acrossDiv, x);
        T sum = 0;
        if (MOST) {
#pragma unroll
            for (int k = 0; k < MOST * MOST; k++) {
                const int oy = down.first + k / (MOST ? MOST : 1), ox = across.first + k % (MOST ? MOST : 1);
                sum += oy <= down.last && ox <= across.last ? from[oy * h.out + ox] : 0;
            }
        } else {
            for (int oy = down.first; oy <= down.last; oy++)
                for (int ox = across.first; ox <= across.last; ox++) sum += from[oy * h.out + ox];
        }
        return sum;
    };
    elements<EACH<MOST>>(out, total, planeDiv, rowDiv, load, [&](T sum) { return sum / div; });
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

#define DIFFS(NAME, MOST, T)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                          \
        pool_max_diff_##NAME(const T* in, const T* pooled, const T* grad, T* out, long long total, AXES,          \
                             DIVIDE(plane), DIVIDE(row), DIVIDE(down), DIVIDE(across)) {                          \
        maxDiff<T, MOST>(in, pooled, grad, out, total, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw},        \
                         {plane0, plane1, plane2}, {row0, row1, row2}, {down0, down1, down2},                     \
                         {across0, across1, across2});                                                            \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                          \
        pool_average_diff_##NAME(const T* grad, T* out, long long total, AXES, double div, DIVIDE(plane),         \
                                 DIVIDE(row), DIVIDE(down), DIVIDE(across)) {                                     \
        averageDiff<T, MOST>(grad, out, total, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}, (T)div,        \
                             {plane0, plane1, plane2}, {row0, row1, row2}, {down0, down1, down2},                 \
                             {across0, across1, across2});                                                        \
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
DIFFS(1_f32, 1, float)
DIFFS(1_f64, 1, double)
DIFFS(2_f32, 2, float)
DIFFS(2_f64, 2, double)
DIFFS(f32, 0, float)
DIFFS(f64, 0, double)
