// Zeros in `runs` runs of `bytes` bytes, `stride` bytes apart, of elements of at least 2 bytes: the rows of queries that see no key. Bound by memory.
//
// A block stores PIECES 16-byte pieces a thread, those at the ends of a run element by element.
#include "follow.cuh"
typedef long long i64;

constexpr int THREADS = 256, PIECES = 4;

extern "C" __global__ void __launch_bounds__(THREADS) attention_zeros(unsigned char* to, const i64 bytes, const i64 stride, const int blocks) {
    admit();
    follow();
    unsigned char* const begin = to + blockIdx.x / blocks * stride;
    const i64 low = (i64)begin, high = low + bytes;
    i64 at = (low & ~15) + (((i64)(blockIdx.x % blocks) * PIECES) * THREADS + threadIdx.x) * 16;
#pragma unroll
    for (int i = 0; i < PIECES; i++, at += THREADS * 16) {
        if (at >= low && at + 16 <= high) *reinterpret_cast<uint4*>(begin + (at - low)) = uint4{};
        else
#pragma unroll 1
            for (int k = 0; k < 16; k += 2)
                if (at + k >= low && at + k < high) *reinterpret_cast<unsigned short*>(begin + (at + k - low)) = 0;
    }
}
