// C = op(A) op(B): c[i][j] = sum over l of opA[i][l] * opB[l][j], i in [0, m),
// j in [0, n), l in [0, k), batched. op is the matrix or its transpose; all
// matrices are row-major. float32 sums in float32, float64 in float64, by FMA.
//
// tile: matrix x matrix. A block computes a BM x BN tile of C. It walks over k
// in steps of BK: all its threads fetch a BM x BK piece of A and a BK x BN piece
// of B into registers while they multiply the pieces fetched before, which lie in
// shared memory, k first. So each element that is read from global memory is used
// BN (or BM) times. A thread holds TM x TN elements of C in registers and reads
// TM + TN elements from shared memory for each TM x TN multiply-adds; its rows
// and columns come in groups of 16 bytes, a warp's width apart, so that the reads
// of a warp hit every bank once. The transposes differ only in how a piece is
// fetched: a flag, the same for all threads. Tiles are numbered down groups of 8 rows, so that the blocks that run
// at one time share their rows of A and columns of B in the level-2 cache.
//
// rows, columns: matrix x vector. rows: one warp per row, for a matrix whose
// rows are summed; columns: one lane per 16 bytes of columns, the block's warps
// take rows in turn and their sums are added in order. Bound by memory.
//
// Large products on devices of compute capability 9 run on the tensor cores:
// matmul_tensor.cu.
//
// Where C has too few tiles to fill the device, k is cut into splits, each
// summed into its own copy of C in scratch memory; combine adds the copies in
// the order of the splits. No sum's order depends on timing.
#include "vector.cuh"

// Piece is a thread's share of a BX x BK piece of a matrix on its way from
// global to shared memory: N vectors of V elements. The matrix has elements
// (x, l). With along, the elements of one x lie side by side, else those of one l.
template <typename T, int BX, int BK, int THREADS, int V>
struct Piece {
    using U = typename Vec<T>::type;
    static constexpr int LD = BX + 4; // of shared memory: no bank conflicts in put
    static constexpr int N = BX * BK / V / THREADS;
    static_assert(N * V * THREADS == BX * BK && (V == 1 || N == 1 || THREADS % (2 * BX) == 0), "threads share the piece evenly");

    Pack<T> reg[N];        // element 0 alone where V is 1
    const T* p;            // the thread's first vector
    long long apart, next; // in memory: from one vector to the next, from piece to piece
    int x, l, dx, dl, xs;  // the first vector in the piece, the step between vectors, the x inside the matrix
    bool along;

    // at starts at element (x0, l0) of a matrix of size x. With vectors along l,
    // two lanes take 32 bytes (one sector) of an x.
    __device__ void at(const T* matrix, bool along, long long ld, long long x0, long long l0, long long size) {
        const int t = threadIdx.x;
        this->along = along;
        xs = (int)min(size - x0, (long long)BX);
        if (along) {
            x = V > 1 ? t / 2 % BX : t / BK;
            l = V > 1 ? (t % 2 + t / (2 * BX) * 2) * V : t % BK;
            dx = V > 1 ? 0 : THREADS / BK;
            dl = V > 1 ? THREADS / BX * V : 0;
            apart = dx * ld + dl;
            next = BK;
            p = matrix + (x0 + x) * ld + l0 + l;
        } else {
            x = t % (BX / V) * V;
            l = t / (BX / V);
            dx = 0;
            dl = THREADS * V / BX;
            apart = dl * ld;
            next = BK * ld;
            p = matrix + (l0 + l) * ld + x0 + x;
        }
    }

