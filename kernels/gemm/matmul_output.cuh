// The tiles of C that the kernels of matmul_hopper.cu compute: their order, and how a warp writes its sums, through an epilogue.
#pragma once
#include "epilogue.cuh"
#include "matmul_halves.cuh"
#include "matmul_kinds.cuh"
#include "matmul_planes.cuh"
#include "matmul_shares.cuh"

// ---- The order of tiles

// Shape holds a product kernel's arguments beside its operands.
struct Shape {
    int m, n, k;
    int batch;
    int chunk; // terms of a split of k, a multiple of BK
    i64 ld;    // of C, whose matrices lie m * ld apart, and the sums of splits batch * m * ld
    const Scaling* range; // of float32 operands, or null
    u16* half;            // where C is written in 16 bits, or null
    int halves;           // see matmul_halves.cuh
    Shares shares;
};

struct Tile {
    int m0, n0, matrix, split, steps;
};

// Tiles numbers the tiles of C, of CLUSTER * 128 rows each, down groups of rows of tiles.
template <int BN, int STEP, int CLUSTER> struct Tiles {
    static constexpr int GROUP = 16 / CLUSTER;
    Shape s;
    int down, across, count;
    __device__ Tiles(const Shape& s) : s(s) {
        down = (s.m + CLUSTER * 128 - 1) / (CLUSTER * 128);
        across = (s.n + BN - 1) / BN;
        count = down * across * s.batch * ((s.k + s.chunk - 1) / s.chunk);
    }
    __device__ __forceinline__ Tile operator[](int i) const {
        const int in = i % (down * across), rest = i / (down * across);
        const int top = in / (GROUP * across) * GROUP, rows = min(down - top, GROUP), t = in % (GROUP * across);
        Tile to;
        to.m0 = (top + t % rows) * (CLUSTER * 128);
        to.n0 = t / rows * BN;
        to.matrix = rest % s.batch;
        to.split = rest / s.batch;
        to.steps = (min(s.k - to.split * s.chunk, s.chunk) + STEP - 1) / STEP;
        return to;
    }
};

// ---- Writing sums

// Part is the shared memory that a warp writes through: 16 rows and 32 columns at a time.
struct Part {
    static constexpr int LD = 32 + 8, SIZE = 16 * LD; // so that four rows of 8 sums use every bank
};

// bring brings the part-th part of a warp's 16 rows to shared memory, divided as by says.
template <typename K> __device__ __forceinline__ void bring(const K& sums, const Exponents& by, int part, float* memory) {
    const int lane = threadIdx.x % 32;
    const u32 to = shared_address(memory + lane / 4 * Part::LD + lane % 4 * 2);
    __syncwarp();
#pragma unroll
    for (int p = 0; p < K::BN / 32; p++) {
        if (p != part) continue;
#pragma unroll
        for (int i = 0; i < 16; i += 2) // in this form the compiler branches rather than selects among sums
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + (i / 2 % 2 * 8 * Part::LD + i / 4 * 8) * 4),
                         "f"(sums.value(p * 16 + i)), "f"(sums.value(p * 16 + i + 1)) : "memory");
    }
    __syncwarp();
    if (K::PLANES == 3) by.divide<Part::LD>(memory, 0, part * 32);
}

// BIAS_RECTIFIER are the steps of an epilogue that adds an operand and makes negative sums 0.
constexpr int BIAS_RECTIFIER = 1 << 16 | 0x61;

// store_wide writes the warp's 16 rows of a tile in lines of 128 bytes, with a bias for each column, from shared memory, and a rectifier, or without.
template <bool RECTIFIED, typename K> __device__ __forceinline__ void store_wide(const K& sums, const Exponents& by, const Target<float>& target, float* memory, const float* bias) {
    const int row = threadIdx.x % 32 / 8, col = threadIdx.x % 8 * 4;
#pragma unroll
    for (int part = 0; part < K::BN / 32; part++) {
        bring(sums, by, part, memory);
        Pack<float> x;
        if (RECTIFIED) x.v = *reinterpret_cast<const float4*>(bias + part * 32 + col);
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            if (row + r >= target.rows || part * 32 + col >= target.cols) continue;
            Pack<float> y;
            y.v = *reinterpret_cast<const float4*>(memory + (row + r) * Part::LD + col);
#pragma unroll
            for (int e = 0; RECTIFIED && e < 4; e++) y.s[e] = rectified(add(y.s[e], x.s[e]));
            *reinterpret_cast<float4*>(target.c + (row + r) * target.down + part * 32 + col) = y.v;
        }
    }
}

