// The parts of the attention kernels that run on every device: FMA units, tiles in shared memory.
//
// A block has 256 threads, 16 x 16, and tiles of SIDE = 16 R rows. Thread (x, y) computes the rows y R to y R + R - 1 of a SIDE x SIDE tile in the
// columns x, x + 16, ...; of a tile of rows of d elements it computes the columns 4 x to 4 x + 3 of each 64. A block computes S times 64 columns of its results, one of the
// SLICES of these. Elements in memory are of T, or in 16 bits, which are converted to T.
#pragma once
#include "follow.cuh"
#include "indices.cuh"
typedef long long i64;

#define INFINITY __int_as_float(0x7f800000)

struct BF16 { unsigned short bits; };
struct F16 { unsigned short bits; };

__device__ __forceinline__ void load_as(float& to, BF16 x) { to = __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ void load_as(float& to, F16 x) { asm("cvt.f32.f16 %0, %1;" : "=f"(to) : "h"(x.bits)); }
__device__ __forceinline__ void store_as(F16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ __forceinline__ void store_as(BF16& to, float x) {
    const unsigned bits = __float_as_uint(x);
    to.bits = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Strides are the elements between batches, heads and rows of an operand.
struct Strides { i64 batch, head, row; };

// Problem is the part of the arguments that all kernels have. Query head h reads key head h / group.
template <typename T> struct Problem {
    int heads, group, queries, keys, dim;
    T scale;
    int causal;
    Indices counts; // how many keys a query sees; without counts their bytes are 0
    i64 countBatch, countRow;
    // limit is the number of keys that a query sees.
    __device__ __forceinline__ int limit(int batch, int query) const {
        i64 n = keys;
        if (causal) n = min(n, (i64)query + keys - queries + 1);
        if (counts.bytes) n = min(n, counts[batch * countBatch + query * countRow]);
        return (int)max(n, 0ll);
    }
};

// Rows are those of one head.
template <typename E> struct Rows {
    E* x;
    i64 stride;
    int count, dim;
    __device__ __forceinline__ Rows(E* base, Strides s, int batch, int head, int count, int dim) : x(base + batch * s.batch + head * s.head), stride(s.row), count(count), dim(dim) {}
};

// How the elements of an operand are stored: as they are computed, or in 16 bits.
enum { WHOLE, IN_BF16, IN_F16 };

// Head is the rows of one head of an operand.
template <typename T> struct Head {
    unsigned char* x;
    i64 stride;
    int count, dim, stored;
    __device__ __forceinline__ Head(const void* base, Strides s, int batch, int head, int count, int dim, int stored)
        : x((unsigned char*)base + (batch * s.batch + head * s.head) * (stored == WHOLE ? sizeof(T) : 2)), stride(s.row), count(count), dim(dim), stored(stored) {}
    __device__ __forceinline__ T read(i64 i) const { return stored == WHOLE ? ((const T*)x)[i] : half(i); }
    __device__ __forceinline__ T half(i64 i) const {
        const unsigned short bits = ((const unsigned short*)x)[i];
        float b, h;
        load_as(b, BF16{bits}), load_as(h, F16{bits});
        return stored == IN_BF16 ? b : h;
    }
    __device__ __forceinline__ void write(i64 i, T value) const {
        if (stored == WHOLE) {
            ((T*)x)[i] = value;
            return;
        }
        BF16 b;
        F16 h;
        store_as(b, (float)value), store_as(h, (float)value);
        ((unsigned short*)x)[i] = stored == IN_BF16 ? b.bits : h.bits;
    }
};

template <typename T> struct alignas(16) Four { T v[4]; };

template <typename T, int R> struct Block {
    static constexpr int SIDE = 16 * R, SLICE = 32, PITCH = SLICE + 4, WIDE = 64;
    union Stage {
        T rows[2][SIDE * PITCH]; // slices of SLICE columns
        T wide[SIDE * WIDE];
    };
    struct Memory {
        Stage stage;
        T weights[SIDE * (SIDE + 4)];
        int limits[SIDE];
        int ends[2]; // the least and the largest limit
    };
    static __device__ __forceinline__ int x() { return threadIdx.x % 16; }
    static __device__ __forceinline__ int y() { return threadIdx.x / 16; }

    // stage copies columns c0 to c0 + W - 1 of SIDE rows from row t0 on, 0 outside.
    template <int W> static __device__ __forceinline__ void stage(T* to, int pitch, const Head<T>& from, int t0, int c0) {
        constexpr int STEP = 256 / W;
        const int column = threadIdx.x % W, first = threadIdx.x / W, rows = c0 + column < from.dim ? from.count - t0 - first : 0;
        i64 at = (t0 + first) * from.stride + c0 + column;
        to += first * pitch + column;
        if (sizeof(T) == 8 || from.stored == WHOLE) {
            const T* x = (const T*)from.x + at;
#pragma unroll
            for (int i = 0; i < SIDE; i += STEP, x += STEP * from.stride) {
                T value = 0;
                if (i < rows) value = *x;
                to[i * pitch] = value;
            }
        } else {
#pragma unroll 2
            for (int i = 0; i < SIDE; i += STEP, at += STEP * from.stride) to[i * pitch] = i < rows ? from.half(at) : T(0);
        }
    }

    // scores computes s[r][c] = the product of row a0 + y R + r of a and row b0 + x + 16 c of b, for c < C.
    template <int C = R> static __device__ __forceinline__ void scores(T (&s)[R][R], Memory& m, const Head<T>& a, int a0, const Head<T>& b, int b0) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < C; c++) s[r][c] = 0;
#pragma unroll 1
        for (int c0 = 0; c0 < a.dim; c0 += SLICE) {
            __syncthreads();
            stage<SLICE>(m.stage.rows[0], PITCH, a, a0, c0);
            stage<SLICE>(m.stage.rows[1], PITCH, b, b0, c0);
            __syncthreads();
#pragma unroll 2
            for (int k = 0; k < SLICE; k += 4) {
                Four<T> u[R], w[C];
#pragma unroll
                for (int r = 0; r < R; r++) {
                    u[r] = *reinterpret_cast<const Four<T>*>(&m.stage.rows[0][(y() * R + r) * PITCH + k]);
                    if (r < C) w[r] = *reinterpret_cast<const Four<T>*>(&m.stage.rows[1][(x() + 16 * r) * PITCH + k]);
                }
#pragma unroll
                for (int l = 0; l < 4; l++)
#pragma unroll
                    for (int r = 0; r < R; r++)
#pragma unroll
                        for (int c = 0; c < C; c++) s[r][c] += u[r].v[l] * w[c].v[l];
            }
        }
    }

    // keep stores a tile of weights for accumulate.
    static __device__ __forceinline__ void keep(Memory& m, const T (&s)[R][R]) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < R; c++) m.weights[(y() * R + r) * (SIDE + 4) + x() + 16 * c] = s[r][c];
    }

    // accumulate adds to row y R + r of sum the weights of that row times columns c0 on of rows b0 to b0 + SIDE - 1 of b. Unless whole, pairs of a row and a column of the
    // weights that are not seen add nothing: 0 times an infinity would be NaN. No row of the weights sees columns from n on.
    template <int S, typename Seen>
    static __device__ __forceinline__ void accumulate(T (&sum)[R][S][4], Memory& m, const Head<T>& b, int b0, int c0, bool whole, Seen seen, int n = SIDE) {
#pragma unroll
        for (int s = 0; s < S; s++) {
            if (c0 + s * WIDE >= b.dim) break;
            __syncthreads();
            stage<WIDE>(m.stage.wide, WIDE, b, b0, c0 + s * WIDE);
            __syncthreads();
            if (!whole) {
#pragma unroll 2
                for (int j = 0; j < min(n, SIDE); j++) {
                    const Four<T> v = *reinterpret_cast<const Four<T>*>(&m.stage.wide[j * WIDE + 4 * x()]);
#pragma unroll
                    for (int r = 0; r < R; r++)
                        if (seen(y() * R + r, j)) add(sum[r][s], m.weights[(y() * R + r) * (SIDE + 4) + j], v);
                }
                continue;
            }
#pragma unroll 2
            for (int j = 0; j < SIDE; j += 4) {
                Four<T> w[R];
#pragma unroll
                for (int r = 0; r < R; r++) w[r] = *reinterpret_cast<const Four<T>*>(&m.weights[(y() * R + r) * (SIDE + 4) + j]);
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    const Four<T> v = *reinterpret_cast<const Four<T>*>(&m.stage.wide[(j + l) * WIDE + 4 * x()]);
#pragma unroll
                    for (int r = 0; r < R; r++) add(sum[r][s], w[r].v[l], v);
                }
            }
        }
    }
    static __device__ __forceinline__ void add(T (&sum)[4], T weight, const Four<T>& v) {
#pragma unroll
        for (int e = 0; e < 4; e++) sum[e] += weight * v.v[e];
    }

    // store writes columns c0 on of SIDE rows from t0 on.
    template <int S> static __device__ __forceinline__ void store(const Head<T>& to, Memory& m, int t0, int c0, const T (&sum)[R][S][4], const T (&factor)[R]) {
#pragma unroll
        for (int s = 0; s < S; s++) {
            __syncthreads();
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int e = 0; e < 4; e++) m.stage.wide[(y() * R + r) * WIDE + 4 * x() + e] = sum[r][s][e] * factor[r];
            __syncthreads();
            const int column = threadIdx.x % WIDE, c = c0 + s * WIDE + column;
#pragma unroll 2
            for (int i = threadIdx.x / WIDE; i < SIDE; i += 256 / WIDE)
                if (t0 + i < to.count && c < to.dim) to.write((t0 + i) * to.stride + c, m.stage.wide[i * WIDE + column]);
        }
    }

    // limits computes the limits of SIDE queries from t0 on, 0 past the last.
    static __device__ __forceinline__ void limits(Memory& m, const Problem<T>& p, int batch, int t0) {
        __syncthreads();
        if (threadIdx.x < 2) m.ends[threadIdx.x] = threadIdx.x ? 0 : p.keys;
        __syncthreads();
        if (threadIdx.x < SIDE) {
            const int query = t0 + threadIdx.x, limit = query < p.queries ? p.limit(batch, query) : 0;
            m.limits[threadIdx.x] = limit;
            atomicMin(&m.ends[0], limit);
            atomicMax(&m.ends[1], limit);
        }
        __syncthreads();
    }
};

#define STRIDES(name) const i64 name##_batch, const i64 name##_head, const i64 name##_row
#define STRIDES_OF(name) Strides{name##_batch, name##_head, name##_row}
#define PROBLEM(T)                                                                                                                                     \
    const int batches, const int heads, const int group, const int queries, const int keys, const int dim, const T scale, const int causal,            \
        const unsigned char *counts, const int countBytes, const i64 countBatch, const i64 countRow
#define PROBLEM_OF(T) Problem<T>{heads, group, queries, keys, dim, scale, causal, Indices{counts, countBytes}, countBatch, countRow}
// SLICES is the number of blocks that compute the columns of a tile of results.
#define SLICES(S) ((p.dim + 64 * S - 1) / (64 * S))
