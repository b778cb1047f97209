// C = op(A) op(B) of small float32 matrices on the tensor cores of compute capability 9.0, in one launch: operands are rounded
// to TF32, BF16 or F16 as they are multiplied, sums are float32. Small products are latency-bound, so for a small K a block issues all of its
// loads up front.
//
// A block computes a tile of C over one split of K. cp.async copies 32-wide K slices of A and B to shared memory in their stored layout;
// STAGES slices are issued before the first mma.sync. As in matmul.cu, the blocks of a cluster reduce the splits of K (joined), in an
// order that does not depend on timing. Epilogues are those of epilogue.cuh.
//stheno:targets sm_90a ptx
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

// small computes a tile of a part of k. parts is the number of splits of chunk terms each.
template <int SIZE, bool F16, typename F, int JOIN>
__device__ __forceinline__ void small(const float* a, const float* b, float* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk,
                                      int parts, int transA, int transB, const Epilogue<float>& epilogue) {
    const int together = JOIN ? parts : 1;
    __shared__ u64 full; // the barrier of the sums that other blocks send
    if (together > 1) open_inbox(&full, F::TILE * 16);
    const Place at = Place::of<F::BM, F::BN, JOIN>(m, n, (int)batch, parts);
    const i64 k0 = at.split * chunk;
    const int terms = at.idle ? 0 : (int)max(min(k - k0, chunk), 0ll);
    float* const memory = reinterpret_cast<float*>(dynamic);
    float4* const inbox = reinterpret_cast<float4*>(memory + STAGES * F::STAGE);
    typename F::A pa;
    typename F::B pb;
    pa.at(a + at.matrix * strideA, m, lda, !transA, at.m0, k0);
    pb.at(b + at.matrix * strideB, n, ldb, transB, at.n0, k0);
    Target<float> target;
    target.rows = at.idle ? 0 : (int)min(m - at.m0, (i64)F::BM);
    target.cols = (int)min(n - at.n0, (i64)F::BN);
    target.down = n;
    target.across = 1;
    target.c = c + (JOIN ? at.matrix : at.split * batch + at.matrix) * m * n + at.m0 * n + at.n0;
    target.wide = n % 4 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
    target.epilogue = epilogue.from(at.matrix, at.m0, at.n0);
    float sum[F::MT][F::NT][4];
#pragma unroll
    for (int i = 0; i < F::VECTORS * 4; i++) sum[i / (F::NT * 4)][i / 4 % F::NT][i % 4] = 0;
    follow();
    F::template add<SIZE, F16>(sum, pa, pb, terms, memory);
    admit();

    // Each block of the tile adds up an equal share of it; the others send it their sums.
    const int log = 31 - __clz(F::TILE / together), share = 1 << log;
    if (together > 1) cluster_wait(); // all blocks have begun
#pragma unroll
    for (int v = 0; v < F::VECTORS; v++) {
        const int i = v * F::THREADS + threadIdx.x, to = i >> log;
        const float4 x = four(sum[v / F::NT][v % F::NT]);
        if (together > 1) send(at.rank - at.split + to, inbox + (at.split << log) + i - (to << log), x, &full);
        else inbox[i] = x; // for itself
    }
    // Epilogue operands are loaded while partial sums are in flight. The epilogue is in a loop, because its steps are many instructions
    // and instructions that run only once are slow.
    int row, col;
    float x[4] = {}, y[4] = {};
    const auto beside = [&](int i) {
        F::place((together > 1 ? at.split << log : 0) + i, row, col);
        const int inside = i < share && row < target.rows ? target.cols - col : 0;
        if (epilogue.steps >= 1 << 16) target.epilogue.x.template load<4>(x, row, col, inside);
        if (epilogue.steps >= 2 << 16) target.epilogue.y.template load<4>(y, row, col, inside);
    };
    beside(threadIdx.x);
    if (together > 1) await_inbox(&full);
#pragma unroll 1
    for (int i = threadIdx.x; i < share;) {
        Pack<float> v = {inbox[i]};
#pragma unroll 2
        for (int part = 1; part < together; part++) {
            const float4 w = inbox[(part << log) + i];
            v.v = make_float4(v.v.x + w.x, v.v.y + w.y, v.v.z + w.z, v.v.w + w.w);
        }
        if (epilogue.steps != 0) ::finish(epilogue.steps & 0xffff, v.s, x, y);
        target.put(row, col, v);
        i += F::THREADS;
        beside(i);
    }
}

// Other devices compute small products with all bits: the entry points are empty there.
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#define BLOCKS_OF_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define ON_HOPPER(...)
#define BLOCKS_OF_CLUSTER(n)
#endif
#define ARGUMENTS                                                                                                                             \
    const float *a, const float *b, float *c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int parts, \
        int transA, int transB, EPILOGUE_ARGUMENTS(float)
#define RUN(SIZE, F16, JOIN, ...) \
    small<SIZE, F16, Tile<__VA_ARGS__>, JOIN>(a, b, c, m, n, k, lda, ldb, strideA, strideB, batch, chunk, parts, transA, transB, EPILOGUE(float));
#define ENTRIES(name, SIZE, F16, BLOCKS, JOIN, ...)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(Tile<__VA_ARGS__>::THREADS, BLOCKS) matmul_mma_small_##name(ARGUMENTS) { ON_HOPPER(RUN(SIZE, F16, 0, __VA_ARGS__)) } \
    extern "C" __global__ void BLOCKS_OF_CLUSTER(JOIN) __launch_bounds__(Tile<__VA_ARGS__>::THREADS, BLOCKS) matmul_mma_small_joined_##name(ARGUMENTS) {               \
        ON_HOPPER(RUN(SIZE, F16, JOIN, __VA_ARGS__))                                                                                                   \
    }
// Bytes of a rounded element, whether it is in F16, blocks on a multiprocessor (0: not said; with that tf32 spills) and of a cluster; tile, warps down and across.
ENTRIES(tf32, 4, false, 4, 8, 32, 32, 2, 2)
ENTRIES(bf16, 2, false, 0, 8, 32, 32, 2, 2)
ENTRIES(f16, 2, true, 0, 8, 32, 32, 2, 2)
