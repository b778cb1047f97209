// C = op(A) op(B) in seven steps, from the first idea to the tensor cores:
// c[i][j] = sum over l of opA[i][l] * opB[l][j], i in [0, m), j in [0, n), l in
// [0, k), batched, row-major, op the matrix or its transpose.
//
//	1 naive      a thread computes one element: 2 loads from global memory for a multiply-add
//	2 registers  a thread computes V x V elements: 2 / V loads
//	3 shared     a block computes L x L elements, all its threads fetch S x L pieces
//	             of both factors into shared memory: 2 / L loads from global memory
//	             and 2 / V from shared memory
//	4 coalesced  3, fetched in the order of memory and read without bank conflicts
//	5 pipelined  4, the next pieces on their way (cp.async) while these are multiplied
//	6 warptiles  5, a warp's elements in a square, more elements a thread
//	7 tensor     6, multiplied by the tensor cores
//
// So a product of N x N matrices loads 2 N^3 / L elements from global memory and
// 2 N^3 / V from shared memory: the smaller both are against the 2 N^3 operations,
// the less the units wait. 1 to 6 sum by FMA in the elements' type, in order of l.
#include "async.cuh"
#include "vector.cuh"

typedef long long i64;

// Factor is op(A) or op(B)^T: element (x, l), x along C's rows or columns, at
// p[x * sx + l * sl]; one of the strides is 1.
template <typename T> struct Factor {
    const T* p;
    i64 size, sx, sl; // size: of x
    __device__ T operator()(i64 x, i64 l) const { return p[x * sx + l * sl]; }
};

// Product is what a block computes: the BM x BN tile of C at (row, col), for one
// matrix of the batch. Tiles are numbered down groups of 8 rows of tiles, so that
// the blocks at work at one time share their factors in the level-2 cache.
template <typename T, int BM, int BN> struct Product {
    Factor<T> a, b;
    T* c;
    i64 m, n, k, row, col;
    __device__ Product(const T* pa, const T* pb, T* pc, i64 m, i64 n, i64 k, int transA, int transB) : m(m), n(n), k(k) {
        constexpr i64 GROUP = 8;
        const i64 tilesM = (m + BM - 1) / BM, tilesN = (n + BN - 1) / BN, tiles = tilesM * tilesN;
        const i64 matrix = blockIdx.x / tiles, t = blockIdx.x % tiles, in = t % (GROUP * tilesN);
        const i64 top = t / (GROUP * tilesN) * GROUP, rows = min(tilesM - top, GROUP);
        row = (top + in % rows) * BM;
        col = in / rows * BN;
        a = {pa + matrix * m * k, m, transA ? 1 : k, transA ? m : 1};
        b = {pb + matrix * k * n, n, transB ? k : 1, transB ? 1 : n};
        c = pc + matrix * m * n;
    }
};

// 1. Thread (x, y) of 16 x 16 computes element (y, x) of the tile: the threads of
// a warp read B side by side and A all alike.
template <typename T> __device__ void naive(const Product<T, 16, 16>& p) {
    const i64 i = p.row + threadIdx.y, j = p.col + threadIdx.x;
    if (i >= p.m || j >= p.n) return;
    T sum = 0;
    for (i64 l = 0; l < p.k; l++) sum += p.a(i, l) * p.b(j, l);
    p.c[i * p.n + j] = sum;
}

// 2. Thread (x, y) of 16 x 16 computes the elements (y + 16 i, x + 16 j), i and j
// in [0, V): what it loads it uses V times. Beyond the edges it loads the last row
// or column again.
template <typename T, int V> __device__ void registers(const Product<T, 16 * V, 16 * V>& p) {
    const i64 i0 = p.row + threadIdx.y, j0 = p.col + threadIdx.x;
    T acc[V][V] = {};
    for (i64 l = 0; l < p.k; l++) {
        T x[V], y[V];
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = p.a(min(i0 + 16 * i, p.m - 1), l);
#pragma unroll
        for (int j = 0; j < V; j++) y[j] = p.b(min(j0 + 16 * j, p.n - 1), l);
#pragma unroll
        for (int i = 0; i < V; i++)
#pragma unroll
            for (int j = 0; j < V; j++) acc[i][j] += x[i] * y[j];
    }
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int j = 0; j < V; j++)
            if (i0 + 16 * i < p.m && j0 + 16 * j < p.n) p.c[(i0 + 16 * i) * p.n + j0 + 16 * j] = acc[i][j];
}