    // fetch reads the piece and steps to the next one; elements outside the
    // matrix are zero. left is the number of l inside it.
    __device__ void fetch(int left) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const bool inside = x + i * dx < xs && l + i * dl < left;
            const T* q = p + i * apart;
            if (V > 1) {
#pragma unroll
                for (int j = 0; j < V; j++) reg[i].s[j] = 0;
                if (inside) reg[i].v = *reinterpret_cast<const U*>(q);
            } else {
                reg[i].s[0] = inside ? *q : T(0);
            }
        }
        p += next;
    }

    // put writes the piece to shared memory, l first.
    __device__ void put(T* s) const {
        s += l * LD + x;
        const int step = dl * LD + dx;
        if (V > 1 && !along) {
#pragma unroll
            for (int i = 0; i < N; i++) *reinterpret_cast<U*>(s + i * step) = reg[i].v;
        } else {
#pragma unroll
            for (int i = 0; i < N; i++)
#pragma unroll
                for (int j = 0; j < V; j++) s[i * step + j * LD] = reg[i].s[j];
        }
    }
};

// Where is what a block computes: the tile of C at (m0, n0) of a matrix of the
// batch and a split of k. Tiles are numbered down groups of 8 rows of tiles.
template <int BM, int BN>
struct Where {
    long long m0, n0, matrix, split;
    __device__ Where(long long m, long long n, int batch) {
        constexpr int GROUP = 8;
        int block;
        asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block)); // volatile: computed anew at each use
        const int tilesM = (int)((m + BM - 1) / BM), tilesN = (int)((n + BN - 1) / BN), tiles = tilesM * tilesN;
        const int t = block % tiles, rest = block / tiles, in = t % (GROUP * tilesN);
        const int top = t / (GROUP * tilesN) * GROUP, rows = min(tilesM - top, GROUP);
        m0 = (long long)(top + in % rows) * BM;
        n0 = (long long)(in / rows) * BN;
        matrix = rest % batch;
        split = rest / batch;
    }
};

// tile computes one BM x BN tile of one split of one matrix of the batch. WM x WN
// warps, each LM x (32 / LM) lanes. VEC: rows of A, B and C start 16-byte aligned.
template <typename T, int BM, int BN, int BK, int WM, int WN, int LM, bool VEC>
__device__ void tile(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c,
                     long long m, long long n, long long k, long long lda, long long ldb,
                     long long strideA, long long strideB, long long batch, long long chunk, int transA, int transB) {
    constexpr int THREADS = WM * WN * 32, LN = 32 / LM, TM = BM / (WM * LM), TN = BN / (WN * LN);
    constexpr int W = Vec<T>::width, V = VEC ? W : 1;
    using PA = Piece<T, BM, BK, THREADS, V>;
    using PB = Piece<T, BN, BK, THREADS, V>;
    __shared__ __align__(16) T sa[2][BK * PA::LD];
    __shared__ __align__(16) T sb[2][BK * PB::LD];

    const Where<BM, BN> at(m, n, (int)batch);
    const long long k0 = at.split * chunk;
    int left = (int)min(k - k0, chunk); // the plan keeps chunk below 2^31

    PA pa;
    PB pb;
    pa.at(a + at.matrix * strideA, !transA, lda, at.m0, k0, m);
    pb.at(b + at.matrix * strideB, transB, ldb, at.n0, k0, n);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int mt = warp / WN * LM * TM + lane / LN * W, nt = warp % WN * LN * TN + lane % LN * W;

    T acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] = 0;

    pa.fetch(left);
    pb.fetch(left);
    pa.put(sa[0]);
    pb.put(sb[0]);
    __syncthreads();
