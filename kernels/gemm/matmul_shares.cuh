// Stream-K distribution of tiles to the blocks of matmul_hopper.cu. If there are slightly more tiles than a full wave, some blocks
// compute two tiles and the rest one. Instead, the K steps of the first `tiles` tiles are concatenated and cut into equal ranges,
// one for each block (or cluster). So all blocks finish at about the same time.
#pragma once
typedef unsigned int u32;
typedef long long i64;

// Shares describes the shared tiles and the scratch memory for them.
struct Shares {
    int tiles;     // number of shared tiles, the first ones; each other tile is computed by one block
    float* sums;   // places for parts of tiles, two for each block: of the tile that its range ends, and of the one that it begins
    int* arrivals; // number of parts stored, per tile and 64 rows; initially 0
};

// Section is a block's contribution to one tile: `steps` K steps starting at k0. For a shared tile it is part `number` of `parts`.
struct Section {
    int tile, k0, steps;
    int number, parts, block; // part 0 belongs to `block`, the next parts to the blocks after it
};

// Walk iterates over a block's sections: first its range of the shared tiles, then whole tiles in a grid-stride loop. STEP is the K
// extent of a step.
template <int STEP> struct Walk {
    Shares shares;
    int each, count; // steps of a tile; tiles
    int block, blocks;
    i64 at, end;
    int whole; // the next tile that is not shared

    // terms is the sums' terms, or those of a split where tiles are splits too.
    __device__ Walk(const Shares& shares, int count, int terms, int cluster)
        : shares(shares), each((terms + STEP - 1) / STEP), count(count), block(blockIdx.x / cluster), blocks(gridDim.x / cluster) {
        at = all() * block / blocks;
        end = all() * (block + 1) / blocks;
        whole = shares.tiles + block;
    }
    __device__ __forceinline__ i64 all() const { return (i64)shares.tiles * each; }
    // owner is the block whose range has a step.
    __device__ __forceinline__ int owner(i64 step) const { return (int)(((step + 1) * blocks - 1) / all()); }
    __device__ __forceinline__ bool any() const { return at < end || whole < count; }
    // next sets the next section, or reports that there is none. That of a tile that is not shared has no steps set.
    __device__ __forceinline__ bool next(Section& p) {
        if (!any()) return false;
        p = {whole, 0, 0, 0, 1, 0};
        if (at >= end) {
            whole += blocks;
            return true;
        }
        const i64 first = at / each * each;
        p.tile = (int)(first / each);
        p.k0 = (int)(at - first) * STEP;
        p.steps = (int)(min(first + each, end) - at);
        if (p.steps < each) {
            p.block = owner(first);
            p.parts = owner(first + each - 1) - p.block + 1;
            p.number = block - p.block;
        }
        at += p.steps;
        return true;
    }
};

// gather adds up the parts of 64 rows of a tile, in their order, in the warpgroup that comes last. It returns false in the others, which
// leave theirs in memory. line is the number of these rows among the CLUSTER * 2 of the tile.
template <int LINES> __device__ __forceinline__ bool gather(float (&sum)[64], const Shares& shares, const Section& p, int line, int group) {
    __shared__ int arrived[2]; // before, by warpgroup
    const int t = threadIdx.x % 128;
    int* const arrivals = shares.arrivals + p.tile * LINES + line;
    auto place = [&](int part) {
        return reinterpret_cast<float4*>(shares.sums) + ((i64)((p.block + part) * 2 + (part == 0)) * LINES + line) * (64 * 128 / 4) + t;
    };
    auto meet = [&] { asm volatile("bar.sync %0, 128;" ::"r"(group + 3) : "memory"); };
    // The same in all lanes: so the compiler knows that lanes stay together and keeps the next products' descriptors in uniform registers. Else
    // each step of 32 terms has 64 instructions more.
    auto before = [&] { return __shfl_sync(0xffffffff, arrived[group], 0); };
    meet(); // all have read what is left of the last tile
    if (t == 0) asm volatile("{\n.reg .s32 n;\nld.acquire.gpu.global.s32 n, [%1];\nst.shared.s32 [%0], n;\n}" ::"r"((u32)__cvta_generic_to_shared(arrived + group)), "l"(arrivals) : "memory");
    meet();
    if (before() < p.parts - 1) {
        float4* const own = place(p.number);
#pragma unroll
        for (int e = 0; e < 64; e += 4) __stcg(own + e / 4 * 128, make_float4(sum[e], sum[e + 1], sum[e + 2], sum[e + 3]));
        __threadfence();
        meet();
        if (t == 0) arrived[group] = atomicAdd(arrivals, 1);
        meet();
        if (before() < p.parts - 1) return false;
    }
    __threadfence();
    float all[64];
#pragma unroll
    for (int e = 0; e < 64; e++) all[e] = 0;
#pragma unroll 1
    for (int part = 0; part < p.parts; part++) {
        if (part == p.number) {
#pragma unroll
            for (int e = 0; e < 64; e++) all[e] += sum[e];
            continue;
        }
        const float4* const from = place(part);
        float4 v[16];
#pragma unroll
        for (int e = 0; e < 16; e++) v[e] = __ldcg(from + e * 128);
#pragma unroll
        for (int e = 0; e < 16; e++) all[4 * e] += v[e].x, all[4 * e + 1] += v[e].y, all[4 * e + 2] += v[e].z, all[4 * e + 3] += v[e].w;
    }
#pragma unroll
    for (int e = 0; e < 64; e++) sum[e] = all[e];
    return true;
}
