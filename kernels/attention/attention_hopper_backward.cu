// The gradients of attention on the tensor cores of compute capability 9.0, for 16-bit operands: see attention_backward.cu for the formulas, and attention_hopper.cu for the producer.
//
// attention_hopper_delta: a row of out and of its gradient is a group of lanes.
// attention_hopper_gradients: a block has 128 keys of a key head and loops over the queries of all heads that read it. Each consumer warpgroup has 64 keys: scores and products of v with
// gradients are transposed, keys x queries, so that weights and their gradients are first operands in registers, and tiles of q and g serve as second operands both ways; the gradients of
// weights go through shared memory to the product with k, too. All blocks of a head run at the same time (a cooperative launch), and their terms of dq are added in a fixed order (Visits): the
// block waits until the sum has the terms before its own, adds its own to float32 sums in global memory (cp.reduce.async.bulk) and counts it. Of few terms, the block
// with the last one adds the sum to it and stores dq. Complete sums of more are rounded by a warp of some block, all blocks in turn: if causal, the first tile of keys has the last term of every
// tile of queries, and its block would be slower than all others.
// Each thread arrives at barriers itself. With one arrival for a warp, after __syncwarp, the gradients take as long, and racecheck, which does not follow that order, reports races.
// The producers are warps: the first copies tiles, the second loads statistics and delta of the queries, the third adds terms of dq, the fourth rounds sums.
//stheno:targets sm_90a ptx
#include "attention_wgmma.cuh"

extern __shared__ unsigned char dynamic[];

template <bool HALF> __device__ __forceinline__ float number_of(u32 bits) {
    float x;
    if constexpr (HALF) load_as(x, F16{(u16)bits});
    else load_as(x, BF16{(u16)bits});
    return x;
}

template <bool HALF>
__device__ __forceinline__ void delta(const u16* g, const u16* out, Strides s, float* to, u32* turns, int heads, int queries, int dim, int rows) {
    follow();
    const int lanes = dim > 64 ? 16 : 8, row = (blockIdx.x * blockDim.x + threadIdx.x) / lanes, c = threadIdx.x % lanes * 8, number = row / queries;
    float sum = 0;
    if (row < rows && c < dim) {
        const i64 at = number / heads * s.batch + number % heads * s.head + row % queries * s.row + c;
        const uint4 a = *reinterpret_cast<const uint4*>(g + at), b = *reinterpret_cast<const uint4*>(out + at);
        const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 8; i++) sum += number_of<HALF>(x[i / 2] >> i % 2 * 16) * number_of<HALF>(y[i / 2] >> i % 2 * 16);
    }
    for (int d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (c == 0 && row < rows) to[row] = sum, turns[row] = 0;
}

// Section is a part of the keys of a head in `blocks` blocks, from block `first` on: as many as run at the same time.
struct Section { int first, blocks; };

