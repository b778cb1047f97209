// attention on the tensor cores of compute capability 9.0, for 16-bit operands: see attention.cu for the formula.
//
// A block is a producer warp and two consumer warpgroups, or three for rows of up to 64 elements, alone on its SM, and computes tiles of 64 queries a warpgroup of a head in a loop. The producer
// takes the tiles' numbers from a counter, so that blocks with shorter tiles compute more of them, and copies q, and keys and values 128 at a time, by TMA into stages. The scores of a consumer's queries and 128 keys are a wgmma from shared memory, the weights stay in registers as the first
// operand of the next. While the scores of the next keys and the weighted sum of the last ones are in flight, it computes exponentials. The warpgroups multiply
// one after the other (ping-pong): while one multiplies, the others compute exponentials. Sums are float32, weights are rounded to 16 bits.
//stheno:targets sm_90a ptx
#include "attention_wgmma.cuh"

extern __shared__ unsigned char dynamic[];

// Place is a tile of queries. Heads are in sections whose keys and values fit in a part of the L2 cache; in a section the last queries, which see the most keys if causal, come first.
// Smaller sections leave more of the cache to queries and results. Long causal sequences of wide rows are faster in larger ones.
//
// BF16, 16 384 tokens of 2048 elements, H200, us    24 MB    12 MB
// full      64 x 512                                218.7    198.8
// full     128 x 512                                174.0    160.0
// full     128 x 2048                               482.5    445.9
// full     128 x 16384                             3527.4   3491.7
// causal    64 x 2048                               433.0    400.4
// causal   128 x 2048                               314.1    264.0
// causal    64 x 8192                              1215.8   1202.8
// causal   128 x 8192                               889.1    902.1
// causal   128 x 16384                             1748.0   1818.2
template <int BM> struct Place {
    int batch = 0, head = 0, t0 = -1; // -1: there is no tile
    __device__ __forceinline__ Place() {}
    __device__ __forceinline__ Place(const Problem<float>& p, int batches, int tile) {
        const i64 cache = p.causal && p.keys > 2048 ? 24 << 20 : 12 << 20;
        const int tiles = (p.queries + BM - 1) / BM, heads = batches * p.heads;
        const int wide = (int)max(min(cache * p.group / ((i64)p.keys * p.dim * 4), (i64)heads), 1ll), section = tile / (wide * tiles);
        const int first = section * wide, count = min(wide, heads - first), local = tile - first * tiles;
        const int number = first + local % count;
        batch = number / p.heads, head = number % p.heads, t0 = (tiles - 1 - local / count) * BM;
    }
    __device__ __forceinline__ void store(u32 to) const { asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %3};" ::"r"(to), "r"(batch), "r"(head), "r"(t0) : "memory"); }
    // load loads it by lane 0 of the warp, which also arrives at the barrier that the next store waits for: racecheck does not follow an order by __syncwarp.
    __device__ __forceinline__ void load(u32 from) {
        int unused;
        if (threadIdx.x % 32 == 0) asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(batch), "=r"(head), "=r"(t0), "=r"(unused) : "r"(from) : "memory");
        batch = __shfl_sync(~0u, batch, 0), head = __shfl_sync(~0u, head, 0), t0 = __shfl_sync(~0u, t0, 0);
    }
};