// 3. All 256 threads stride through the S x L pieces of both factors; then a
// thread multiplies from shared memory. Its rows and columns lie side by side.
template <typename T, int V, int S> __device__ void shared(const Product<T, 16 * V, 16 * V>& p) {
    constexpr int L = 16 * V, THREADS = 256;
    __shared__ T a[S][L], b[S][L];
    const int tx = threadIdx.x * V, ty = threadIdx.y * V;
    T acc[V][V] = {};
    for (i64 l0 = 0; l0 < p.k; l0 += S) {
        for (int e = threadIdx.y * 16 + threadIdx.x; e < S * L; e += THREADS) {
            const int l = e / L, x = e % L;
            a[l][x] = p.row + x < p.m && l0 + l < p.k ? p.a(p.row + x, l0 + l) : T(0);
            b[l][x] = p.col + x < p.n && l0 + l < p.k ? p.b(p.col + x, l0 + l) : T(0);
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < S; l++) {
            T x[V], y[V];
#pragma unroll
            for (int i = 0; i < V; i++) x[i] = a[l][ty + i];
#pragma unroll
            for (int j = 0; j < V; j++) y[j] = b[l][tx + j];
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int j = 0; j < V; j++) acc[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int j = 0; j < V; j++)
            if (p.row + ty + i < p.m && p.col + tx + j < p.n) p.c[(p.row + ty + i) * p.n + p.col + tx + j] = acc[i][j];
}

// Piece is a thread's share in fetching S x L pieces of a factor to shared memory,
// element (x, l) to place l * LD + x. Neighbouring threads fetch neighbouring
// elements: along l in groups of 32 bytes, what memory gives at the least, where
// the elements of one x lie side by side; else along x, 16 bytes at a time where
// all rows start at a multiple of 16 bytes. LD keeps a warp's stores in different
// banks: 32 bytes of l and 4 elements of x.
template <typename T, int L, int S, int THREADS> struct Piece {
    static constexpr int LD = L + 4, SIZE = S * LD, G = 32 / sizeof(T), W = Vec<T>::width;
    static_assert(L * S % (THREADS * W) == 0 && S % G == 0, "threads share the piece evenly");
    const T* p;  // the thread's first element
    i64 sx, sl;
    int x, l, xs; // its place in the piece; the x inside the matrix
    bool along, wide;

    __device__ Piece(const Factor<T>& f, i64 x0, int t) : sx(f.sx), sl(f.sl), along(f.sl == 1) {
        wide = !along && sl % W == 0 && reinterpret_cast<unsigned long long>(f.p) % 16 == 0;
        const int e = wide ? t * W : t;
        x = along ? t / G % L : e % L;
        l = along ? t % G + t / (G * L) * G : e / L;
        xs = (int)min(f.size - x0, (i64)L);
        p = f.p + (x0 + x) * sx + l * sl;
    }

    // fetch calls copy(place, source, inside) for the vectors U of the thread in
    // the next piece, of which left l are inside the matrix.
    template <typename U, int DX, int DL, typename Copier> __device__ void fetch(int left, T* s, Copier copy) {
#pragma unroll
        for (int i = 0; i < (int)(L * S * sizeof(T) / sizeof(U) / THREADS); i++) {
            const int dx = i * DX % L, dl = i * DX / L * DL;
            copy(reinterpret_cast<U*>(s + dl * LD + dx), reinterpret_cast<const U*>(p + dx * sx + dl * sl), x + dx < xs && l + dl < left);
        }
    }
    template <typename Copier> __device__ void fetch(int left, T* s, Copier copy) {
        s += l * LD + x;
        if (along) fetch<T, THREADS / G, G>(left, s, copy);
        else if (wide) fetch<typename Vec<T>::type, THREADS * W, 1>(left, s, copy);
        else fetch<T, THREADS, 1>(left, s, copy);
        p += S * sl;
    }
};

// multiply adds one column of a times one row of b to a thread's elements of C.
// Its rows come in groups of 16 bytes, GM apart, its columns GN apart, so that
// a warp reads all groups of one kind together, from different banks.
template <int GM, int GN, typename T, int TM, int TN>
__device__ __forceinline__ void multiply(const T* a, const T* b, T (&acc)[TM][TN]) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width;
    Pack<T> x[TM / W], y[TN / W];
#pragma unroll
    for (int i = 0; i < TM / W; i++) x[i].v = *reinterpret_cast<const U*>(a + i * GM);
#pragma unroll
    for (int j = 0; j < TN / W; j++) y[j].v = *reinterpret_cast<const U*>(b + j * GN);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] += x[i / W].s[i % W] * y[j / W].s[j % W];
}