// Visits are the tiles of BM queries that see the keys of a block, in the order in which the block computes them: in each head that reads the keys, from tile `from` to the last one and then from the first one; or, if `down`, from
// the last one to the first. rank is the block's place among the `count` blocks that have a term of the tile's dq. If causal, every other key head is `down`, with blocks in reverse order: over
// two heads all blocks then have the same work. A block waits for terms of larger blocks alone if causal, of smaller ones alone if down, and else for those that others compute in
// earlier steps, so that no two wait for each other.
template <int BM, int BN> struct Visits {
    const Problem<float>& p;
    const Section section;
    const int batch, keyHead, own, tiles, from;
    const bool down;
    int unseen = 0; // tiles before the first one whose queries see the keys, if causal; a tile without keys is the first block's
    int step = -1, turn = 0, head, t0, low, rank, count;
    __device__ __forceinline__ Visits(const Problem<float>& p, Section section, int number, int own, int round)
        : p(p), section(section), batch(number / (p.heads / p.group)), keyHead(number % (p.heads / p.group)), own(p.causal && round % 2 ? section.blocks - 1 - own : own),
          tiles((p.queries + BM - 1) / BM), from(p.causal ? 0 : (i64)own * tiles / section.blocks), down(p.causal && round % 2) {
        if (p.causal && block() > 0) unseen = min(max((i64)block() * BN + p.queries - p.keys, 0ll) / BM, (i64)tiles);
    }
    __device__ __forceinline__ int block() const { return section.first + own; }
    // few reports whether the block with the last of so many terms stores dq.
    //
    // Gradients, BF16, 16 384 tokens of 2048 elements, H200, us    it stores    a warp rounds
    // full     64 x 512     (4 terms)                                  532.0            528.6
    // full    128 x 512                                                440.3            558.5
    // full    128 x 2048   (16 terms)                                 1332.8           1367.0
    // full    128 x 8192   (64 terms)                                 5178.4           5033.7
    // causal  128 x 512                                                346.1            489.7
    // causal  128 x 2048                                               888.0            801.5
    // causal  128 x 8192                                              3106.6           2680.2
    // causal  128 x 16384                                             6174.2           5237.4
    __device__ __forceinline__ bool few(int terms) const { return terms <= (p.causal ? 8 : 16); }
    __device__ __forceinline__ bool stores() const { return rank == count - 1 && few(count); }
    // next reports whether there is a next tile. All lanes of a warp call it.
    __device__ __forceinline__ bool next() {
#pragma unroll 1
        while (true) {
            if (++step >= tiles - unseen) {
                if (++turn == p.group) return false;
                step = 0;
            }
            const int around = from + unseen + step, tile = down ? tiles - 1 - step : around < tiles ? around : around - tiles;
            const Span<BM> span(p, batch, tile * BM);
            count = max((span.high + BN - 1) / BN, 1); // a tile without keys has a term, too: 0
            if (block() >= count) continue;
            const int here = min(count - section.first, section.blocks), begin = p.causal ? here - 1 : min(((tile + 1) * section.blocks + tiles - 1) / tiles, here) - 1;
            rank = section.first + (down ? own : own <= begin ? begin - own : begin - own + here);
            head = keyHead * p.group + turn, t0 = tile * BM, low = span.low;
            return true;
        }
    }
};

