// Windows over the rows and columns of images: divisions of indices, and where windows
// begin.
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