// store writes a thread's elements, the first one at (row, col).
template <int GM, int GN, typename T, int TM, int TN>
__device__ __forceinline__ void store(T* c, i64 m, i64 n, i64 row, i64 col, const T (&acc)[TM][TN]) {
    constexpr int W = Vec<T>::width;
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const i64 r = row + i / W * GM + i % W;
        if (r >= m) continue;
#pragma unroll
        for (int j = 0; j < TN / W; j++) {
            const i64 q = col + j * GN;
            Pack<T> v;
#pragma unroll
            for (int e = 0; e < W; e++) v.s[e] = acc[i][j * W + e];
            if (n % W == 0) {
                if (q < n) *reinterpret_cast<typename Vec<T>::type*>(c + r * n + q) = v.v;
            } else {
#pragma unroll
                for (int e = 0; e < W; e++)
                    if (q + e < n) c[r * n + q + e] = v.s[e];
            }
        }
    }
}

struct Copy {
    template <typename U> __device__ void operator()(U* to, const U* from, bool inside) const { *to = inside ? *from : U(); }
};

// 4. As 3, but Piece fetches and multiply reads: no bytes are fetched for
// nothing and no bank is asked twice.
template <typename T, int V, int S> __device__ void coalesced(const Product<T, 16 * V, 16 * V>& p) {
    constexpr int L = 16 * V, W = Vec<T>::width;
    using P = Piece<T, L, S, 256>;
    __shared__ __align__(16) T sa[P::SIZE], sb[P::SIZE];
    const int t = threadIdx.x, tx = t % 16 * W, ty = t / 16 * W;
    P a(p.a, p.row, t), b(p.b, p.col, t);
    T acc[V][V] = {};
    for (i64 left = p.k; left > 0; left -= S) {
        a.fetch((int)min(left, (i64)S), sa, Copy());
        b.fetch((int)min(left, (i64)S), sb, Copy());
        __syncthreads();
#pragma unroll
        for (int l = 0; l < S; l++) multiply<16 * W, 16 * W>(sa + l * P::LD + ty, sb + l * P::LD + tx, acc);
        __syncthreads();
    }
    store<16 * W, 16 * W>(p.c, p.m, p.n, p.row + ty, p.col + tx, acc);
}

struct AsyncCopy {
    template <typename U> __device__ void operator()(U* to, const U* from, bool inside) const { async_copy(to, from, inside); }
};

extern __shared__ double dynamic[];