template <int D, bool HALF> struct Keys {
    static constexpr int BN = 128, BM = D == 64 ? 128 : 64, STAGES = 2;
    using Tile = Panels<BN, D>;
    using Step = Panels<BM, D>;
    using Weights = Panels<BN, BM>;
    using Order = Visits<BM, BN>;
    static constexpr int STAGE = 2 * Step::BYTES, NUMBERS = 3 * BM * 4 + 16, SUMS = BM * D * 4; // statistics, delta and limits of the queries, and a Visit

    // Places in shared memory: barriers, keys, values, stages of queries and gradients, two tiles of ds, a term of dq, and stages of numbers.
    u32 start;
    __device__ __forceinline__ u32 loaded() const { return start; } // keys and values; kept until free
    __device__ __forceinline__ u32 free() const { return start + 8; }
    __device__ __forceinline__ u32 term() const { return start + 16; } // of dq is complete; kept until added
    __device__ __forceinline__ u32 added() const { return start + 24; }
    __device__ __forceinline__ u32 full(int stage) const { return start + 32 + stage * 8; }
    __device__ __forceinline__ u32 empty(int stage) const { return full(STAGES + stage); }
    __device__ __forceinline__ u32 k() const { return start + 1024; }
    __device__ __forceinline__ u32 v() const { return k() + Tile::BYTES; }
    __device__ __forceinline__ u32 q(int stage) const { return v() + Tile::BYTES + stage * STAGE; }
    __device__ __forceinline__ u32 g(int stage) const { return q(stage) + Step::BYTES; }
    __device__ __forceinline__ u32 ds(int i) const { return q(STAGES) + i * Weights::BYTES; }
    __device__ __forceinline__ u32 dq() const { return ds(2); }
    __device__ __forceinline__ u32 numbers(int stage) const { return dq() + SUMS + stage * NUMBERS; }
    __device__ __forceinline__ u32 rounded() const { return dq() + SUMS + (STAGES * NUMBERS + 127) / 128 * 128; } // 16 rows of 64 elements

    float* sums;
    u32* turns;
    // sum returns the float32 sums of a tile of dq, and counter how many terms they have.
    __device__ __forceinline__ float* sum(const Problem<float>& p, int batch, int head, int t0) const {
        return sums + (((i64)batch * p.heads + head) * ((p.queries + BM - 1) / BM) + t0 / BM) * (BM * D);
    }
    __device__ __forceinline__ u32* counter(const Problem<float>& p, int batch, int head, int t0) const { return turns + ((i64)batch * p.heads + head) * p.queries + t0; }
    // await waits until a counter says that the terms before rank are added.
    static __device__ __forceinline__ void await(const u32* counter, int rank) {
        int have = 0;
        while (have != rank) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(have) : "l"(counter) : "memory");
        asm volatile("fence.proxy.async.global;" ::: "memory");
    }

    __device__ __forceinline__ void run(const TensorMap* mapQ, const TensorMap* mapK, const TensorMap* mapV, const TensorMap* mapG, const float* lse, const float* delta, u16* dk, u16* dv, Strides ds,
                                        u16* dq, Strides qs, int outputs, Section section, const Problem<float>& p, int batches) {
        start = (shared_address(dynamic) + 1023) / 1024 * 1024;
        if (threadIdx.x == 0) {
            barrier_init(loaded(), 1), barrier_init(free(), 256), barrier_init(term(), 256), barrier_init(added(), 1);
            for (int i = 0; i < STAGES; i++) barrier_init(full(i), 33), barrier_init(empty(i), 256);
        }
        barriers_ready();
        follow();
        const int warp = threadIdx.x / 32;
        if (warp >= 4) {
            registers_up<224>();
            each(p, section, batches, [&](Order& at, int round) { consume(p, at.batch, at.keyHead, at.block(), dk, dv, ds, dq, qs, outputs, round); });
            return;
        }
        registers_down<56>();
        if (warp == 0) each(p, section, batches, [&](Order& at, int round) { load(at, mapQ, mapK, mapV, mapG, round); });
        else if (warp == 1) each(p, section, batches, [&](Order& at, int) { load_numbers(at, lse, delta); });
        else if (warp == 2) each(p, section, batches, [&](Order& at, int) { add_terms(at); });
        else if (outputs & 4) each(p, section, batches, [&](Order& at, int) { round_sums(at, dq, qs); });
    }

    // each calls f for each key head of the block.
    template <typename F> __device__ __forceinline__ void each(const Problem<float>& p, Section section, int batches, F f) {
        const int all = batches * (p.heads / p.group);
        int round = 0;
#pragma unroll 1
        for (int number = blockIdx.x / section.blocks; number < all; number += gridDim.x / section.blocks, round++) {
            Order at(p, section, number, blockIdx.x % section.blocks, round);
            f(at, round);
        }
    }

    Position<STAGES> stage;
    u32 parity = 0; // of terms of dq

    __device__ __forceinline__ void load(Order& at, const TensorMap* mapQ, const TensorMap* mapK, const TensorMap* mapV, const TensorMap* mapG, int round) {
        const bool lead = threadIdx.x == 0;
        if (lead) {
            barrier_wait(free(), round % 2 ^ 1);
            barrier_expect(loaded(), 2 * Tile::BYTES);
            Tile::fetch_rows(k(), mapK, loaded(), at.block() * BN, at.keyHead, at.batch);
            Tile::fetch_rows(v(), mapV, loaded(), at.block() * BN, at.keyHead, at.batch);
        }
        for (; at.next(); stage.next()) {
            if (lead) {
                barrier_wait(empty(stage.stage), stage.parity ^ 1);
                barrier_expect(full(stage.stage), STAGE);
                Step::fetch_rows(q(stage.stage), mapQ, full(stage.stage), at.t0, at.head, at.batch);
                Step::fetch_rows(g(stage.stage), mapG, full(stage.stage), at.t0, at.head, at.batch);
            }
            __syncwarp();
        }
        if (lead) {
            barrier_wait(empty(stage.stage), stage.parity ^ 1);
            arrive(full(stage.stage));
        }
        stage.next();
    }

    __device__ __forceinline__ void load_numbers(Order& at, const float* lse, const float* delta) {
        const Problem<float>& p = at.p;
        for (; at.next(); stage.next()) {
            const u32 to = numbers(stage.stage);
            barrier_wait(empty(stage.stage), stage.parity ^ 1);
            for (int i = threadIdx.x % 32; i < BM; i += 32) {
                const bool is = at.t0 + i < p.queries;
                const i64 row = ((i64)at.batch * p.heads + at.head) * p.queries + at.t0 + i;
                const float l = is ? lse[row] * LOG2E : INFINITY, d = is ? delta[row] : 0;
                const int limit = is ? p.limit(at.batch, at.t0 + i) : 0;
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + i * 4), "f"(l) : "memory");
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (BM + i) * 4), "f"(d) : "memory");
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + (2 * BM + i) * 4), "r"(limit) : "memory");
            }
            const bool whole = at.block() * BN + BN <= at.low && at.t0 + BM <= p.queries; // rows beyond are 0, and 0 times an infinite key is NaN
            store_visit(at.t0, at.head, whole | at.stores() << 1, at.rank);
        }
        barrier_wait(empty(stage.stage), stage.parity ^ 1);
        store_visit(-1, 0, 0, 0);
        stage.next();
    }

    // store_visit tells the consumers of a tile of queries: its first query, -1 for none, its head, whether the keys are seen by all queries (1) and whether the consumers store dq
    // (2), and the rank of the term.
    __device__ __forceinline__ void store_visit(int t0, int head, int is, int rank) const {
        if (threadIdx.x % 32 == 0) asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(numbers(stage.stage) + 3 * BM * 4), "r"(t0), "r"(head), "r"(is), "r"(rank) : "memory");
        arrive(full(stage.stage));
    }
    __device__ __forceinline__ int4 visit() const {
        int4 x;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(numbers(stage.stage) + 3 * BM * 4) : "memory");
        return x;
    }

    // add_terms adds the block's terms of dq to the sums. Where the consumers store dq it copies the sums to where they add their term.
    __device__ __forceinline__ void add_terms(Order& at) {
        u32* turn = nullptr; // of a term that is being added
        int rank = 0;
        while (true) {
            const bool more = at.next(), copies = more && at.rank > 0 && at.stores();
            if (threadIdx.x % 32 == 0) {
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                if (more && !copies) arrive(added());
                if (turn) {
                    asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async.global;" ::: "memory");
                    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(turn), "r"(rank + 1) : "memory");
                }
            }
            if (!more) return;
            rank = at.rank;
            turn = counter(at.p, at.batch, at.head, at.t0);
            float* const to = sum(at.p, at.batch, at.head, at.t0);
            if (threadIdx.x % 32 == 0 && rank > 0) {
                await(turn, rank);
                if (copies) {
                    barrier_expect(added(), SUMS);
                    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dq()), "l"(to), "r"(SUMS), "r"(added()) : "memory");
                }
            }
            __syncwarp();
            barrier_wait(term(), parity);
            parity ^= 1;
            if (at.stores()) turn = nullptr;
            if (threadIdx.x % 32 == 0 && turn) {
                if (rank > 0)
                    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(dq()), "r"(SUMS) : "memory");
                else
                    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(dq()), "r"(SUMS) : "memory");
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
            __syncwarp();
        }
    }

    // round_sums stores dq of every section.blocks-th tile of queries whose last term is of this launch.
    __device__ __forceinline__ void round_sums(const Order& at, u16* dq, Strides s) const {
        const Problem<float>& p = at.p;
        const float by[2] = {p.scale, p.scale};
        const int lane = threadIdx.x % 32;
        for (int turn = 0; turn < p.group; turn++)
            for (int tile = blockIdx.x % at.section.blocks; tile < at.tiles; tile += at.section.blocks) {
                const Span<BM> span(p, at.batch, tile * BM);
                const int last = (span.high + BN - 1) / BN - 1, head = at.keyHead * p.group + turn;
                if (at.few(last + 1) || last < at.section.first || last >= at.section.first + at.section.blocks) continue;
                if (lane == 0) await(counter(p, at.batch, head, tile * BM), last + 1);
                __syncwarp();
                const float* from = sum(p, at.batch, head, tile * BM) + lane * 4;
#pragma unroll 1
                for (int warp = 0; warp < 8; warp++, from += 128) { // as consume has them
                    float o[32];
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(o[4 * i]), "=f"(o[4 * i + 1]), "=f"(o[4 * i + 2]), "=f"(o[4 * i + 3]) : "l"(from + i * 1024) : "memory");
                    store_term(o, by, rounded(), warp / 4, warp % 4 * 16, p, dq + at.batch * s.batch + head * s.head, s.row, tile * BM);
                }
            }
    }

    // store_term stores a consumer warp's part of dq: 16 rows of its warpgroup's part, beginning with row `line`.
    __device__ __forceinline__ void store_term(const float (&o)[32], const float (&by)[2], u32 memory, int part, int line, const Problem<float>& p, u16* dq, i64 stride, int t0) const {
        const int row = t0 + (D == 64 ? part * 64 : 0) + line, c = D == 64 ? 0 : part * 64;
        store_rows<HALF, 64>(o, by, memory, dq + row * stride + c, stride, p.queries - row, p.dim - c);
    }

    __device__ __forceinline__ void consume(const Problem<float>& p, int batch, int keyHead, int block, u16* dk, u16* dv, Strides ds, u16* dq, Strides qs, int outputs, int round) {
        // The shuffle tells the compiler that the number is uniform, so that the addresses of products are computed in uniform registers: H100, BF16, d 128, T 8192, full, 5652 to 5222 us.
        const int part = __shfl_sync(~0u, threadIdx.x / 128, 0) - 1, lane = threadIdx.x % 32, tid = threadIdx.x - 128, line = threadIdx.x % 128 / 32 * 16, key = block * BN + part * 64 + line + lane / 4;
        const float scale = p.scale * LOG2E, one[2] = {1, 1}, by[2] = {p.scale, p.scale};
        float sumK[D / 2], sumV[D / 2], s[BM / 2], x[BM / 2], o[32];
        u32 w[BM / 16][4], y[BM / 16][4];
#pragma unroll
        for (int i = 0; i < D / 2; i++) sumK[i] = sumV[i] = 0;
        barrier_wait(loaded(), round % 2);
#pragma unroll 1
        for (;; stage.next()) {
            const u32 from = numbers(stage.stage) + lane % 4 * 8;
            barrier_wait(full(stage.stage), stage.parity);
            const int4 now = visit();
            if (now.x < 0) break;
            wgmma_fence();
            scores<HALF, D, BN, BM>(s, k() + part * 64 * 128, q(stage.stage));
            wgmma_commit();
            scores<HALF, D, BN, BM>(x, v() + part * 64 * 128, g(stage.stage));
            wgmma_commit();
            wgmma_wait<1>();
            pin(s);
#pragma unroll
            for (int j = 0; j < BM / 8; j++) {
                float l[2];
                asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(l[0]), "=f"(l[1]) : "r"(from + j * 32) : "memory");
#pragma unroll
                for (int i = 0; i < 4; i++) s[4 * j + i] = weight(s[4 * j + i], scale, l[i % 2]);
                if (!(now.z & 1)) {
                    int limit[2];
                    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(limit[0]), "=r"(limit[1]) : "r"(from + 2 * BM * 4 + j * 32) : "memory");
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (key + i / 2 * 8 >= limit[i % 2]) s[4 * j + i] = 0;
                }
            }
            wgmma_wait<0>();
            pin(x);
