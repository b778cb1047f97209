// Windows over the rows and columns of images: divisions of indices, where windows
// begin, and how kernels take both.
#pragma once

// Division of n < 2^31 by d, as a product and a shift: divisor in map.go has the proof.
struct Divide {
    int d, magic, shift;
    __device__ unsigned operator()(unsigned n) const { return d == 1 ? n : __umulhi(n, (unsigned)magic) >> shift; }
};

// One axis of images and the windows along it: window o begins at element
// o * stride - pad and takes every dilation-th element, size of them.
struct Axis {
    int in, out, size, stride, dilation, pad;
    __device__ int begin(int o) const { return o * stride - pad; }
    __device__ bool inside(int at) const { return (unsigned)at < (unsigned)in; }
};

// The least finite number: that of a window of nothing greater.
template <typename T> __device__ T least();
template <> __device__ float least() { return __int_as_float(0xff7fffff); }
template <> __device__ double least() { return __longlong_as_double(0xffefffffffffffffll); }

// Parameters of kernels, and what they are put together to.
#define AXES                                                                                                      \
    int ih, int oh, int kh, int sh, int dh, int ph, int iw, int ow, int kw, int sw, int dw, int pw
#define AXES_OF {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}
#define DIVIDE(name) int name##0, int name##1, int name##2
#define DIVIDE_OF(name) {name##0, name##1, name##2}
