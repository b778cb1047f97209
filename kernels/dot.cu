// out[i] = sum over j of a[i][j] * b[i][j]   (rows x n; one row for two vectors)
//
// The reduction of sum.cu with products for terms, in double: a product of two
// float32 is exact there. 8 bytes of traffic and one DFMA per float32 pair:
// bound by memory. Chunks of a row leave double partial sums, which the last block
// adds up.
#include "reduce.cuh"

#define DOT(NAME, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                          \
        dot_rows_##NAME(const T* a, const T* b, T* out, double* parts, long long n, long long chunk, int splits, int once, double div) { \
        reduce_rows<T>(Product<T>{a, b}, out, parts, n, chunk, splits, once, div);                              \
    }

#define SHORT(NAME, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        dot_short_##NAME(const T* a, const T* b, T* out, long long rows, int n, int lanes, double div) {          \
        reduce_short<T>(Product<T>{a, b}, out, rows, n, lanes, div);                                              \
    }

DOT(f32, float)
DOT(f64, double)
SHORT(f32, float)
SHORT(f64, double)