#pragma unroll 1
    for (int now = 0; left > 0; now ^= 1) {
        left -= BK;
        if (left > 0) {
            pa.fetch(left);
            pb.fetch(left);
        }
#pragma unroll
        for (int l = 0; l < BK; l++) {
            Pack<T> x[TM / W], y[TN / W];
#pragma unroll
            for (int i = 0; i < TM / W; i++)
                x[i].v = *reinterpret_cast<const typename Vec<T>::type*>(&sa[now][l * PA::LD + mt + i * LM * W]);
#pragma unroll
            for (int j = 0; j < TN / W; j++)
                y[j].v = *reinterpret_cast<const typename Vec<T>::type*>(&sb[now][l * PB::LD + nt + j * LN * W]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) acc[i][j] += x[i / W].s[i % W] * y[j / W].s[j % W];
        }
        if (left > 0) {
            pa.put(sa[now ^ 1]);
            pb.put(sb[now ^ 1]);
            __syncthreads();
        }
    }

    const Where<BM, BN> to(m, n, (int)batch); // again: registers are short in the loop
    c += (to.split * batch + to.matrix) * m * n;
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const long long row = to.m0 + mt + i / W * LM * W + i % W;
        if (row >= m) continue;
#pragma unroll
        for (int j = 0; j < TN / W; j++) {
            const long long col = to.n0 + nt + j * LN * W;
            T* q = c + row * n + col;
            if (VEC) {
                Pack<T> v;
#pragma unroll
                for (int e = 0; e < W; e++) v.s[e] = acc[i][j * W + e];
                if (col < n) *reinterpret_cast<typename Vec<T>::type*>(q) = v.v;
            } else {
#pragma unroll
                for (int e = 0; e < W; e++)
                    if (col + e < n) q[e] = acc[i][j * W + e];
            }
        }
    }
}

// large: 8 x 8 elements of C a thread, aligned rows only, float32 only.
// small: 4 x 8, any rows.
// Two blocks of large on a multiprocessor leave 128 registers a thread; for
// sm_100 and sm_120 the compiler needs more.
#if __CUDA_ARCH__ >= 1000
constexpr int large_blocks = 1;
#else
constexpr int large_blocks = 2;
#endif
#define TILE(name, T, BM, BN, BK, WM, WN, BLOCKS, VEC)                                                                   \
    extern "C" __global__ void __launch_bounds__(WM * WN * 32, BLOCKS)                                                   \
        name(const T* a, const T* b, T* c, long long m, long long n, long long k, long long lda, long long ldb,          \
             long long strideA, long long strideB, long long batch, long long chunk, int transA, int transB) {           \
        tile<T, BM, BN, BK, WM, WN, 8, VEC>(a, b, c, m, n, k, lda, ldb, strideA, strideB, batch, chunk, transA, transB); \
    }
TILE(matmul_large_f32, float, 128, 128, 8, 2, 4, large_blocks, true)
TILE(matmul_small_f32, float, 64, 64, 8, 2, 2, 4, false)
TILE(matmul_small_f64, double, 64, 64, 8, 2, 2, 2, false)

// rows: y[r] = sum over l of x[r][l] * v[l], r in [0, rows), one warp per row of
// one split of one matrix of the batch; 8 warps a block.
template <typename T>
__device__ void rowsTimes(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y,
                          long long rows, long long k, long long batch, long long chunk) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width;
    const long long id = (long long)blockIdx.x * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const long long matrix = id / rows % batch, split = id / rows / batch;
    const long long k0 = split * chunk, left = min(k - k0, chunk);
    if (split > 0 && left <= 0) return; // beyond the last split
    x += id % (batch * rows) * k + k0;
    v += matrix * k + k0;
    Pack<T> acc[2];
#pragma unroll
    for (int e = 0; e < W; e++) acc[0].s[e] = acc[1].s[e] = 0;
    if (k % W == 0) {
        long long l = lane * W;
        for (; l + 32 * W < left; l += 64 * W) {
#pragma unroll
            for (int u = 0; u < 2; u++) {
                Pack<T> p, q;
                p.v = *reinterpret_cast<const U*>(x + l + u * 32 * W);
                q.v = *reinterpret_cast<const U*>(v + l + u * 32 * W);
#pragma unroll
                for (int e = 0; e < W; e++) acc[u].s[e] += p.s[e] * q.s[e];
            }
        }
        if (l < left) {
            Pack<T> p, q;
            p.v = *reinterpret_cast<const U*>(x + l);
            q.v = *reinterpret_cast<const U*>(v + l);
#pragma unroll
            for (int e = 0; e < W; e++) acc[0].s[e] += p.s[e] * q.s[e];
        }
    } else {
        long long l = lane;
        for (; l + 32 * (2 * W - 1) < left; l += 64 * W) {
#pragma unroll
            for (int u = 0; u < 2 * W; u++) acc[u / W].s[u % W] += x[l + u * 32] * v[l + u * 32];
        }
        for (; l < left; l += 32) acc[0].s[0] += x[l] * v[l];
    }
    T sum = 0;