// pipeline calls work(a, b) for pieces of both factors in shared memory, one after
// the other, S deep, while the next STAGES - 1 are on their way. It needs dynamic
// shared memory for STAGES pieces of each.
template <int S, int STAGES, typename T, typename PA, typename PB, typename Work>
__device__ __forceinline__ void pipeline(PA a, PB b, i64 k, T* s, Work work) {
    constexpr int STAGE = PA::SIZE + PB::SIZE;
    i64 left = k;
    const auto fetch = [&](int stage) {
        if (left > 0) {
            const int now = (int)min(left, (i64)S);
            a.fetch(now, s + stage * STAGE, AsyncCopy());
            b.fetch(now, s + stage * STAGE + PA::SIZE, AsyncCopy());
            left -= S;
        }
        commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    int stage = 0;
#pragma unroll 1
    for (i64 l = 0; l < k; l += S) {
        arrived<STAGES - 2>(); // this thread's copies of the stage; the barrier: everyone's
        __syncthreads();       // and everyone has multiplied the stage that is filled now
        fetch(stage == 0 ? STAGES - 1 : stage - 1);
        work(s + stage * STAGE, s + stage * STAGE + PA::SIZE);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
}

// 5. As 4 with two stages.
template <typename T, int V, int S> __device__ void pipelined(const Product<T, 16 * V, 16 * V>& p) {
    constexpr int L = 16 * V, W = Vec<T>::width;
    using P = Piece<T, L, S, 256>;
    const int t = threadIdx.x, tx = t % 16 * W, ty = t / 16 * W;
    T acc[V][V] = {};
    pipeline<S, 2>(P(p.a, p.row, t), P(p.b, p.col, t), p.k, reinterpret_cast<T*>(dynamic), [&](const T* a, const T* b) {
#pragma unroll
        for (int l = 0; l < S; l++) multiply<16 * W, 16 * W>(a + l * P::LD + ty, b + l * P::LD + tx, acc);
    });
    store<16 * W, 16 * W>(p.c, p.m, p.n, p.row + ty, p.col + tx, acc);
}

// 6. WM x WN warps share the tile. A warp's 8 x 4 lanes compute TM x TN elements
// each: the warp's part of the tile is as square as can be, so it reads the
// fewest rows and columns for its elements.
template <int WM, int WN, int S, int STAGES, typename T, int BM, int BN>
__device__ __forceinline__ void warptiles(const Product<T, BM, BN>& p) {
    constexpr int W = Vec<T>::width, TM = BM / WM / 8, TN = BN / WN / 4, GM = 8 * W, GN = 4 * W;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WN * (BM / WM) + lane / 4 * W, col = warp % WN * (BN / WN) + lane % 4 * W;
    using PA = Piece<T, BM, S, WM * WN * 32>;
    using PB = Piece<T, BN, S, WM * WN * 32>;
    T acc[TM][TN] = {};
    pipeline<S, STAGES>(PA(p.a, p.row, threadIdx.x), PB(p.b, p.col, threadIdx.x), p.k, reinterpret_cast<T*>(dynamic), [&](const T* a, const T* b) {
#pragma unroll
        for (int l = 0; l < S; l++) multiply<GM, GN>(a + l * PA::LD + row, b + l * PB::LD + col, acc);
    });
    store<GM, GN>(p.c, p.m, p.n, p.row + row, p.col + col, acc);
}

#if __CUDA_ARCH__ >= 800
// mma is c += a b on the tensor cores for 16 x 8 and 8 x 8 elements spread over a
// warp. With g = lane / 4 and q = lane % 4 a lane holds
//
//	a[r + 2 h] = a(g + 8 r, q + 4 h)    b[h] = b(q + 4 h, g)    c[2 r + e] = c(g + 8 r, 2 q + e)
//
// float32 numbers enter with 11 significant bits (TF32); float64 ones as they are.
__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 4; i++) // r = i % 2, h = i / 2
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c[i % 2 * 2]), "+d"(c[i % 2 * 2 + 1]) : "d"(a[i]), "d"(b[i / 2]));
#endif
}

// Fragment is one factor of an mma, N numbers of a lane. A float is taken apart
// into two of 11 bits each, high + low, good for 22 of its 24 bits.
template <typename T, int N> struct Fragment;
template <int N> struct Fragment<float, N> {
    unsigned high[N], low[N];
    __device__ __forceinline__ void set(int i, float x) {
        high[i] = (__float_as_uint(x) + 0x1000) & 0xffffe000; // rounded to 11 bits
        low[i] = __float_as_uint(x - __uint_as_float(high[i])) + 0x1000; // mma cuts off the other 13
    }
};
template <int N> struct Fragment<double, N> {
    double x[N];
    __device__ __forceinline__ void set(int i, double v) { x[i] = v; }
};