// BIAS and BIAS_SUM are the steps of an epilogue that adds an operand, and of one that adds another one to that.
constexpr int BIAS = 1 << 16 | 0x1, BIAS_SUM = 2 << 16 | 0x11;

// store_halves writes the warp's 16 rows of a tile in 16 bits, in lines of 128 bytes from c on, with a bias for each column, from shared memory, or without, and a matrix x in 16 bits, or without.
// Numbers are rounded before they are in shared memory, where rows are PITCH bytes apart so that a warp uses every bank.
template <bool BIASED, bool SUMMED, typename K>
__device__ __forceinline__ void store_halves(const K& sums, u16* c, i64 ld, const u16* x, i64 row, int rows, int cols, float* memory, const float* bias) {
    constexpr int PITCH = 64 * 2 + 16, PARTS = K::BN / 64;
    static_assert(16 * PITCH <= Part::SIZE * 4, "a part of 64 columns fits");
    const int lane = threadIdx.x % 32, r = lane / 4, e = lane % 4 * 2;
    const u32 to = shared_address(memory) + r * PITCH + e * 2, from = shared_address(memory) + lane / 8 * PITCH + lane % 8 * 16;
    u32 added[2][16];
    const auto load = [&](int part) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int at = r + i % 2 * 8, col = part * 64 + i / 2 * 8 + e;
            added[part % 2][i] = at < rows && col < cols ? *reinterpret_cast<const u32*>(x + at * row + col) : 0;
        }
    };
    if (SUMMED) load(0);
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        if (SUMMED && part + 1 < PARTS) load(part + 1);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float2 v = make_float2(sums.value(part * 32 + 2 * i), sums.value(part * 32 + 2 * i + 1));
            if (BIASED) {
                const float2 b = *reinterpret_cast<const float2*>(bias + part * 64 + i / 2 * 8 + e);
                v = make_float2(add(v.x, b.x), add(v.y, b.y));
            }
            if (SUMMED) {
                const u32 y = added[part % 2][i];
                v = make_float2(add(v.x, from_half<K::F16>(y)), add(v.y, from_half<K::F16>(y >> 16)));
            }
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + i / 2 * 16 + i % 2 * 8 * PITCH), "r"(packed<K::F16>(v.x, v.y)) : "memory");
        }
        __syncwarp();
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int at = lane / 8 + 4 * u, col = part * 64 + lane % 8 * 8;
            u32 v[4];
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from + 4 * u * PITCH) : "memory");
            // As an assignment it becomes four stores of 4 bytes.
            if (at < rows && col < cols) asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(c + at * ld + col), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
        }
    }
}

// Share is what a lane has of an operand of an epilogue: 16 bytes of every fourth row of a part.
struct Share {
    const float* p; // the first
    i64 row, part, col;
    bool wide, half;
    __device__ __forceinline__ Share(const Operand<float>& x, bool half, int r, int c) : p(from(x, half, 0, r, c).x), row(4 * x.row), part(32 * x.col), col(x.col), half(half) {
        wide = col == 1 && row % 4 == 0 && reinterpret_cast<u64>(p) % (half ? 8 : 16) == 0;
    }
    // load loads the lane's share of part i; of an operand in 16 bits the bits of two elements to each of the first two floats of a row: see widen. `rows` and `cols` count the rows and
    // columns from the first element to the edge of C; elements beyond the edge keep their values, or are 0 in 16 bits.
    __device__ __forceinline__ void load(float (&to)[16], int i, int rows, int cols) const {
        if (half) {
            const u16* q = reinterpret_cast<const u16*>(p) + i * part;
#pragma unroll
            for (int u = 0; u < 4; u++, q += row) {
                if (4 * u >= rows) continue;
                uint2 v = {};
                if (wide && cols >= 4) {
                    v = *reinterpret_cast<const uint2*>(q);
                } else {
                    u32 e[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) e[i] = i < cols ? q[i * col] : 0;
                    v = make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16);
                }
                to[4 * u] = __uint_as_float(v.x), to[4 * u + 1] = __uint_as_float(v.y);
            }
            return;
        }
        const float* q = p + i * part;
#pragma unroll
        for (int u = 0; u < 4; u++, q += row) {
            if (4 * u >= rows) continue;
            if (wide && cols >= 4) {
                Pack<float> v;
                v.v = *reinterpret_cast<const float4*>(q);
#pragma unroll
                for (int e = 0; e < 4; e++) to[4 * u + e] = v.s[e];
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (e < cols) to[4 * u + e] = q[e * col];
            }
        }
    }
};