#pragma unroll
    for (int e = 0; e < W; e++) sum += acc[0].s[e] + acc[1].s[e];
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) y[id] = sum;
}

// columns: y[j] = sum over l of v[l] * x[l][j], j in [0, n), a block of 8 warps
// per 32 * W columns of one split of one matrix of the batch.
template <typename T>
__device__ void columnsTimes(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y,
                             long long n, long long k, long long batch, long long chunk) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, B = 32 * W, WARPS = 8;
    __shared__ T partial[WARPS][B];
    const int strips = (int)((n + B - 1) / B), rest = blockIdx.x / strips;
    const long long matrix = rest % (int)batch, split = rest / (int)batch;
    const long long first = (long long)(blockIdx.x % strips) * B;
    const long long begin = split * chunk, end = min(k, begin + chunk);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += matrix * k * n + first;
    v += matrix * k;
    T acc[W];
#pragma unroll
    for (int e = 0; e < W; e++) acc[e] = 0;
    if (n % W == 0) { // lane holds columns lane * W + e
        if (first + lane * W < n) {
#pragma unroll 4
            for (long long l = begin + warp; l < end; l += WARPS) {
                Pack<T> p;
                p.v = *reinterpret_cast<const U*>(x + l * n + lane * W);
                const T f = v[l];
#pragma unroll
                for (int e = 0; e < W; e++) acc[e] += f * p.s[e];
            }
        }
#pragma unroll
        for (int e = 0; e < W; e++) partial[warp][lane * W + e] = acc[e];
    } else { // lane holds columns e * 32 + lane
#pragma unroll 4
        for (long long l = begin + warp; l < end; l += WARPS) {
            const T f = v[l];
#pragma unroll
            for (int e = 0; e < W; e++)
                if (first + e * 32 + lane < n) acc[e] += f * x[l * n + e * 32 + lane];
        }
#pragma unroll
        for (int e = 0; e < W; e++) partial[warp][e * 32 + lane] = acc[e];
    }
    __syncthreads();
    if (threadIdx.x < B && first + threadIdx.x < n) {
        T sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += partial[w][threadIdx.x];
        y[(split * batch + matrix) * n + first + threadIdx.x] = sum;
    }
}

// combine: c[i] = sum over s of partial[s][i], i in [0, count), s in [0, splits).
template <typename T>
__device__ void combine(const T* __restrict__ partial, T* __restrict__ c, long long count, long long splits) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        T sum = 0;
#pragma unroll 4
        for (long long s = 0; s < splits; s++) sum += partial[s * count + i];
        c[i] = sum;
    }
}

#define VECTOR(T, suffix)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                            \
        matmul_rows_##suffix(const T* x, const T* v, T* y, long long rows, long long k, long long batch, long long chunk) { \
        rowsTimes(x, v, y, rows, k, batch, chunk);                                                               \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                            \
        matmul_columns_##suffix(const T* x, const T* v, T* y, long long n, long long k, long long batch, long long chunk) { \
        columnsTimes(x, v, y, n, k, batch, chunk);                                                               \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                            \
        matmul_combine_##suffix(const T* partial, T* c, long long count, long long splits) {                     \
        combine(partial, c, count, splits);                                                                      \
    }
VECTOR(float, f32)
VECTOR(double, f64)
