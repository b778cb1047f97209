// C = op(A) op(B) in float32 on the tensor cores of compute capability 9.0, in one launch: BF16 parts of both operands are made in registers. This is for products that move
// too much, or too few rows, to have their operands split by a launch before (matmul_hopper.cu): C of few rows, and batches.
//
// A block computes a tile of 64 x 128 elements of C. K slices of 32 terms of A and B are copied to shared memory in their stored
// layout (cp.async). All threads split the slice of A into three BF16 matrices in shared memory, x = x0 + x1 + x2. A warp loads its 32
// columns of B to registers, splits them there and multiplies six pairs of parts (mma.sync): a0 b0, and the low ones a0 b1, a1 b0, a0 b2, a1 b1, a2 b0.
// The tensor cores truncate, so they accumulate 16 terms, low products first; an addition that rounds adds these to the sums.
//
// Parts lose bits of elements below 2^-104. Where a warp finds such elements, parts are of the elements times 2^23. A slice that has very large elements, or large ones beside parts times 2^23, is
// multiplied by FMA.
// An element that is not finite is x2, beside a finite x0 of its sign: so no term is 0 times infinity where it should not be.
//
// Bound: six products of mma.sync, for C of up to 32 rows the memory. K is split as in matmul.cu.
//stheno:targets sm_90a ptx
#include "matmul_sliced.cuh"
#include "mma.cuh"

#if __CUDA_ARCH__ == 900
namespace single {

constexpr int BM = 64, BN = 128, BK = 32, THREADS = 128;
constexpr int PITCH = BN + 4; // of the sums in shared memory

// copy starts a copy of 4 W bytes to shared memory, of which the first are inside the matrix; the others become zeros.
template <int W> __device__ __forceinline__ void copy(u32 to, const float* from, int bytes) {
    if constexpr (W == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Slices are the K slices of X lines of a matrix with elements (x, l) and their copies in shared memory. With `along`, l is the
// contiguous dimension of the matrix; otherwise x is. Lanes that load a fragment use different banks: rows of x are not a multiple of 128 bytes; groups of
// four l are exchanged.
template <int X> struct Slices {
    static constexpr int PITCH = X + 8, SIZE = BK * PITCH; // elements from row to row where x is contiguous; of a slice
    const float* p;                                        // the thread's first element
    i64 ld;
    int xs, row, col; // lines inside the matrix; the thread's place in a slice, as it is stored
    bool along, wide;

    // place is where an element is; l is a multiple of 4 where four are loaded.
    static __device__ __forceinline__ int place(bool along, int x, int l) { return along ? x * BK + (l ^ (x & 7) * 4) : l * PITCH + x; }

    __device__ __forceinline__ void at(const float* matrix, i64 size, i64 ld, bool along, i64 x0, i64 l0) {
        p = matrix + (along ? x0 * ld + l0 : l0 * ld + x0);
        wide = ld % 4 == 0 && reinterpret_cast<unsigned long long>(p) % 16 == 0;
        this->ld = ld;
        this->along = along;
        xs = (int)min(size - x0, (i64)X);
        const int i = wide ? threadIdx.x * 4 : threadIdx.x, cols = along ? BK : X;
        row = i / cols;
        col = i % cols;
        p += row * ld + col;
    }
    template <int W> __device__ __forceinline__ void copies(u32 to, int rows, int cols) const {
        const int step = THREADS * W / (along ? BK : X), bytes = max(min(cols - col, W), 0) * 4;
        const u32 next = step * (along ? BK : PITCH) * 4; // bytes from copy to copy, but that every other one may be exchanged otherwise
        const u32 even = to + (along ? place(true, row, col) : place(false, col, row)) * 4;
        const u32 odd = to + (along ? place(true, row + step, col) : place(false, col, row + step)) * 4 - next;
        const float* from = p;
#pragma unroll
        for (int i = 0; i < X * BK / (THREADS * W); i++) {
            copy<W>((i % 2 ? odd : even) + i * next, from, row + i * step < rows ? bytes : 0);
            from += step * ld;
        }
    }
    // fetch starts the copies of the next slice, of which `left` terms are inside the matrix.
    __device__ __forceinline__ void fetch(u32 to, int left) {
        const int rows = along ? xs : left, cols = along ? left : xs;
        if (wide) copies<4>(to, rows, cols);
        else copies<1>(to, rows, cols);
        p += along ? BK : BK * ld;
    }
};

using A = Slices<BM>;
using B = Slices<BN>;
constexpr int PART = BM * BK / 2; // of a part of a slice of A, in words

// round gives x, in the lower half, and y in BF16.
__device__ __forceinline__ u32 round(float x, float y) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(y), "f"(x));
    return v;
}

// split makes the parts of x, in the lower halves, and of y.
__device__ __forceinline__ void split(float x, float y, u32& p0, u32& p1, u32& p2) {
    p0 = round(x, y);
    x -= __uint_as_float(p0 << 16);
    y -= __uint_as_float(p0 & 0xffff0000);
    p1 = round(x, y);
    x -= __uint_as_float(p1 << 16);
    y -= __uint_as_float(p1 & 0xffff0000);
    p2 = round(x, y);
}

// Met is what a warp has met in a slice: elements that are large, not finite or tiny, or too large for their parts. Parts of a slice with tiny elements or ones that are not finite are of the elements
// times 2^23, and must not meet large ones.
enum Met { NONE = 0, LARGE = 1, SCALED = 2, HUGE_ = 4 };

// Extent finds what elements are.
struct Extent {
    static constexpr u32 LEAST = (127 - 104) << 24; // 2^-104 without its sign
    float most = 0;                                 // or NaN
    u32 least = 0xffffffff;
    __device__ __forceinline__ void add(float x) {
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(fabsf(x)));
        least = min(least, 2 * __float_as_uint(x) - 1); // 0 gives the largest number
    }
    template <bool scaled> __device__ __forceinline__ Met met() const {
        if (scaled) return __any_sync(0xffffffff, most >= 0x1p60f) ? HUGE_ : SCALED;
        if (__any_sync(0xffffffff, !(most < 0x1p126f) || least < LEAST - 1)) return SCALED;
        return __any_sync(0xffffffff, most >= 0x1p44f) ? LARGE : NONE;
    }
    // split adds x and y and makes their parts.
    template <bool scaled> __device__ __forceinline__ void split(float x, float y, u32& p0, u32& p1, u32& p2) {
        const bool finite[2] = {fabsf(x) <= 3.4028234664e38f, fabsf(y) <= 3.4028234664e38f};
        const u32 rest = round(finite[0] ? 0 : x, finite[1] ? 0 : y);
        if (scaled) x = finite[0] ? x * 0x1p23f : copysignf(0x1p-100f, x), y = finite[1] ? y * 0x1p23f : copysignf(0x1p-100f, y);
        add(x);
        add(y);
        single::split(x, y, p0, p1, p2);
        if (scaled) p2 |= rest;
    }
};