// accumulate is c += a b for H steps of 8 l. For float: three products, the small
// ones first; low times low is below the last bit. Tensor cores cut off where FMA
// rounds, so they sum H steps only, and an addition that rounds does the rest.
template <int H>
__device__ __forceinline__ void accumulate(float (&c)[4], const Fragment<float, 4> (&a)[H], const Fragment<float, 2> (&b)[H]) {
    float sum[4] = {};
#pragma unroll
    for (int h = 0; h < H; h++) mma(sum, a[h].low, b[h].high);
#pragma unroll
    for (int h = 0; h < H; h++) mma(sum, a[h].high, b[h].low);
#pragma unroll
    for (int h = 0; h < H; h++) mma(sum, a[h].high, b[h].high);
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] += sum[i];
}
template <int H>
__device__ __forceinline__ void accumulate(double (&c)[4], const Fragment<double, 4> (&a)[H], const Fragment<double, 2> (&b)[H]) {
#pragma unroll
    for (int h = 0; h < H; h++) mma(c, a[h].x, b[h].x);
}

// settle is element (i, j) of C from the tensor cores' sum. Where float numbers
// are not finite, taken apart they gave NaN: there it is summed again.
template <typename P> __device__ float settle(const P& p, i64 i, i64 j, float sum) {
    if (isfinite(sum)) return sum;
    sum = 0;
    for (i64 l = 0; l < p.k; l++) sum += p.a(i, l) * p.b(j, l);
    return sum;
}
template <typename P> __device__ double settle(const P&, i64, i64, double sum) { return sum; }
#endif

// Kept is a thread's share in fetching L x S pieces of a factor in the order that
// they have in memory: rows of one x (ALONG) or of one l, 16 bytes at a time where
// all rows start at a multiple of 16 bytes. The lanes' loads of a fragment, 8
// x and 4 l, then hit every bank once.
template <typename T, int L, int S, int THREADS, bool ALONG> struct Kept {
    static constexpr int W = Vec<T>::width, ROWS = ALONG ? L : S, COLS = ALONG ? S : L;
    static constexpr int LD = ALONG ? S + 4 : L + 32 / sizeof(T), SIZE = L * (S + 4);
    static_assert(LD * ROWS <= SIZE && ROWS * COLS % (THREADS * W) == 0 && THREADS * W % COLS == 0, "threads share the piece evenly");
    const T* p; // the thread's first element
    i64 ld;
    int row, col, xs; // its place in the piece; the x inside the matrix
    bool wide;

    __device__ Kept(const Factor<T>& f, i64 x0, int t) : ld(ALONG ? f.sx : f.sl) {
        wide = ld % W == 0 && reinterpret_cast<unsigned long long>(f.p) % 16 == 0;
        const int e = wide ? t * W : t;
        row = e / COLS;
        col = e % COLS;
        xs = (int)min(f.size - x0, (i64)L);
        p = f.p + row * ld + col + x0 * f.sx;
    }
    static __device__ constexpr int at(int l, int x) { return ALONG ? x * LD + l : l * LD + x; }

    template <typename U, typename Copier> __device__ void fetch_as(int rows, int cols, T* s, Copier copy) {
        constexpr int STEP = THREADS * sizeof(U) / sizeof(T) / COLS;
        s += row * LD + col;
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP)
            copy(reinterpret_cast<U*>(s + r * LD), reinterpret_cast<const U*>(p + r * ld), row + r < rows && col < cols);
    }
    template <typename Copier> __device__ void fetch(int left, T* s, Copier copy) {
        const int rows = ALONG ? xs : left, cols = ALONG ? left : xs;
        if (wide) fetch_as<typename Vec<T>::type>(rows, cols, s, copy);
        else fetch_as<T>(rows, cols, s, copy);
        p += ALONG ? S : S * ld;
    }
};

