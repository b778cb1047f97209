// C = op(A) op(B) in six steps, from the first idea to warp tiles; the seventh step
// is matmul_tensor.cu.
//
//	c[i][j] = sum over l of opA[i][l] * opB[l][j],  i in [0, m), j in [0, n), l in [0, k)
//
// batched, row-major; op is the matrix or its transpose.
//
//	1 naive      a thread computes one element: 2 loads from global memory for a multiply-add
//	2 registers  a thread computes V x V elements: 2 / V loads
//	3 shared     a block computes L x L elements, all its threads fetch S x L pieces
//	             of both factors into shared memory: 2 / L loads from global memory
//	             and 2 / V from shared memory
//	4 coalesced  3, fetched in the order of memory and read without bank conflicts
//	5 pipelined  4, the next pieces on their way (cp.async) while these are multiplied
//	6 warptiles  5, a warp's elements in a square, more elements a thread
//
// So a product of N x N matrices loads 2 N^3 / L elements from global memory and
// 2 N^3 / V from shared memory: the smaller both are against the 2 N^3 operations,
// the less the units wait. All sum by FMA in the elements' type, in order of l.
#include "matmul_tiles.cuh"
#include "vector.cuh"

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

// 4. As 3, but Piece fetches and multiply reads: no fetched byte is unused
// and no two lanes read from one bank.
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

// Two blocks of 256 threads leave 128 registers a thread, which the float kernels
// that copy asynchronously fit into on sm_90.
#if __CUDA_ARCH__ == 900
constexpr int two = 2;
#else
constexpr int two = 1;
#endif
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