// Block computes a tile. Terms of a slice have any order that is the same in both operands: slot j of the lanes with lane % 4 = t is term(t, j).
// Two mma.sync multiply slots 0 to 3 and 4 to 7.
//
// The loop is compiled for each layout of B: `along` is whether rows of B run along K.
template <bool along> struct Block {
    float sum[4][2][2][4]; // by 16 rows of C, 8 of these, 16 columns, and elements of mma.sync
    int warp, g, t;
    bool alongA; // whether rows of A run along K

    __device__ __forceinline__ int term(int j) const { return along ? 8 * t + j : 4 * j + t; }
    // column is the lane's column r of the tile.
    __device__ __forceinline__ int column(int r) const { return warp * 32 + (along ? g + 8 * r : 4 * g + r); }

    __device__ __forceinline__ Block(bool alongA) : warp(threadIdx.x / 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), alongA(alongA) {
#pragma unroll
        for (int i = 0; i < 64; i++) sum[i / 16][i / 8 % 2][i / 4 % 2][i % 4] = 0;
    }
    // parts splits a slice of A to memory. It returns what the warp met.
    template <bool scaled> __device__ __forceinline__ Met parts(u32* to, const float* a, int rows) const {
        Extent extent;
#pragma unroll
        for (int row = threadIdx.x / 4; row < BM; row += THREADS / 4) {
            if (row >= rows) break;
            float x[8];
            if (along && alongA) {
#pragma unroll
                for (int j = 0; j < 8; j += 4) *reinterpret_cast<float4*>(x + j) = *reinterpret_cast<const float4*>(a + A::place(true, row, 8 * t + j));
            } else {
#pragma unroll
                for (int j = 0; j < 8; j++) x[j] = a[A::place(alongA, row, term(j))];
            }
            u32 p[3][4];
#pragma unroll
            for (int j = 0; j < 8; j += 2) extent.split<scaled>(x[j], x[j + 1], p[0][j / 2], p[1][j / 2], p[2][j / 2]);
#pragma unroll
            for (int q = 0; q < 3; q++) *reinterpret_cast<uint4*>(to + q * PART + row * 16 + t * 4) = make_uint4(p[q][0], p[q][1], p[q][2], p[q][3]);
        }
        return extent.met<scaled>();
    }
    // exact adds the products of a slice by FMA.
    __device__ __forceinline__ void exact(const float* a, const float* b, int pairs) {
#pragma unroll 1
        for (int l = 0; l < BK; l++) {
            float y[4];
#pragma unroll
            for (int r = 0; r < 4; r++) y[r] = b[B::place(along, column(r), l)];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (c >= pairs) break;
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int row = c * 16 + n / 2 * 8 + t * 2 + n % 2;
                    const float x = a[A::place(alongA, row, l)];
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        float& s = sum[c][n / 2][r / 2][r % 2 * 2 + n % 2];
                        s = fmaf(x, y[r], s);
                    }
                }
            }
        }
    }
    // columns splits the warp's columns of a slice of B. It returns what the warp met.
    template <bool scaled> __device__ __forceinline__ Met columns(u32 (&y)[3][2][2][4], const float* b) const {
        Extent extent;
        float x[4][8];
        if (along) {
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int j = 0; j < 8; j += 4) *reinterpret_cast<float4*>(x[r] + j) = *reinterpret_cast<const float4*>(b + B::place(true, column(r), 8 * t + j));
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float4 v = *reinterpret_cast<const float4*>(b + B::place(false, column(0), term(j)));
                x[0][j] = v.x, x[1][j] = v.y, x[2][j] = v.z, x[3][j] = v.w;
            }
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                const int i = j / 2 % 2 * 2 + r % 2;
                extent.split<scaled>(x[r][j], x[r][j + 1], y[0][r / 2][j / 4][i], y[1][r / 2][j / 4][i], y[2][r / 2][j / 4][i]);
            }
        return extent.met<scaled>();
    }
    // multiply adds the products of a slice, with A in parts as well, of which each warp has split every fourth 8 rows.
    __device__ __forceinline__ void multiply(const u32* parts, const float* a, const float* b, int pairs, int4 met) {
        u32 y[3][2][2][4]; // by part, 16 columns, 16 terms, and registers of mma.sync
        Met here = columns<false>(y, b);
        if (here == SCALED) here = columns<true>(y, b);
        if (const int all = met.x | met.y | met.z | met.w | here; all >= HUGE_ || all == (LARGE | SCALED)) {
            exact(a, b, pairs);
            return;
        }
        const auto unit = [&](int of) { return (of == SCALED ? 0x1p-23f : 1) * (here == SCALED ? 0x1p-23f : 1); };
        const float units[4] = {unit(met.x), unit(met.y), unit(met.z), unit(met.w)};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c >= pairs) break;
            u32 x[3][2][4]; // by part and 8 rows