// 7. As 6, a warp's part of the tile in pieces of 16 x 8 elements. Devices before
// sm_80 have no tensor cores for these types: there it is 6.
template <int WM, int WN, int S, int STAGES, bool ALONG_A, bool ALONG_B, typename T, int BM, int BN>
__device__ __forceinline__ void tensor_as(const Product<T, BM, BN>& p) {
#if __CUDA_ARCH__ >= 800
    using PA = Kept<T, BM, S, WM * WN * 32, ALONG_A>;
    using PB = Kept<T, BN, S, WM * WN * 32, ALONG_B>;
    constexpr int MT = BM / WM / 16, NT = BN / WN / 8, H = S / 8;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int row = warp / WN * (BM / WM), col = warp % WN * (BN / WN);
    T acc[MT][NT][4] = {};
    pipeline<S, STAGES>(PA(p.a, p.row, threadIdx.x), PB(p.b, p.col, threadIdx.x), p.k, reinterpret_cast<T*>(dynamic), [&](const T* a, const T* b) {
        a += PA::at(q, row + g);
        b += PB::at(q, col + g);
        Fragment<T, 2> y[NT][H];
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 2 * H; e++) y[j][e / 2].set(e % 2, b[PB::at(4 * e, 8 * j)]);
#pragma unroll
        for (int i = 0; i < MT; i++) {
            Fragment<T, 4> x[H];
#pragma unroll
            for (int e = 0; e < 4 * H; e++) x[e / 4].set(e % 4, a[PA::at(e / 2 * 4, 16 * i + e % 2 * 8)]);
#pragma unroll
            for (int j = 0; j < NT; j++) accumulate(acc[i][j], x, y[j]);
        }
    });
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const i64 r = p.row + row + 16 * i + e / 2 * 8 + g, c = p.col + col + 8 * j + 2 * q + e % 2;
                if (r < p.m && c < p.n) p.c[r * p.n + c] = settle(p, r, c, acc[i][j][e]);
            }
#endif
}

template <int WM, int WN, int S, int STAGES, typename T, int BM, int BN>
__device__ __forceinline__ void tensor(const Product<T, BM, BN>& p) {
#if __CUDA_ARCH__ < 800
    warptiles<WM, WN, S, STAGES>(p);
#else
    if (p.a.sl == 1 && p.b.sl == 1) tensor_as<WM, WN, S, STAGES, true, true>(p);
    else if (p.a.sl == 1) tensor_as<WM, WN, S, STAGES, true, false>(p);
    else if (p.b.sl == 1) tensor_as<WM, WN, S, STAGES, false, true>(p);
    else tensor_as<WM, WN, S, STAGES, false, false>(p);
#endif
}

// The entry points: threads, blocks on a multiprocessor, tile, function. Two
// blocks of 256 threads leave 128 registers a thread, which the float kernels that
// copy asynchronously fit into on sm_90.
#if __CUDA_ARCH__ == 900
constexpr int two = 2;
#else
constexpr int two = 1;
#endif
#define ENTRY(name, T, THREADS, BLOCKS, BM, BN, ...)                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) matmul_##name(                                      \
        const T* a, const T* b, T* c, i64 m, i64 n, i64 k, int transA, int transB) {                                  \
        __VA_ARGS__(Product<T, BM, BN>(a, b, c, m, n, k, transA, transB));                                            \
    }
ENTRY(naive_f32, float, 256, 1, 16, 16, naive<float>)
ENTRY(naive_f64, double, 256, 1, 16, 16, naive<double>)
ENTRY(registers_f32, float, 256, 1, 128, 128, registers<float, 8>)
ENTRY(registers_f64, double, 256, 2, 64, 64, registers<double, 4>)
ENTRY(shared_f32, float, 256, 1, 128, 128, shared<float, 8, 8>)
ENTRY(shared_f64, double, 256, 2, 64, 64, shared<double, 4, 8>)
ENTRY(coalesced_f32, float, 256, 1, 128, 128, coalesced<float, 8, 8>)
ENTRY(coalesced_f64, double, 256, 2, 64, 64, coalesced<double, 4, 8>)
ENTRY(pipelined_f32, float, 256, two, 128, 128, pipelined<float, 8, 8>)
ENTRY(pipelined_f64, double, 256, 2, 64, 64, pipelined<double, 4, 8>)
ENTRY(warptiles_f32, float, 256, two, 128, 128, warptiles<2, 4, 16, 3>)
ENTRY(warptiles_f64, double, 128, 2, 128, 64, warptiles<2, 2, 8, 3>)
ENTRY(tensor_f32, float, 128, 2, 128, 64, tensor<2, 2, 16, 3>)
ENTRY(tensor_f64, double, 128, 2, 128, 64, tensor<2, 2, 8, 3>)