#pragma unroll
            for (int j = 0; j < BM / 8; j++) {
                float d[2];
                asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "r"(from + BM * 4 + j * 32) : "memory");
#pragma unroll
                for (int i = 0; i < 4; i++) x[4 * j + i] = s[4 * j + i] * (x[4 * j + i] - d[i % 2]);
            }
            pack<HALF>(w, s);
            pack<HALF>(y, x);
            store_weights(y, part * 64 + line);
            pin(w), pin(y), pin(sumK), pin(sumV);
            wgmma_fence();
            weigh_rows<HALF, D, BM>(sumV, w, g(stage.stage), 1);
            {
                const u64 a = describe<BN, true>(this->ds(parity) + (D == 64 ? part * BN * 128 : 0)), b = describe<BN, true>(k() + (D == 64 ? 0 : part * BN * 128));
#pragma unroll
                for (int l = 0; l < BN / 16; l++) multiply<HALF, 1, 1>(o, a + Tile::lines(l), b + Tile::lines(l), l > 0);
            }
            wgmma_commit();
            weigh_rows<HALF, D, BM>(sumK, y, q(stage.stage), 1);
            wgmma_commit();
            wgmma_wait<1>();
            pin(w), pin(sumV), pin(o);
            barrier_wait(added(), parity);
            const int4 at = visit();
            const u32 mine = this->dq() + tid * 16;
            if (at.z & 2) {
                if (at.w > 0) {
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        float4 f;
                        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w) : "r"(mine + i * 4096) : "memory");
                        o[4 * i] += f.x, o[4 * i + 1] += f.y, o[4 * i + 2] += f.z, o[4 * i + 3] += f.w;
                    }
                }
                // The warp's own lines of the other tile of ds are no longer read.
                if (outputs & 4) store_term(o, by, this->ds(parity ^ 1) + (part * 64 + line) * 128, part, line, p, dq + batch * qs.batch + at.y * qs.head, qs.row, at.x);
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++)
                    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(mine + i * 4096), "f"(o[4 * i]), "f"(o[4 * i + 1]), "f"(o[4 * i + 2]), "f"(o[4 * i + 3]) : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            arrive(term());
            parity ^= 1;
            wgmma_wait<0>();
            pin(y), pin(sumK);
            arrive(empty(stage.stage));
        }
        arrive(empty(stage.stage));
        stage.next();
        // The tile of keys is no longer read.
        const u32 memory = k() + (threadIdx.x / 32 - 4) * 16 * D * 2;
        asm volatile("bar.sync 1, 256;" ::: "memory");
        const int row = key - lane / 4;
        const i64 to = batch * ds.batch + keyHead * ds.head + row * ds.row;
        if (outputs & 1) store_rows<HALF, D>(sumK, by, memory, dk + to, ds.row, p.keys - row, p.dim);
        if (outputs & 2) store_rows<HALF, D>(sumV, one, memory, dv + to, ds.row, p.keys - row, p.dim);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        arrive(free());
    }

    // store_weights stores a warp's 16 keys x BM queries of ds as the first operand of dq: 128 keys of 64 queries in a row, swizzled. It returns when both warpgroups have.
    __device__ __forceinline__ void store_weights(const u32 (&x)[BM / 16][4], int line) const {
        const int lane = threadIdx.x % 32, row = line + lane % 16;
#pragma unroll
        for (int l = 0; l < BM / 16; l++) {
            const int piece = l % 4 * 2 + lane / 16;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(ds(parity) + l / 4 * BN * 128 + row * 128 + (piece ^ row & 7) * 16), "r"(x[l][0]), "r"(x[l][1]),
                         "r"(x[l][2]), "r"(x[l][3]) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;\nbar.sync 2, 256;" ::: "memory");
    }
};

