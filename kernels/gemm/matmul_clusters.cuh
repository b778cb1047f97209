// What matmul_hopper.cu has for clusters of blocks of any shape: their tiles, how they fetch for one another, and how they add up parts of K.
#pragma once
#include "matmul_output.cuh"

// Cluster is how the blocks of a cluster divide work: `down` tiles one above the other and `across` tiles side by side, one or two each, which fetch parts of
// common pieces for one another, and `parts` of K of each.
struct Cluster {
    u32 logDown, logAcross, parts, rank;
    // The kernel's argument has the logarithms in four bits each, then the parts.
    __device__ __forceinline__ Cluster(u32 argument) : logDown(argument & 15), logAcross(argument >> 4 & 15), parts(argument >> 8) {
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    }
    __device__ __forceinline__ u32 row() const { return rank & ((1 << logDown) - 1); }
    __device__ __forceinline__ u32 col() const { return rank >> logDown & ((1 << logAcross) - 1); }
    __device__ __forceinline__ u32 part() const { return rank >> (logDown + logAcross); }
    __device__ __forceinline__ bool shared() const { return logDown + logAcross > 0; }
    __device__ __forceinline__ u32 blocks() const { return parts << (logDown + logAcross); }
    // sources is the number of blocks that fetch for a block and for which it fetches; source is the i-th of them.
    __device__ __forceinline__ u32 sources() const { return 1 + logDown + logAcross; }
    __device__ __forceinline__ u32 source(u32 i) const { return i == 0 ? rank : i == 1 && logDown > 0 ? rank ^ 1 : rank ^ 1 << logDown; }
    // above and beside are masks of the blocks that share columns of B, and rows of A.
    __device__ __forceinline__ u16 above() const { return 1 << rank | 1 << (rank ^ logDown); }
    __device__ __forceinline__ u16 beside() const { return 1 << rank | 1 << (rank ^ logAcross << logDown); }
};

// Place is a block's tile, with the first term of its part of K.
struct Place : Tile {
    int k0;
};

// Places numbers the tiles of C, or of a cluster, down groups of rows of tiles.
template <int BN, int STEP> struct Places {
    Shape s;
    Cluster of;
    u32 down, across, count;
    __device__ __forceinline__ Places(const Shape& s, const Cluster& of) : s(s), of(of) {
        down = (s.m + (128 << of.logDown) - 1) >> (7 + of.logDown);
        across = (s.n + (BN << of.logAcross) - 1) / BN >> of.logAcross;
        count = down * across * s.batch * ((u32)(s.k + s.chunk - 1) / (u32)s.chunk);
    }
    // The tile of a section, and the block's part of K.
    __device__ __forceinline__ Place operator[](const Section& section) const {
        const u32 i = section.tile, group = 16 >> of.logDown, rest = i / (down * across), in = i - rest * (down * across);
        const u32 top = in / (group * across) * group, rows = min(down - top, group), t = in - top * across, col = t / rows;
        Place to;
        to.m0 = ((top + t - col * rows << of.logDown) + of.row()) * 128;
        to.n0 = ((col << of.logAcross) + of.col()) * BN;
        to.split = rest / (u32)s.batch;
        to.matrix = rest - to.split * s.batch;
        to.k0 = to.split * s.chunk;
        to.steps = (u32)(min(s.k - to.k0, s.chunk) + STEP - 1) / STEP;
        if (of.parts > 1) {
            const u32 part = of.part(), first = to.steps * part / of.parts;
            to.steps = to.steps * (part + 1) / of.parts - first;
            to.k0 += first * STEP;
        }
        if (section.steps > 0) to.k0 += section.k0, to.steps = section.steps;
        return to;
    }
};

// fetch_share starts the copies of a piece of LINES lines of 128 bytes along K, T as in Piece, by one of several blocks: the part-th part of it, to all of mask.
template <int LINES, int BK, int T> __device__ __forceinline__ void fetch_share(u32 to, const TensorMap* map, u32 bar, int line, int k0, int matrix, u32 part, u32 logBlocks, u16 mask) {
    if (T) {
#pragma unroll
        for (int i = 0; i < LINES / 64; i++) {
            if ((i & ((1 << logBlocks) - 1)) != part) continue;
            if (logBlocks > 0) fetch<true>(to + i * BK * 128, map, bar, line + i * 64, k0, 0, matrix, mask);
            else fetch<false>(to + i * BK * 128, map, bar, line + i * 64, k0, 0, matrix, mask);
        }
    } else {
        const int first = (LINES >> logBlocks) * part;
        if (logBlocks > 0) fetch<true>(to + first * 128, map, bar, k0, line + first, 0, matrix, mask);
        else fetch<false>(to, map, bar, k0, line, 0, matrix, mask);
    }
}