#pragma unroll
            for (int q = 0; q < 3; q++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const uint4 v = *reinterpret_cast<const uint4*>(parts + q * PART + (c * 16 + n * 8 + g) * 16 + t * 4);
                    x[q][n][0] = v.x, x[q][n][1] = v.y, x[q][n][2] = v.z, x[q][n][3] = v.w;
                }
            float part[2][2][2][4] = {}; // by 16 terms, 8 rows, 16 columns
            const auto add = [&](int i, int j) { // the products of part i of A and part j of B
#pragma unroll
                for (int l = 0; l < 2; l++)
#pragma unroll
                    for (int n = 0; n < 2; n++)
#pragma unroll
                        for (int m = 0; m < 2; m++) mma<2>(part[l][n][m], y[j][m][l], x[i][n][2 * l], x[i][n][2 * l + 1]);
            };
            add(0, 2);
            add(1, 1);
            add(2, 0);
            add(0, 1);
            add(1, 0);
            add(0, 0);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int n = i / 8, m = i / 4 % 2, e = i % 4;
                sum[c][n][m][e] = fmaf(part[0][n][m][e] + part[1][n][m][e], units[(2 * c + n) % 4], sum[c][n][m][e]);
            }
        }
    }
    // run adds up so many terms. Slices of A are copied a step before those of B, since they are split a step before they are multiplied.
    __device__ __forceinline__ void run(A& a, B& b, int terms, float* memory) {
        __shared__ int4 met[2]; // by warps in slices of A
        float *const slicesA = memory, *const slicesB = slicesA + 4 * A::SIZE;
        u32* const split = reinterpret_cast<u32*>(slicesB + 3 * B::SIZE);
        const int steps = (terms + BK - 1) / BK, rows = (a.xs + 15) / 16 * 16;
        int into = 2, now = 0; // slices of B that are copied and multiplied
#pragma unroll 1
        for (int i = -3; i < steps; i++) {
            arrived<1>();    // this thread's copies of the slices of this step
            __syncthreads(); // everyone's; the parts of this slice are stored, and everyone has multiplied the slice before
            if (i + 3 < steps) a.fetch((u32)__cvta_generic_to_shared(slicesA + (i + 3) % 4 * A::SIZE), terms - (i + 3) * BK);
            if (i >= -2 && i + 2 < steps) b.fetch((u32)__cvta_generic_to_shared(slicesB + into * B::SIZE), terms - (i + 2) * BK);
            into = into == 2 ? 0 : into + 1;
            commit();
            if (i >= -1 && i + 1 < steps) {
                u32* const to = split + (i + 1) % 2 * 3 * PART;
                const float* const from = slicesA + (i + 1) % 4 * A::SIZE;
                Met here = parts<false>(to, from, rows);
                if (here == SCALED) here = parts<true>(to, from, rows);
                if (threadIdx.x % 32 == 0) reinterpret_cast<int*>(met + (i + 1) % 2)[warp] = here;
            }
            if (i >= 0) {
                multiply(split + i % 2 * 3 * PART, slicesA + i % 4 * A::SIZE, slicesB + now * B::SIZE, rows / 16, met[i % 2]);
                now = now == 2 ? 0 : now + 1;
            }
        }
        arrived<0>();
        __syncthreads();
    }
    // gather stores the sums to shared memory, rows of PITCH.
    __device__ __forceinline__ void gather(float* memory) const {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int c = i / 4, n = i / 2 % 2, e = i % 2;
            float* const row = memory + (c * 16 + n * 8 + t * 2 + e) * PITCH;
            if (along) {
#pragma unroll
                for (int r = 0; r < 4; r++) row[column(r)] = sum[c][n][r / 2][r % 2 * 2 + e];
            } else {
                *reinterpret_cast<float4*>(row + column(0)) = make_float4(sum[c][n][0][e], sum[c][n][0][2 + e], sum[c][n][1][e], sum[c][n][1][2 + e]);
            }
        }
        __syncthreads();
    }
};

