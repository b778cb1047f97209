// Tiles of products that mma.sync multiplies from float32 operands in shared memory: operands are rounded to TF32, BF16 or F16 as fragments are loaded, sums are float32.
#pragma once
#include "matmul_sliced.cuh"
#include "matmul_f16.cuh"

constexpr int BK = 32, STAGES = 4;

// Lines is a thread's share of the copies of X x BK slices of a matrix with elements (x, l) to rows of shared memory. With `along`, l is
// the contiguous dimension of the matrix; otherwise x is. Elements outside the matrix become zeros.
template <int X, int THREADS> struct Lines {
    // Rows are so far apart that the loads of a warp meet in no bank: 8 x, and 4 times two terms.
    template <bool ALONG> static constexpr int LD = ALONG ? BK + 8 : X + 4;
    static constexpr int SIZE = X * LD<true>;
    static_assert(BK * LD<false> <= SIZE, "a piece fits either way");
    const float* p; // the thread's first element
    i64 down, across;  // in memory, from one of the thread's elements to the next, and from piece to piece
    int row, col, to, step, next, xs; // its place in the piece and in shared memory, how far the next one is there and in rows; the x inside the matrix
    bool along, wide;

    __device__ __forceinline__ void at(const float* matrix, i64 size, i64 ld, bool along, i64 x0, i64 l0) {
        this->along = along;
        wide = ld % 4 == 0 && reinterpret_cast<u64>(matrix) % 16 == 0;
        const int i = threadIdx.x * (wide ? 4 : 1), cols = along ? BK : X, pitch = along ? LD<true> : LD<false>;
        row = i / cols;
        col = i % cols;
        to = row * pitch + col;
        step = THREADS * (wide ? 4 : 1) / cols;
        next = step * pitch;
        xs = (int)min(size - x0, (i64)X);
        p = matrix + ((along ? x0 : l0) + row) * ld + (along ? l0 : x0) + col;
        down = step * ld;
        across = along ? BK : BK * ld;
    }
    // fetch starts the copies of the next piece, of which that many terms are inside the matrix.
    __device__ __forceinline__ void fetch(float* s, int left) {
        static_assert(THREADS % X == 0 && THREADS % BK == 0 && X * BK % (THREADS * 4) == 0, "threads share a piece evenly");
        const float* from = p;
        p += across;
        s += to;
        const int rows = col < (along ? left : xs) ? (along ? xs : left) - row : 0;
        if (wide) {
#pragma unroll
            for (int i = 0; i < X * BK / THREADS / 4; i++, from += down, s += next) copy_far((u32)__cvta_generic_to_shared(s), from, i * step < rows);
        } else {
#pragma unroll 4
            for (int i = 0; i < X * BK / THREADS; i++, from += down, s += next) async_copy(s, from, i * step < rows);
        }
    }
    // pair is terms 2 t and 2 t + 1 of eight from l on, of line x + g, for lane 4 g + t: s is where those of 0 and 0 begin.
    template <bool ALONG> static __device__ __forceinline__ float2 pair(const float* s, int x, int l) {
        if constexpr (ALONG) return *reinterpret_cast<const float2*>(s + x * LD<true> + l);
        return make_float2(s[l * LD<false> + x], s[(l + 1) * LD<false> + x]);
    }
    template <bool ALONG> static __device__ __forceinline__ const float* first(const float* s, int x) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        return ALONG ? s + (x + g) * LD<true> + 2 * t : s + 2 * t * LD<false> + x + g;
    }
};

// half and tf32 round to nearest, ties to even: to BF16 or, with F16, F16, and to TF32.
template <bool F16> __device__ __forceinline__ u32 half(float2 x) {
    u32 v;
    if constexpr (F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(x.y), "f"(x.x));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(x.y), "f"(x.x));
    return v;
}
__device__ __forceinline__ u32 tf32(float x) {
    u32 v;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
    return v;
}