// widen makes floats of what Share::load has loaded of an operand in 16 bits. A conversion waits for its load, so it comes after sums are in shared memory.
template <bool F16> __device__ __forceinline__ void widen(float (&x)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        const u32 low = __float_as_uint(x[i]), high = __float_as_uint(x[i + 1]);
        x[i] = from_half<F16>(low), x[i + 1] = F16 ? from_half<F16>(low >> 16) : __uint_as_float(low & 0xffff0000);
        x[i + 2] = from_half<F16>(high), x[i + 3] = F16 ? from_half<F16>(high >> 16) : __uint_as_float(high & 0xffff0000);
    }
}

// Line is the part of an epilogue's first operand that belongs to a tile's columns, in shared memory, where that operand is the same in
// all rows of C. Each warp brings its own while the products are under way.
template <typename K> struct Line {
    static constexpr int SIZE = K::LINE ? K::BN : 0;
    static __device__ __forceinline__ bool of(const Epilogue<float>& e, const Shape& s) { return K::LINE && e.steps >= 1 << 16 && e.x.row == 0 && !(s.halves & HALF_X); }
    static __device__ __forceinline__ void fetch(const Epilogue<float>& e, const Shape& s, const Tile& tile, float* line) {
        if (!of(e, s)) return;
        const int lane = threadIdx.x % 32;
        const float* const x = e.x.x + tile.matrix * e.x.matrix;
        __syncwarp(); // all have read the last tile's
#pragma unroll
        for (int i = lane; i < SIZE; i += 32) {
            const bool inside = tile.n0 + i < s.n;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(line + i)),
                         "l"(inside ? x + (tile.n0 + i) * e.x.col : x), "r"(inside ? 4 : 0) : "memory");
        }
    }
    // wait waits for it, before the first column is read.
    static __device__ __forceinline__ void wait() {
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();
    }
};