// multiply stores the sums of so many terms to shared memory.
template <bool along> __device__ __forceinline__ void multiply(A& a, B& b, int terms, float* memory) {
    Block<along> block(a.along);
    b.along = along;
    block.run(a, b, terms, memory);
    admit();
    block.gather(memory);
}

} // namespace single
#endif

extern "C" __global__ void __launch_bounds__(128, 2)
    matmul_mma_single(const float* a, const float* b, float* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int parts,
                      int transA, int transB, int transC, EPILOGUE_ARGUMENTS(float)) {
#if __CUDA_ARCH__ == 900
    using namespace single;
    const Place at = Place::of<BM, BN, 0>(m, n, (int)batch, parts);
    const i64 k0 = at.split * chunk;
    const int terms = (int)max(min(k - k0, chunk), 0ll); // the plan keeps chunk below 2^30
    float* const memory = reinterpret_cast<float*>(dynamic);
    A pa;
    B pb;
    pa.at(a + at.matrix * strideA, m, lda, !transA, at.m0, k0);
    pb.at(b + at.matrix * strideB, n, ldb, transB, at.n0, k0);
    follow();
    if (transB) multiply<true>(pa, pb, terms, memory);
    else multiply<false>(pa, pb, terms, memory);

    Target<float> target;
    target.rows = pa.xs;
    target.cols = pb.xs;
    target.down = transC ? 1 : n;
    target.across = transC ? m : 1;
    target.c = c + (at.split * batch + at.matrix) * m * n + at.m0 * target.down + at.n0 * target.across;
    target.wide = !transC && n % 4 == 0 && reinterpret_cast<unsigned long long>(c) % 16 == 0;
    target.epilogue = EPILOGUE(float).from(at.matrix, at.m0, at.n0);
    if (target.wide || steps != 0) {
#pragma unroll 1
        for (int i = threadIdx.x; i < BM * BN / 4; i += THREADS) {
            const int row = transC ? i % BM : i / (BN / 4), col = (transC ? i / BM : i % (BN / 4)) * 4;
            Pack<float> v[1];
            v[0].v = *reinterpret_cast<const float4*>(memory + row * PITCH + col);
            if (steps != 0) target.finish({row}, {col}, v);
            else target.put(row, col, v[0]);
        }
    } else { // lanes store contiguous elements
#pragma unroll 2
        for (int i = threadIdx.x; i < BM * BN; i += THREADS) {
            const int row = transC ? i % BM : i / BN, col = transC ? i / BM : i % BN;
            if (row < target.rows && col < target.cols) target.c[row * target.down + col * target.across] = memory[row * PITCH + col];
        }
    }
#endif
}