#define MAPS const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap g, const float *lse, const float *delta
#define ENTRY(name, D, HALF)                                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                                                                                   \
        attention_hopper_gradients_##name(MAPS, u16* dk, u16* dv, STRIDES(d), u16* dq, STRIDES(dq), float* sums, u32* turns, const int outputs, const int first,           \
                                          const int blocks, PROBLEM(float)) {                                                                                              \
        BODY(Keys<D, HALF> a; a.sums = sums; a.turns = turns;                                                                                                              \
             a.run(&q, &k, &v, &g, lse, delta, dk, dv, STRIDES_OF(d), dq, STRIDES_OF(dq), outputs, Section{first, blocks}, PROBLEM_OF(float), batches);)                   \
    }
#define DELTA(name, HALF)                                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) attention_hopper_delta_##name(const u16* g, const u16* out, STRIDES(out), float* to, u32* turns, const int heads,   \
                                                                                    const int queries, const int dim, const int rows) {                                   \
        BODY(delta<HALF>(g, out, STRIDES_OF(out), to, turns, heads, queries, dim, rows);)                                                                                 \
    }
ENTRY(64_bf16, 64, false)
ENTRY(128_bf16, 128, false)
ENTRY(64_f16, 64, true)
ENTRY(128_f16, 128, true)
DELTA(bf16, false)
DELTA(f16, true)