template <int D, int GROUPS, bool HALF> struct Attend {
    static constexpr int BM = 64 * GROUPS, BN = 128, STAGES = D == 64 ? 4 : 2;
    // LATE says that values are fetched after the next keys, which are multiplied before them.
    //
    // BF16, 16 384 tokens of 2048 elements, H200, us    early     late
    // full      64 x 512                                186.7    191.4
    // full      64 x 8192                              2166.8   2239.3
    // full     128 x 512                                146.4    137.7
    // causal   128 x 512                                107.9    103.7
    // full     128 x 2048                               474.8    462.6
    // full     128 x 8192                              1847.9   1847.8
    static constexpr bool LATE = D == 128;
    using Tile = Panels<BN, D>;
    using Queries = Panels<BM, D>;
    using At = Place<BM>;

    // Places in shared memory: barriers, where two tiles are, two tiles of queries, stages of keys and values, and what store_rows takes.
    u32 start;
    __device__ __forceinline__ u32 bar(int which, int stage) const { return start + (which * STAGES + stage) * 8; } // full and empty of q (0, 1), k (2, 3) and v (4, 5)
    __device__ __forceinline__ u32 where(int stage) const { return start + 512 + stage * 16; }
    __device__ __forceinline__ u32 q(int stage) const { return start + 1024 + stage * Queries::BYTES; }
    __device__ __forceinline__ u32 k(int stage) const { return q(2) + stage * Tile::BYTES; }
    __device__ __forceinline__ u32 v(int stage) const { return k(STAGES + stage); }
    __device__ __forceinline__ u32 lines() const { return k(2 * STAGES); }
    // pass lets the next warpgroup multiply.
    static __device__ __forceinline__ void pass(int number) { asm volatile("bar.arrive %0, 256;" ::"r"((number + 1) % GROUPS + 1) : "memory"); }

    __device__ __forceinline__ void run(const TensorMap* mapQ, const TensorMap* mapK, const TensorMap* mapV, u16* out, Strides os, float* lse, int outputs, u32* counter, const Problem<float>& p, int batches) {
        start = (shared_address(dynamic) + 1023) / 1024 * 1024;
        if (threadIdx.x == 0)
            for (int i = 0; i < 6 * STAGES; i++) barrier_init(start + i * 8, i / STAGES % 2 ? 4 * GROUPS : 1);
        barriers_ready();
        follow();
        // The shuffle tells the compiler that the number is uniform, so that the addresses of products are computed in uniform registers.
        const int group = D == 64 ? __shfl_sync(~0u, threadIdx.x / 128, 0) : threadIdx.x / 128;
        if (group == 0) {
            registers_down<GROUPS == 3 ? 32 : 40>();
            if (threadIdx.x < 32) produce(mapQ, mapK, mapV, counter, p, batches);
        } else {
            registers_up<GROUPS == 3 ? 160 : 232>();
            consume(group - 1, out, os, lse, outputs, p);
        }
    }

    // produce computes the block's first tile, whose number is that of the block, and others while the counter has some. Each block takes a number that is too large, and the last one
    // of these makes the counter 0 again.
    __device__ __forceinline__ void produce(const TensorMap* mapQ, const TensorMap* mapK, const TensorMap* mapV, u32* counter, const Problem<float>& p, int batches) {
        const int tiles = (p.queries + BM - 1) / BM * p.heads * batches;
        const bool lead = threadIdx.x == 0;
        Position<STAGES> keys, values;
        Position<2> tileAt;
        int tile = blockIdx.x, j1 = -1, head = 0, batch = 0; // the values that come next
        const auto fetch_values = [&] {
            if (j1 < 0) return;
            barrier_wait(bar(5, values.stage), values.parity ^ 1);
            barrier_expect(bar(4, values.stage), Tile::BYTES);
            Tile::fetch_rows(v(values.stage), mapV, bar(4, values.stage), j1, head, batch);
            values.next();
        };
#pragma unroll 1
        for (; tile < tiles; tileAt.next()) {
            const At place(p, batches, tile);
            const Span<BM> span(p, place.batch, place.t0);
            if (lead) {
                tile = gridDim.x + atomicInc(counter, tiles - 1);
                barrier_wait(bar(1, tileAt.stage), tileAt.parity ^ 1);
                place.store(where(tileAt.stage));
                barrier_expect(bar(0, tileAt.stage), Queries::BYTES);
                Queries::fetch_rows(q(tileAt.stage), mapQ, bar(0, tileAt.stage), place.t0, place.head, place.batch);
#pragma unroll 1
                for (int j0 = 0; j0 < max(span.high, 1); j0 += BN, keys.next()) { // of a tile without keys one block, which is masked
                    barrier_wait(bar(3, keys.stage), keys.parity ^ 1);
                    barrier_expect(bar(2, keys.stage), Tile::BYTES);
                    Tile::fetch_rows(k(keys.stage), mapK, bar(2, keys.stage), j0, place.head / p.group, place.batch);
                    if (LATE) fetch_values();
                    j1 = j0, head = place.head / p.group, batch = place.batch;
                    if (!LATE) fetch_values();
                }
            }
            tile = __shfl_sync(~0u, tile, 0);
        }
        if (!lead) return;
        if (LATE) fetch_values();
        barrier_wait(bar(1, tileAt.stage), tileAt.parity ^ 1);
        At().store(where(tileAt.stage));
        arrive(bar(0, tileAt.stage));
    }

    __device__ __forceinline__ void consume(int number, u16* out, Strides os, float* lse, int outputs, const Problem<float>& p) {
        const float scale = p.scale * LOG2E;
        const int row = number * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        Position<STAGES> keys, values;
        Position<2> queries;
        if (number == GROUPS - 1) pass(number);
        float s[64];
        At next;
        // begin starts the scores of the next tile's queries and its first keys. Without a next tile it multiplies old memory, and nobody reads the result.
        auto begin = [&] {
            barrier_wait(bar(0, queries.stage), queries.parity);
            next.load(where(queries.stage));
            if (next.t0 >= 0) barrier_wait(bar(2, keys.stage), keys.parity);
            wgmma_fence();
            scores<HALF, D, BM, BN>(s, q(queries.stage) + number * 64 * 128, k(keys.stage));
            wgmma_commit();
        };
        begin();
#pragma unroll 1
        while (next.t0 >= 0) {
            const At at = next;
            const Span<BM> span(p, at.batch, at.t0);
            const int limit[2] = {p.limit(at.batch, min(at.t0 + row, p.queries - 1)), p.limit(at.batch, min(at.t0 + row + 8, p.queries - 1))};
            float o[D / 2], most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, factor[2];
            u32 w[8][4];
#pragma unroll
            for (int i = 0; i < D / 2; i++) o[i] = 0;
            wgmma_wait<0>();
            pin(s);
            const u32 own = q(queries.stage) + number * 64 * 128;
            release(bar(3, keys.stage));
            keys.next();
            if (BN > span.low) mask(s, limit, 0);
            weigh(s, most, total, factor, scale);
            pack<HALF>(w, s);
#pragma unroll 1
            for (int j0 = BN; j0 < span.high; j0 += BN) {
                barrier_wait(bar(2, keys.stage), keys.parity);
                turn_wait(number);
                pin(w), pin(s), pin(o);
                wgmma_fence();
                scores<HALF, D, BM, BN>(s, own, k(keys.stage));
                wgmma_commit();
                barrier_wait(bar(4, values.stage), values.parity);
                weigh_rows<HALF, D, BN>(o, w, v(values.stage), 1);
                wgmma_commit();
                pass(number);
                wgmma_wait<1>();
                pin(s);
                release(bar(3, keys.stage));
                keys.next();
                if (j0 + BN > span.low) mask(s, limit, j0);
                const bool rescale = weigh(s, most, total, factor, scale);
                // Nobody reads this. Without a store of what depends on them the assembler moves the exponentials behind the wait.
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(lines() + (threadIdx.x / 32 - 4) * 16 * D * 2 + threadIdx.x % 32 * 4), "f"(total[0] + total[1]) : "memory");
                wgmma_wait<0>();
                pin(o);
                release(bar(5, values.stage));
                values.next();
                if (rescale) {
#pragma unroll
                    for (int i = 0; i < D / 2; i++) o[i] *= factor[i / 2 % 2];
                }
                pack<HALF>(w, s);
            }
            release(bar(1, queries.stage));
            queries.next();
            barrier_wait(bar(4, values.stage), values.parity);
            pin(w), pin(o);
            wgmma_fence();
            weigh_rows<HALF, D, BN>(o, w, v(values.stage), 1);
            wgmma_commit();
            // The scores of the next tile are computed while this one is stored.
            begin();
            wgmma_wait<1>();
            pin(w), pin(o);
            release(bar(5, values.stage));
            values.next();
            store(o, most, total, limit, at, row, out, os, lse, outputs, p);
        }
        wgmma_wait<0>();
        if (number == 0) turn_wait(0);
    }

    __device__ __forceinline__ void store(const float (&o)[D / 2], const float (&most)[2], const float (&total)[2], const int (&limit)[2], const At& x, int row, u16* out, Strides os, float* lse, int outputs, const Problem<float>& p) {
        const int lane = threadIdx.x % 32, first = x.t0 + row - lane / 4;
        float factor[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = total[r];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            const bool none = limit[r] == 0;
            factor[r] = none ? 0 : 1 / sum;
            const int query = x.t0 + row + 8 * r;
            if (outputs & 2 && lane % 4 == 0 && query < p.queries) lse[((i64)x.batch * p.heads + x.head) * p.queries + query] = none ? -INFINITY : most[r] * p.scale + logf(sum);
        }
        if (outputs & 1)
            store_rows<HALF, D>(o, factor, lines() + (threadIdx.x / 32 - 4) * 16 * D * 2, out + x.batch * os.batch + x.head * os.head + first * os.row, os.row, p.queries - first, p.dim);
    }
};

#define ENTRY(name, D, GROUPS, HALF)                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1)                                                                                   \
        attention_hopper_##name(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, u16* out,  \
                                STRIDES(out), float* lse, const int outputs, u32* counter, PROBLEM(float)) {                                              \
        BODY(Attend<D, GROUPS, HALF> a; a.run(&q, &k, &v, out, STRIDES_OF(out), lse, outputs, counter, PROBLEM_OF(float), batches);)                       \
    }
ENTRY(64_bf16, 64, 2, false)
ENTRY(128_bf16, 128, 2, false)
ENTRY(three_64_bf16, 64, 3, false)
ENTRY(64_f16, 64, 2, true)
ENTRY(128_f16, 128, 2, true)
ENTRY(three_64_f16, 64, 3, true)
