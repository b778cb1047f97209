// Planes written again with scaling, for matmul_hopper_rescale. A matrix with ld = 0 is one whose x has planes: see decode.
#pragma once
#include "matmul_planes.cuh"

// decode finds elements from the planes of one matrix that a generated kernel has stored. Numbers that planes don't hold, with a first plane below 2^-109 or infinite,
// have their bits there.
__device__ __forceinline__ void decode(Octet& o, const Matrix& a) {
    uint4 planes[3];
#pragma unroll
    for (int q = 0; q < 3; q++) planes[q] = *reinterpret_cast<const uint4*>(reinterpret_cast<const u16*>(a.x) + q * a.plane() + (i64)o.row * a.pitch + o.col);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        u32 p[3];
#pragma unroll
        for (int q = 0; q < 3; q++) {
            const u32 w = j < 2 ? planes[q].x : j < 4 ? planes[q].y : j < 6 ? planes[q].z : planes[q].w;
            p[q] = j % 2 ? w & 0xffff0000 : w << 16;
        }
        const u32 size = p[0] & 0x7fffffff;
        o.v[j] = __uint_as_float(p[0]) + (__uint_as_float(p[1]) + __uint_as_float(p[2]));
        if (size < 0x09000000) o.v[j] = __uint_as_float(p[0] | p[1] >> 16);
        if (size >= 0x7f800000) o.v[j] = __uint_as_float(size == 0x7f800000 && p[1] >= 0x80000000 ? p[0] & 0x80000000 | 0x7f7f0000 | p[1] >> 16 : p[0]);
    }
}

// rescale writes block number block's share of the planes of a matrix, as scales says. If exponents is not null, each line is multiplied by its
// own power of 2, which needs the range of the whole line first; columns says whether lines are columns. It returns in all threads whether
// sums of a line may overflow. A block's 256 threads have up to 8 lines at a time: 8 columns, or so many rows that the grid is busy. Where there
// are fewer lines than that takes, several blocks find the range of the same ones, and each writes a part.
// The code is short since all of it is brought when the kernel is launched, also where it writes nothing: see bench/NOTES.md.
__device__ __forceinline__ bool rescale(const Matrix& a, const Scales& scales, bool columns, int* exponents, u32 block, u32 blocks) {
    constexpr u32 THREADS = 256, AHEAD = 2;
    uint2* const ranges = slots();                              // of lines
    float2* const factors = reinterpret_cast<float2*>(slots()); // and then their powers of 2
    auto split = [](int e) { return make_float2(power(e / 2), power(e - e / 2)); };
    columns &= exponents != nullptr;
    const u32 vectors = a.pitch / 8, across = columns ? vectors : a.rows, along = columns ? a.rows : vectors, count = a.batch * across;
    u32 log = columns ? 8 : 5;
    while (log < 8 && 1 << log < along && (u64)count << log < blocks * THREADS) log++;
    const u32 sharing = 1 << log, thread = threadIdx.x, groups = THREADS >> log, line = thread >> log, first = thread & sharing - 1; // threads that share a line
    const u32 slot = columns ? thread : line, parts = groups == 1 ? max(blocks / count, 1) : 1, length = (along + parts - 1) / parts;
    const bool leader = columns ? thread < 8 : first == 0; // of the line of a slot
    bool high = false;
    if (!exponents && thread < 8) factors[thread] = split(scales.other);
    __syncthreads();
#pragma unroll 1
    for (u32 unit = block; unit / parts * groups < count; unit += blocks) {
        const u32 at = unit / parts * groups + line, matrix = at / across, in = at - matrix * across, part = unit % parts;
        Range range[8];
#pragma unroll 1
        for (int writing = exponents == nullptr; writing < 2; writing++) {
            const u32 end = at < count ? writing ? min((part + 1) * length, along) : along : 0;
#pragma unroll 1
            for (u32 i = (writing ? part * length : 0) + first; i < end; i += AHEAD * sharing) {
                Octet o[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    const u32 step = i + u * sharing;
                    o[u] = {matrix, columns ? step : in, (int)(columns ? in : step) * 8, {}};
                    if (step >= end) continue;
                    if (a.ld) o[u].load(a);
                    else decode(o[u], a);
                }
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    if (i + u * sharing >= end) continue;
                    float(&v)[8] = o[u].v;
                    if (!writing) {
#pragma unroll
                        for (int j = 0; j < 8; j++) range[j].add(v[j]);
                        continue;
                    }
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        const float2 by = factors[columns ? j : line];
                        v[j] = v[j] * by.x * by.y;
                    }
                    write(v, scales.scale, scales.care, o[u].place(a), a.plane());
                }
            }
            if (writing) break;
            __syncthreads(); // all have used the powers of the last lines
            if (leader) ranges[slot] = Range().packed();
            __syncthreads();
            if (!columns) {
#pragma unroll
                for (int j = 1; j < 8; j++) range[0].join(range[j].most, range[j].least);
            }
#pragma unroll
            for (int j = 0; j < 8; j++) {
                if (j > 0 && !columns) continue;
#pragma unroll 1
                for (int d = 16; d > 0; d /= 2) range[j].exchange(d);
                if (thread % 32 == 0) {
                    atomicMax(&ranges[columns ? j : line].x, range[j].most);
                    atomicMin(&ranges[columns ? j : line].y, range[j].least);
                }
            }
            __syncthreads();
            if (leader) {
                bool is;
                const u32 number = columns ? in * 8 + thread : in, lines = columns ? a.cols : a.rows;
                const int e = scales.exponent(ranges[slot].x, ranges[slot].y, is);
                factors[slot] = split(e);
                if (at < count && number < lines && part == 0) {
                    exponents[matrix * lines + number] = e + scales.other;
                    high |= is;
                }
            }
            __syncthreads();
        }
    }
    return __syncthreads_or(high);
}
