// The gradients of attention on the tensor cores of compute capability 9.0, for 16-bit operands: see attention_backward.cu for the formulas, and attention_hopper.cu for the producer.
//
// attention_hopper_dkv: a block has 128 keys of a key head and goes through the queries of all heads that read it. Each consumer warpgroup has 64 keys: scores and products of v with
// gradients are transposed, keys x queries, so that weights and their gradients are first operands in registers, and tiles of q and g serve as second operands both ways. A second warp
// of the producers brings statistics and delta of the queries.
// attention_hopper_dq: a block has 128 queries of a head and goes through the keys. Nothing is added up by atomics: both compute the scores.
#include "attention_wgmma.cuh"

extern __shared__ unsigned char dynamic[];

template <int D, bool HALF> struct Keys {
    static constexpr int BN = 128, BM = D == 64 ? 128 : 64, STAGES = 3;
    using Tile = Panels<BN, D>;
    using Step = Panels<BM, D>;
    static constexpr int STAGE = 2 * Step::BYTES, NUMBERS = 3 * BM * 4; // statistics, delta and limits of the queries
    static constexpr int SHARED = 2048 + 2 * Tile::BYTES + STAGES * (STAGE + NUMBERS) + 1024;

    static __device__ __forceinline__ void run(const TensorMap* mapQ, const TensorMap* mapK, const TensorMap* mapV, const TensorMap* mapG, const float* lse, const float* delta, u16* dk, u16* dv, Strides ds,
                                               int outputs, const Problem<float>& p, int batches) {
        const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, loaded = start, full = start + 8, empty = full + 8 * STAGES, memK = start + 1024, memV = memK + Tile::BYTES, ring = memV + Tile::BYTES,
                  numbers = ring + STAGES * STAGE;
        if (threadIdx.x == 0) {
            barrier_init(loaded, 1);
            for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 2), barrier_init(empty + 8 * i, 8);
        }
        barriers_ready();
        follow();
        const int keyHeads = p.heads / p.group, tiles = (p.keys + BN - 1) / BN, number = blockIdx.x / tiles, j0 = blockIdx.x % tiles * BN;
        const int batch = number / keyHeads, keyHead = number % keyHeads, group = threadIdx.x / 128, warp = threadIdx.x / 32;
        Position<STAGES> at;
        if (group == 0) {
            registers_down<40>();
            if (threadIdx.x == 0) {
                barrier_expect(loaded, 2 * Tile::BYTES);
                Tile::fetch_rows(memK, mapK, loaded, j0, keyHead, batch);
                Tile::fetch_rows(memV, mapV, loaded, j0, keyHead, batch);
            }
            if (warp < 2) {
#pragma unroll 1
                for (int h = keyHead * p.group; h < (keyHead + 1) * p.group; h++) {
#pragma unroll 1
                    for (int t0 = 0; t0 < p.queries; t0 += BM) {
                        const Span<BM> span(p, batch, t0);
                        if (span.high <= j0) continue;
                        const u32 bar = full + 8 * at.stage, stage = ring + at.stage * STAGE;
                        barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
                        if (threadIdx.x == 0) {
                            barrier_expect(bar, STAGE);
                            Step::fetch_rows(stage, mapQ, bar, t0, h, batch);
                            Step::fetch_rows(stage + Step::BYTES, mapG, bar, t0, h, batch);
                        } else if (warp == 1) {
                            const u32 to = numbers + at.stage * NUMBERS;
                            for (int i = threadIdx.x % 32; i < BM; i += 32) {
                                const bool is = t0 + i < p.queries;
                                const i64 row = ((i64)batch * p.heads + h) * p.queries + t0 + i;
                                const float l = is ? statistic(lse[row]) : INFINITY, d = is ? delta[row] : 0;
                                const int limit = is ? p.limit(batch, t0 + i) : 0;
                                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + i * 4), "f"(l) : "memory");
                                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (BM + i) * 4), "f"(d) : "memory");
                                asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + (2 * BM + i) * 4), "r"(limit) : "memory");
                            }
                            __syncwarp();
                            if (threadIdx.x == 32) barrier_arrive(bar, 0);
                        }
                        __syncwarp();
                        at.next();
                    }
                }
            }
            return;
        }
        registers_up<232>();
        const int part = group - 1, lane = threadIdx.x % 32, key = j0 + part * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4, column = lane % 4 * 2;
        const float scale = p.scale * LOG2E;
        const u32 k = memK + part * 64 * 128, v = memV + part * 64 * 128;
        float sumK[D / 2], sumV[D / 2], s[BM / 2], g[BM / 2];
        u32 w[BM / 16][4], x[BM / 16][4];
