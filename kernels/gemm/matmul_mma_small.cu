// C = op(A) op(B) of small float32 matrices on the tensor cores of compute capability 9.0, in one launch: operands are rounded
// to TF32, BF16 or F16 as they are multiplied, sums are float32. Small products are latency-bound, so for a small K a block issues all of its
// loads up front.
//
// A block computes a tile of C over one split of K. cp.async copies 32-wide K slices of A and B to shared memory in their stored layout;
// STAGES slices are issued before the first mma.sync. As in matmul.cu, the blocks of a cluster reduce the splits of K (joined), in an
// order that does not depend on timing. Epilogues are those of epilogue.cuh.
#include "matmul_mma_tile.cuh"

// small computes a tile of a part of k. parts is the number of splits of chunk terms each.
template <int SIZE, bool F16, typename F, int JOIN>
__device__ __forceinline__ void small(const float* a, const float* b, float* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk,
                                      int parts, int transA, int transB, const Epilogue<float>& epilogue) {
    const int together = JOIN ? parts : 1;
    __shared__ u64 full; // the barrier of the sums that other blocks send
    if (together > 1) open_inbox(&full, F::TILE * 16);
    const Place at = Place::of<F::BM, F::BN, JOIN>(m, n, (int)batch, parts);
    const i64 k0 = at.split * chunk;
    const int terms = at.idle ? 0 : (int)max(min(k - k0, chunk), 0ll);
    float* const memory = reinterpret_cast<float*>(dynamic);
    float4* const inbox = reinterpret_cast<float4*>(memory + STAGES * F::STAGE);
    typename F::A pa;
    typename F::B pb;
    pa.at(a + at.matrix * strideA, m, lda, !transA, at.m0, k0);
    pb.at(b + at.matrix * strideB, n, ldb, transB, at.n0, k0);
    Target<float> target;
    target.rows = at.idle ? 0 : (int)min(m - at.m0, (i64)F::BM);
    target.cols = (int)min(n - at.n0, (i64)F::BN);
    target.down = n;
    target.across = 1;
    target.c = c + (JOIN ? at.matrix : at.split * batch + at.matrix) * m * n + at.m0 * n + at.n0;
    target.wide = n % 4 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
    target.epilogue = epilogue.from(at.matrix, at.m0, at.n0);
    float sum[F::MT][F::NT][4];
#pragma unroll
    for (int i = 0; i < F::VECTORS * 4; i++) sum[i / (F::NT * 4)][i / 4 % F::NT][i % 4] = 0;
    follow();
    F::template add<SIZE, F16>(sum, pa, pb, terms, memory);
    admit();

    // Each block of the tile adds up an equal share of it; the others send it their sums.
    const int log = 31 - __clz(F::TILE / together), share = 1 << log;
    if (together > 1) cluster_wait(); // all blocks have begun
#pragma unroll
    for (int v = 0; v < F::VECTORS; v++) {
        const int i = v * F::THREADS + threadIdx.x, to = i >> log;
        const float4 x = four(sum[v / F::NT][v % F::NT]);
        if (together > 1) send(at.rank - at.split + to, inbox + (at.split << log) + i - (to << log), x, &full);
        else inbox[i] = x; // for itself
    }
    // Epilogue operands are loaded while partial sums are in flight. The epilogue is in a loop, because its steps are many instructions
    // and instructions that run only once are slow.
    int row, col;
    float x[4] = {}, y[4] = {};
    const auto beside = [&](int i) {
        F::place((together > 1 ? at.split << log : 0) + i, row, col);
        const int inside = i < share && row < target.rows ? target.cols - col : 0;
        if (epilogue.steps >= 1 << 16) target.epilogue.x.template load<4>(x, row, col, inside);
        if (epilogue.steps >= 2 << 16) target.epilogue.y.template load<4>(y, row, col, inside);
    };
    beside(threadIdx.x);
    if (together > 1) await_inbox(&full);
#pragma unroll 1
    for (int i = threadIdx.x; i < share;) {
        Pack<float> v = {inbox[i]};
#pragma unroll 2
        for (int part = 1; part < together; part++) {
            const float4 w = inbox[(part << log) + i];
            v.v = make_float4(v.v.x + w.x, v.v.y + w.y, v.v.z + w.z, v.v.w + w.w);
        }
        if (epilogue.steps != 0) ::finish(epilogue.steps & 0xffff, v.s, x, y);
        target.put(row, col, v);
        i += F::THREADS;
        beside(i);
    }
}

// Other devices compute small products with all bits: the entry points are empty there.
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#define BLOCKS_OF_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define ON_HOPPER(...)
#define BLOCKS_OF_CLUSTER(n)
#endif
#define ARGUMENTS                                                                                                                             \
    const float *a, const float *b, float *c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int parts, \
        int transA, int transB, EPILOGUE_ARGUMENTS(float)
#define RUN(SIZE, F16, JOIN, ...) \
    small<SIZE, F16, Tile<__VA_ARGS__>, JOIN>(a, b, c, m, n, k, lda, ldb, strideA, strideB, batch, chunk, parts, transA, transB, EPILOGUE(float));
#define ENTRIES(name, SIZE, F16, BLOCKS, JOIN, ...)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(Tile<__VA_ARGS__>::THREADS, BLOCKS) matmul_mma_small_##name(ARGUMENTS) { ON_HOPPER(RUN(SIZE, F16, 0, __VA_ARGS__)) } \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(JOIN) __launch_bounds__(Tile<__VA_ARGS__>::THREADS, BLOCKS) matmul_mma_small_joined_##name(ARGUMENTS) {               \
        ON_HOPPER(RUN(SIZE, F16, JOIN, __VA_ARGS__))                                                                                                   \
    }
// Bytes of a rounded element, whether it is in F16, blocks on a multiprocessor (0: not said; with that tf32 spills) and of a cluster; tile, warps down and across.
ENTRIES(tf32, 4, false, 4, 8, 32, 32, 2, 2)
ENTRIES(bf16, 2, false, 0, 8, 32, 32, 2, 2)
ENTRIES(f16, 2, true, 0, 8, 32, 32, 2, 2)
