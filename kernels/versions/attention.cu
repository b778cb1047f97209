// Attention in tiles, in two passes over the keys, without a matrix of scores in memory: see attention.cu in kernels/attention for the formula and for its last step, one pass.
#include "attention.cuh"

// A block computes 64 queries of a head, 64 keys at a time: first the maximum of each query's scores, then, from scores that it computes again, weights, their sum and the weighted sum of
// values.
extern "C" __global__ void __launch_bounds__(256) attention_tiled_bf16(const void* q, const void* k, const void* v, void* out, const int rows, const int keys, const int dim, const float scale, const int causal) {
    using B = Block<float, 4>;
    __shared__ B::Memory m;
    const int head = blockIdx.y, t0 = blockIdx.x * B::SIDE;
    const Strides ofQueries = {0, (i64)rows * dim, dim}, ofKeys = {0, (i64)keys * dim, dim};
    const Head<float> queries(q, ofQueries, 0, head, rows, dim, IN_BF16), all(k, ofKeys, 0, head, keys, dim, IN_BF16), values(v, ofKeys, 0, head, keys, dim, IN_BF16);
    B::limits(m, Problem<float>{1, 1, rows, keys, dim, scale, causal}, 0, t0);
    float s[4][4], sum[4][2][4] = {}, most[4], total[4] = {}, factor[4];
#pragma unroll
    for (int r = 0; r < 4; r++) most[r] = -INFINITY;
#pragma unroll 1
    for (int j0 = 0; j0 < m.ends[1]; j0 += B::SIDE) {
        B::scores(s, m, queries, t0, all, j0);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (j0 + B::x() + 16 * c < m.limits[B::y() * 4 + r]) most[r] = max(most[r], s[r][c] * scale);
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int d = 8; d > 0; d /= 2) most[r] = max(most[r], __shfl_xor_sync(~0u, most[r], d));
#pragma unroll 1
    for (int j0 = 0; j0 < m.ends[1]; j0 += B::SIDE) {
        B::scores(s, m, queries, t0, all, j0);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                s[r][c] = j0 + B::x() + 16 * c < m.limits[B::y() * 4 + r] ? exp(s[r][c] * scale - most[r]) : 0;
                total[r] += s[r][c];
            }
        B::keep(m, s);
        B::accumulate(sum, m, values, j0, 0, j0 + B::SIDE <= m.ends[0], [&](int row, int column) { return j0 + column < m.limits[row]; });
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
#pragma unroll
        for (int d = 8; d > 0; d /= 2) total[r] += __shfl_xor_sync(~0u, total[r], d);
        factor[r] = total[r] > 0 ? 1 / total[r] : 0;
    }
    B::store(Head<float>(out, ofQueries, 0, head, rows, dim, IN_BF16), m, t0, 0, sum, factor);
}