// Tile is the shape of a block's work: DOWN x ACROSS warps share a tile of BM x BN.
template <int BM_, int BN_, int DOWN, int ACROSS> struct Tile {
    static constexpr int BM = BM_, BN = BN_, THREADS = DOWN * ACROSS * 32, WM = BM / DOWN, WN = BN / ACROSS, MT = WM / 16, NT = WN / 8;
    using A = Lines<BM, THREADS>;
    using B = Lines<BN, THREADS>;
    static constexpr int STAGE = A::SIZE + B::SIZE, VECTORS = MT * NT, TILE = BM * BN / 4; // vectors of four sums: of a thread, of the tile

    // place returns where in the tile vector i / THREADS of thread i % THREADS is.
    static __device__ __forceinline__ void place(int i, int& row, int& col) {
        const int v = i / THREADS, warp = i % THREADS / 32, lane = i % 32;
        row = warp % DOWN * WM + v / NT * 16 + lane / 4 + lane % 2 * 8;
        col = warp / DOWN * WN + v % NT * 8 + lane % 4 / 2 * 4;
    }
    template <int SIZE, bool F16, bool ALONG_A, bool ALONG_B> static __device__ __forceinline__ void multiply(float (&sum)[MT][NT][4], const float* s) {
        const int warp = threadIdx.x / 32;
        const float *const pa = A::template first<ALONG_A>(s, warp % DOWN * WM), *const pb = B::template first<ALONG_B>(s + A::SIZE, warp / DOWN * WN);
        constexpr int STEP = 32 / SIZE;
#pragma unroll
        for (int l = 0; l < BK; l += STEP) {
            u32 a[MT][4], b[NT][2];
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float2 x = A::template pair<ALONG_A>(pa, i * 16 + r * 8, l);
                    if (SIZE == 4) {
                        a[i][r] = tf32(x.x);
                        a[i][r + 2] = tf32(x.y);
                    } else {
                        a[i][r] = half<F16>(x);
                        a[i][r + 2] = half<F16>(A::template pair<ALONG_A>(pa, i * 16 + r * 8, l + 8));
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const float2 x = B::template pair<ALONG_B>(pb, j * 8, l);
                b[j][0] = SIZE == 4 ? tf32(x.x) : half<F16>(x);
                b[j][1] = SIZE == 4 ? tf32(x.y) : half<F16>(B::template pair<ALONG_B>(pb, j * 8, l + 8));
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) mma_of<SIZE, F16>(sum[i][j], a[i], b[j][0], b[j][1]);
        }
    }
    // add adds the products of so many terms.
    template <int SIZE, bool F16> static __device__ __forceinline__ void add(float (&sum)[MT][NT][4], A a, B b, int terms, float* memory) {
        float *s = memory, *into = memory;
#pragma unroll 1
        for (int left = terms + (STAGES - 1) * BK; left > 0; left -= BK) { // the terms that are not multiplied, once those are on their way
            if (left < terms) {
                arrived<STAGES - 2>(); // this thread's copies of the stage; the barrier: everyone's
                __syncthreads();       // and everyone has multiplied the stage that is filled now
            }
            const int fetched = left - (STAGES - 1) * BK;
            if (fetched > 0) {
                a.fetch(into, fetched);
                b.fetch(into + A::SIZE, fetched);
                into = into == memory + (STAGES - 1) * STAGE ? memory : into + STAGE;
            }
            commit();
            if (left > terms) continue;
            if (left == terms) {
                arrived<STAGES - 1>();
                __syncthreads();
            }
            if (a.along) {
                if (b.along) multiply<SIZE, F16, true, true>(sum, s);
                else multiply<SIZE, F16, true, false>(sum, s);
            } else {
                if (b.along) multiply<SIZE, F16, false, true>(sum, s);
                else multiply<SIZE, F16, false, false>(sum, s);
            }
            s = s == memory + (STAGES - 1) * STAGE ? memory : s + STAGE;
        }
    }
};

// four is four neighbouring sums of a row, of the four of two rows that a lane has: lanes that are a pair exchange two.
__device__ __forceinline__ float4 four(const float (&d)[4]) {
    const bool odd = threadIdx.x % 2;
    const float x = __shfl_xor_sync(0xffffffff, odd ? d[0] : d[2], 1), y = __shfl_xor_sync(0xffffffff, odd ? d[1] : d[3], 1);
    return odd ? make_float4(x, y, d[2], d[3]) : make_float4(d[0], d[1], x, y);
}