// Rounded is Plain in a cluster whose blocks share rows of a and of b, as a launch asks for.
template <int TA, int TB, int SIZE, int BN, bool F16_ = false> struct Rounded : Plain<TA, TB, SIZE, BN, 1, F16_> {
    static constexpr int TRANS_A = TA, TRANS_B = TB;
};

// Its stages are released by the blocks of a cluster for which they hold copies.
template <int TA, int TB, int SIZE, int BN, bool F16> struct Stages<Rounded<TA, TB, SIZE, BN, F16>> {
    using K = Rounded<TA, TB, SIZE, BN, F16>;
    Ring<K::STAGES> at;
    u32 full, empty, memory;
    int group, line, sources;
    u32 source; // the lane's

    __device__ __forceinline__ void wait() { barrier_wait(full + at.stage * 8, at.parity); }
    __device__ __forceinline__ u64 a() const { return uniform(K::A::descriptor(memory + at.stage * K::STAGE, line)); }
    __device__ __forceinline__ u64 b() const { return uniform(K::B::descriptor(memory + at.stage * K::STAGE + K::A::BYTES, 0)); }
    // uniform is x, which is the same in all lanes. By a shuffle the compiler knows that and keeps descriptors in uniform registers: a step has 2 R2UR in place of 16.
    //
    // H200, BF16, us                  with    without
    // tn, 768 x 8192 x 768, BN 128    21.7       22.9
    // tn, 768 x 8192 x 2304, BN 128   44.7       47.7
    // tn, 768 x 8192 x 3072, BN 192   64.6       65.3
    // nt, 1272 x 1936 x 528, BN 64    12.1       11.8
    static __device__ __forceinline__ u64 uniform(u64 x) { return K::BN == 128 ? x >> 32 << 32 | __shfl_sync(0xffffffff, (u32)x, 0) : x; }
    __device__ __forceinline__ void release(int stage) {
        if (threadIdx.x % 32 < sources) barrier_arrive(empty + stage * 8, source);
    }
};

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Inbox is where a block receives sums of a tile of the other parts of K of a cluster: at the end of the stages. A block owns the rows of one warp of eight, or of
// several.
template <typename K> struct Inbox {
    static constexpr int BYTES = 16 * K::BN * 4; // of a warp's rows
    u32 memory;
    bool early; // no stage of the tile lies there
    __device__ __forceinline__ Inbox(const Cluster& of, u32 k, u32 stages) {
        const u32 bytes = (8 + of.parts - 1) / of.parts * of.parts * BYTES, steps = ((k + K::BK - 1) / K::BK + of.parts - 1) / of.parts;
        memory = stages + K::STAGES * K::STAGE - bytes;
        early = steps * K::STAGE + bytes <= K::STAGES * K::STAGE;
    }
    // open is called by all threads before products, ready after them: then each block may send to others, which have begun and no longer read what lies there. closed waits until all have sent.
    __device__ __forceinline__ void open() const {
        if (early) cluster_arrive();
    }
    __device__ __forceinline__ void ready() const {
        if (!early) cluster_arrive();
        cluster_wait();
    }
    __device__ __forceinline__ void closed() const { cluster_arrive(), cluster_wait(); }
};

// join adds up the sums of the parts of K that the blocks of a cluster have of a tile, the owner's first, the others in order. It returns false in the warps whose
// rows another block owns.
template <typename K> __device__ __forceinline__ bool join(K& sums, const Cluster& of, const Inbox<K>& inbox) {
    constexpr int BYTES = Inbox<K>::BYTES;
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0) - 4, owner = warp * of.parts / 8, first = (owner * 8 + of.parts - 1) / of.parts;
    const u32 own = inbox.memory + (warp - first) * of.parts * BYTES + threadIdx.x % 32 * 16;
    inbox.ready();
    if (owner != of.part()) {
        u32 to;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(own + of.part() * BYTES), "r"(of.rank + (owner - of.part() << (of.logDown + of.logAcross))));
#pragma unroll
        for (int i = 0; i < K::BN / 2; i += 4)
            asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 128), "f"(sums.sum[i]), "f"(sums.sum[i + 1]), "f"(sums.sum[i + 2]), "f"(sums.sum[i + 3]) : "memory");
    }
    inbox.closed();
    if (owner != of.part()) return false;
#pragma unroll 1
    for (u32 part = 0; part < of.parts; part++) {
        if (part == owner) continue;
#pragma unroll
        for (int i = 0; i < K::BN / 2; i += 4) {
            float v[4];
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(own + part * BYTES + i * 128) : "memory");
#pragma unroll
            for (int e = 0; e < 4; e++) sums.sum[i + e] += v[e];
        }
    }
    return true;
}