#pragma unroll
        for (int i = 0; i < D / 2; i++) sumK[i] = sumV[i] = 0;
        barrier_wait(loaded, 0);
        int last = -1;
#pragma unroll 1
        for (int h = 0; h < p.group; h++) {
#pragma unroll 1
            for (int t0 = 0; t0 < p.queries; t0 += BM) {
                const Span<BM> span(p, batch, t0);
                if (span.high <= j0) continue;
                const u32 q = ring + at.stage * STAGE, o = q + Step::BYTES, from = numbers + at.stage * NUMBERS + column * 4;
                barrier_wait(full + 8 * at.stage, at.parity);
                pin(s), pin(g), pin(sumK), pin(sumV), pin(w), pin(x);
                wgmma_fence();
                scores<HALF, D, BN, BM>(s, k, q);
                wgmma_commit();
                scores<HALF, D, BN, BM>(g, v, o);
                wgmma_commit();
                wgmma_wait<1>();
                pin(s), pin(sumK), pin(sumV), pin(w), pin(x);
                if (last >= 0) release(empty + 8 * last);
                const bool whole = j0 + BN <= span.low;
#pragma unroll
                for (int j = 0; j < BM / 8; j++) {
                    float l[2];
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(l[0]), "=f"(l[1]) : "r"(from + j * 32) : "memory");
#pragma unroll
                    for (int i = 0; i < 4; i++) s[4 * j + i] = weight(s[4 * j + i], scale, l[i % 2]);
                    if (!whole) {
                        int limit[2];
                        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(limit[0]), "=r"(limit[1]) : "r"(from + 2 * BM * 4 + j * 32) : "memory");
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            if (key + i / 2 * 8 >= limit[i % 2]) s[4 * j + i] = 0;
                    }
                }
                pack<HALF>(w, s);
                wgmma_wait<0>();
                pin(g);
#pragma unroll
                for (int j = 0; j < BM / 8; j++) {
                    float d[2];
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "r"(from + BM * 4 + j * 32) : "memory");
#pragma unroll
                    for (int i = 0; i < 4; i++) g[4 * j + i] = s[4 * j + i] * (g[4 * j + i] - d[i % 2]);
                }
                pack<HALF>(x, g);
                pin(sumK), pin(sumV), pin(w), pin(x);
                wgmma_fence();
                weigh_rows<HALF, D, BM>(sumV, w, o, 1);
                weigh_rows<HALF, D, BM>(sumK, x, q, 1);
                wgmma_commit();
                last = at.stage;
                at.next();
            }
        }
        wgmma_wait<0>();
        pin(sumK), pin(sumV);
        // The warp's own rows of the tiles of k and v are no longer read.
        const float one[2] = {1, 1}, by[2] = {p.scale, p.scale};
        const u32 own = memK + (threadIdx.x / 32 - 4) * 16 * D * 2;
        asm volatile("bar.sync 1, 256;" ::: "memory");
        const int row = key - lane / 4;
        const i64 to = batch * ds.batch + keyHead * ds.head + row * ds.row;
        if (outputs & 1) store_rows<HALF, D>(sumK, by, own, dk + to, ds.row, p.keys - row, p.dim);
        if (outputs & 2) store_rows<HALF, D>(sumV, one, own, dv + to, ds.row, p.keys - row, p.dim);
    }
};

