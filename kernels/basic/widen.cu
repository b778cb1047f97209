// widen: out[i] = indices[i], as int64, of uint8 or int32.
#include "follow.cuh"
#include "indices.cuh"

extern "C" __global__ void widen(const unsigned char* indices, int bytes, long long* out, long long n) {
    follow();
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Indices{indices, bytes}[i];
}
