// gather.cu for indices of uint8 and int32.
#include "gather.cuh"
#include "indices.cuh"

#define GATHER(name, W)                                                                                                                       \
    extern "C" __global__ void name(const W* x, const unsigned char* indices, int bytes, W* out, long long words, long long rows,             \
                                    long long count, long long countMagic, int countShift, long long inner, long long innerMagic,             \
                                    int innerShift) {                                                                                         \
        gather(x, Indices{indices, bytes}, out, words, rows, count, countMagic, countShift, inner, innerMagic, innerShift);                   \
    }

GATHER(gather_index_b8, unsigned char)
GATHER(gather_index_b32, unsigned int)
GATHER(gather_index_b64, uint2)
GATHER(gather_index_b128, uint4)