// store writes the warpgroup's 64 rows of a tile. Steps of an epilogue, which are many instructions, are in a loop; without
// them rows that begin anywhere are written by single elements, side by side.
template <typename K>
__device__ __forceinline__ void store(const K& sums, const Scaling& range, const Shape& s, const Tile& to, float* c, int row0, const Epilogue<float>& epilogue, float* memory, const float* line) {
    const int lane = threadIdx.x % 32;
    row0 += threadIdx.x % 128 / 32 * 16;
    const Exponents by = K::PLANES == 3 ? Exponents(range, s.range, to.matrix, s.m, s.n, row0, to.n0) : Exponents();
    Target<float> target;
    target.c = c + ((i64)to.split * s.batch + to.matrix) * s.m * s.ld + row0 * s.ld + to.n0;
    target.across = 1;
    target.down = s.ld;
    target.rows = s.m - row0;
    target.cols = s.n - to.n0;
    target.wide = s.ld % 4 == 0 && s.n % 4 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
    target.epilogue = from(epilogue, s.halves, to.matrix, row0, to.n0);
    const bool lined = Line<K>::of(epilogue, s);
    if (lined) Line<K>::wait();
    if (epilogue.steps == 0 && target.wide && !s.half) {
        store_wide<false>(sums, by, target, memory, nullptr);
        return;
    }
    if (K::LINE && lined && epilogue.steps == BIAS_RECTIFIER && target.wide && !s.half) {
        store_wide<true>(sums, by, target, memory, line);
        return;
    }
    if constexpr (K::PLANES == 1) {
        const bool summed = epilogue.steps == BIAS_SUM && s.halves & HALF_Y && target.epilogue.y.col == 1 && target.epilogue.y.row % 2 == 0 && reinterpret_cast<u64>(target.epilogue.y.x) % 4 == 0;
        if (s.halves & HALF_ALONE && (epilogue.steps == 0 || lined && (epilogue.steps == BIAS || summed))) {
            u16* const half = s.half + (target.c - c);
            if (epilogue.steps == 0) store_halves<false, false>(sums, half, s.ld, nullptr, 0, target.rows, target.cols, memory, nullptr);
            else if (summed) store_halves<true, true>(sums, half, s.ld, reinterpret_cast<const u16*>(target.epilogue.y.x), target.epilogue.y.row, target.rows, target.cols, memory, line);
            else store_halves<true, false>(sums, half, s.ld, nullptr, 0, target.rows, target.cols, memory, line);
            return;
        }
    }
    const int row = lane / 8, col = lane % 8 * 4;
    if (epilogue.steps != 0 || s.half) {
        const Share x(target.epilogue.x, s.halves & HALF_X, row, col), y(target.epilogue.y, s.halves & HALF_Y, row, col);
        float* q = target.c + row * s.ld + col;
#pragma unroll 1
        for (int part = 0; part < K::BN / 32; part++, q += 32) {
            const int inside = target.cols - part * 32 - col;
            float a[16] = {}, b[16] = {}, v[16];
            if (lined) {
                Pack<float> f;
                f.v = *reinterpret_cast<const float4*>(line + part * 32 + col);
#pragma unroll
                for (int i = 0; i < 16; i++) a[i] = f.s[i % 4];
            } else if (target.epilogue.steps >= 1 << 16) {
                x.load(a, part, target.rows - row, inside); // in flight while sums are copied
            }
            if (target.epilogue.steps >= 2 << 16) y.load(b, part, target.rows - row, inside);
            bring(sums, by, part, memory);
            if (s.halves & HALF_X) widen<K::F16>(a);
            if (s.halves & HALF_Y) widen<K::F16>(b);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                Pack<float> f;
                f.v = *reinterpret_cast<const float4*>(memory + (row + 4 * u) * Part::LD + col);
#pragma unroll
                for (int e = 0; e < 4; e++) v[4 * u + e] = f.s[e];
            }
            if (target.epilogue.steps == BIAS_RECTIFIER) {
#pragma unroll
                for (int i = 0; i < 16; i++) v[i] = rectified(add(v[i], a[i]));
            } else {
                finish(target.epilogue.steps & 0xffff, v, a, b);
            }
#pragma unroll
            for (int u = 0; u < 4; u++) {
                if (row + 4 * u >= target.rows) continue;
                float* const to = q + 4 * u * s.ld;
                if (s.halves & HALF_ALONE) {
                } else if (target.wide) {
                    if (inside > 0) *reinterpret_cast<float4*>(to) = make_float4(v[4 * u], v[4 * u + 1], v[4 * u + 2], v[4 * u + 3]);
                } else {
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (e < inside) to[e] = v[4 * u + e];
                }
                if (s.half && inside > 0)
                    *reinterpret_cast<uint2*>(s.half + (to - c)) = make_uint2(packed<K::F16>(v[4 * u], v[4 * u + 1]), packed<K::F16>(v[4 * u + 2], v[4 * u + 3]));
            }
        }
        return;
    }
#pragma unroll 1
    for (int part = 0; part < K::BN / 32; part++) {
        bring(sums, by, part, memory);
        const int col0 = part * 32;
        if (col0 + lane >= target.cols) continue;
#pragma unroll 4
        for (int r = 0; r < min(16, target.rows); r++) target.c[r * s.ld + col0 + lane] = memory[r * Part::LD + lane];
    }
}