template <int D, bool HALF> struct Queries {
    static constexpr int BM = 128, BN = 128, STAGES = D == 64 ? 3 : 2;
    using Tile = Panels<128, D>;
    static constexpr int SHARED = 2048 + (2 + 2 * STAGES) * Tile::BYTES;

    static __device__ __forceinline__ void run(const TensorMap* mapQ, const TensorMap* mapK, const TensorMap* mapV, const TensorMap* mapG, const float* lse, const float* delta, u16* dq, Strides ds,
                                               const Problem<float>& p, int batches) {
        const u32 start = (shared_address(dynamic) + 1023) / 1024 * 1024, loaded = start, full = start + 8, empty = full + 8 * STAGES, memQ = start + 1024, memG = memQ + Tile::BYTES, ring = memG + Tile::BYTES;
        if (threadIdx.x == 0) {
            barrier_init(loaded, 1);
            for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 8);
        }
        barriers_ready();
        follow();
        const int tiles = (p.queries + BM - 1) / BM, number = blockIdx.x / tiles, t0 = (tiles - 1 - blockIdx.x % tiles) * BM, batch = number / p.heads, head = number % p.heads, group = threadIdx.x / 128;
        const Span<BM> span(p, batch, t0);
        Position<STAGES> at;
        if (group == 0) {
            registers_down<40>();
            if (threadIdx.x == 0) {
                barrier_expect(loaded, 2 * Tile::BYTES);
                Tile::fetch_rows(memQ, mapQ, loaded, t0, head, batch);
                Tile::fetch_rows(memG, mapG, loaded, t0, head, batch);
#pragma unroll 1
                for (int j0 = 0; j0 < span.high; j0 += BN, at.next()) {
                    const u32 bar = full + 8 * at.stage, stage = ring + at.stage * 2 * Tile::BYTES;
                    barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
                    barrier_expect(bar, 2 * Tile::BYTES);
                    Tile::fetch_rows(stage, mapK, bar, j0, head / p.group, batch);
                    Tile::fetch_rows(stage + Tile::BYTES, mapV, bar, j0, head / p.group, batch);
                }
            }
            return;
        }
        registers_up<232>();
        const int part = group - 1, lane = threadIdx.x % 32, query = t0 + part * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4, column = lane % 4 * 2;
        const float scale = p.scale * LOG2E;
        float l[2], d[2];
        int limit[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool is = query + 8 * r < p.queries;
            const i64 row = ((i64)batch * p.heads + head) * p.queries + query + 8 * r;
            l[r] = is ? statistic(lse[row]) : INFINITY, d[r] = is ? delta[row] : 0, limit[r] = is ? p.limit(batch, query + 8 * r) : 0;
        }
        float sum[D / 2], s[BN / 2], g[BN / 2];
        u32 w[BN / 16][4];
#pragma unroll
        for (int i = 0; i < D / 2; i++) sum[i] = 0;
        barrier_wait(loaded, 0);
        int last = -1;
#pragma unroll 1
        for (int j0 = 0; j0 < span.high; j0 += BN) {
            const u32 k = ring + at.stage * 2 * Tile::BYTES;
            barrier_wait(full + 8 * at.stage, at.parity);
            pin(s), pin(g), pin(sum), pin(w);
            wgmma_fence();
            scores<HALF, D, BM, BN>(s, memQ + part * 64 * 128, k);
            wgmma_commit();
            scores<HALF, D, BM, BN>(g, memG + part * 64 * 128, k + Tile::BYTES);
            wgmma_commit();
            wgmma_wait<1>();
            pin(s), pin(sum), pin(w);
            if (last >= 0) release(empty + 8 * last);
#pragma unroll
            for (int j = 0; j < BN / 2; j++) s[j] = weight(s[j], scale, l[j / 2 % 2]);
            if (j0 + BN > span.low) {
#pragma unroll
                for (int j = 0; j < BN / 2; j++)
                    if (j0 + j / 4 * 8 + column + j % 2 >= limit[j / 2 % 2]) s[j] = 0;
            }
            wgmma_wait<0>();
            pin(g);
#pragma unroll
            for (int j = 0; j < BN / 2; j++) s[j] *= g[j] - d[j / 2 % 2];
            pack<HALF>(w, s);
            pin(sum), pin(w);
            wgmma_fence();
            weigh_rows<HALF, D, BN>(sum, w, k, 1);
            wgmma_commit();
            last = at.stage;
            at.next();
        }
        wgmma_wait<0>();
        pin(sum);
        const float by[2] = {p.scale, p.scale};
        asm volatile("bar.sync 1, 256;" ::: "memory"); // the tile of queries is no longer read
        const int row = query - lane / 4;
        store_rows<HALF, D>(sum, by, memQ + (threadIdx.x / 32 - 4) * 16 * D * 2, dq + batch * ds.batch + head * ds.head + row * ds.row, ds.row, p.queries - row, p.dim);
    }
};

#define MAPS const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap g, const float *lse, const float *delta
#define ENTRIES(name, D, HALF)                                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_dkv_##name(MAPS, u16* dk, u16* dv, STRIDES(d), const int outputs, PROBLEM(float)) {             \
        BODY(Keys<D, HALF>::run(&q, &k, &v, &g, lse, delta, dk, dv, STRIDES_OF(d), outputs, PROBLEM_OF(float), batches);)                                                 \
    }                                                                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_hopper_dq_##name(MAPS, u16* dq, STRIDES(d), PROBLEM(float)) {                                          \
        BODY(Queries<D, HALF>::run(&q, &k, &v, &g, lse, delta, dq, STRIDES_OF(d), PROBLEM_OF(float), batches);)                                                           \
    }
ENTRIES(64_bf16, 64, false)
ENTRIES(128_bf16, 128, false)
ENTRIES(64_f16, 64, true)
ENTRIES(128_f16, 128, true)
