// gather: out[o][k][c] = x[o][indices[k]][c], or 0 if x has no such row. Tensors are outer x rows x inner, in words of 1
// to 16 bytes, and indices count rows. A thread moves four words, a block apart, so that it has four loads under way. Bound by memory: each word is read once and written once.

#include "gather.cuh"

#define GATHER(name, W)                                                                                                                       \
    extern "C" __global__ void name(const W* x, const long long* indices, W* out, long long words, long long rows, long long count,           \
                                    long long countMagic, int countShift, long long inner, long long innerMagic, int innerShift) {            \
        gather<W, const long long* __restrict__>(x, indices, out, words, rows, count, countMagic, countShift, inner, innerMagic, innerShift);                                   \
    }

GATHER(gather_b8, unsigned char)
GATHER(gather_b32, unsigned int)
GATHER(gather_b64, uint2)
GATHER(gather_b128, uint4)
