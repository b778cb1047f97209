// The body of gather.cu and gather_index.cu.
#pragma once

// quotient is n / d for the divisor's magic number and shift: see kernels.divisor.
__device__ long long quotient(long long n, long long magic, int shift) { return (long long)(__umul64hi(n, magic) >> shift); }

template <typename W, typename I>
__device__ void gather(const W* __restrict__ x, I indices, W* __restrict__ out, long long words, long long rows,
                       long long count, long long countMagic, int countShift, long long inner, long long innerMagic, int innerShift) {
    constexpr int each = 4;
    const long long first = (long long)blockIdx.x * (blockDim.x * each) + threadIdx.x;
    long long row[each], index[each], from[each];
    W word[each];
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = min(first + j * (int)blockDim.x, words - 1);
        row[j] = inner == 1 ? at : quotient(at, innerMagic, innerShift);
        from[j] = at - row[j] * inner;
        const long long o = count == 1 ? row[j] : quotient(row[j], countMagic, countShift);
        index[j] = indices[row[j] - o * count];
        row[j] = o * rows;
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        const bool exists = index[j] >= 0 && index[j] < rows;
        from[j] = exists ? (row[j] + index[j]) * inner + from[j] : -1;
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        word[j] = W{};
        if (from[j] >= 0) word[j] = x[from[j]];
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = first + j * (int)blockDim.x;
        if (at < words) out[at] = word[j];
    }
}
