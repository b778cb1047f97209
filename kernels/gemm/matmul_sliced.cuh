// C = op(A) op(B) by FMA, tile by tile: the body of matmul.cu's entry points for matrix x matrix.
//
// A block computes a BM x BN tile of C. It walks over k in steps of BK: pieces of A and B
// that deep, STAGES - 1 of them on their way (cp.async) while another is multiplied, lie in
// shared memory, k first. So each element that is read from global memory is used BN (or BM)
// times. A thread holds TM x TN elements of C in registers and reads TM + TN elements from shared
// memory for each TM x TN multiply-adds; its rows and columns come in groups of 16 bytes, a
// warp's width apart. The transposes differ only in how a piece is fetched.
//
// If C is small or narrow, a tile occupies few threads. Then the block has SLICES times as many threads. Each slice of threads
// accumulates its own part of K, and the block adds up the slices' sums at the end. K is also cut into splits, one for each
// block. The blocks of a cluster exchange their partial sums; other blocks store them to memory, and another launch adds
// them. The order of summation does not depend on timing.
#pragma once
#include "async.cuh"
#include "epilogue.cuh"
#include "follow.cuh"
#include "inbox.cuh"

extern __shared__ double dynamic[];

// Piece is a thread's share of the copies of X x BK slices of a matrix with elements (x, l) to shared
// memory, l first. With `along`, l is the contiguous dimension of the matrix; otherwise x is.
// Elements outside the matrix become zeros.
template <typename T, int X, int BK, int THREADS> struct Piece {
    static constexpr int W = Vec<T>::width, LD = X + W, SIZE = BK * LD; // so that lanes don't meet in a bank
    static constexpr int BLOCKS = X / 4, WARPS = THREADS / 32; // along: a warp's lanes take 4 x, and 8 l of each, one sector
    static_assert(X * BK % THREADS == 0 && (BLOCKS % WARPS == 0 || WARPS % BLOCKS == 0), "threads share the piece evenly");
    const T* p; // the thread's first element
    i64 ld;
    int x, l, xs; // its place in the piece; the x inside the matrix
    bool along, wide;

    __device__ __forceinline__ void at(const T* matrix, i64 size, i64 ld, bool along, i64 x0, i64 l0) {
        const int t = threadIdx.x;
        this->ld = ld;
        this->along = along;
        wide = !along && ld % W == 0 && size % W == 0 && reinterpret_cast<unsigned long long>(matrix) % 16 == 0;
        xs = (int)min(size - x0, (i64)X);
        if (along) {
            x = t / 32 % BLOCKS * 4 + t % 32 / 8;
            l = t / 32 / BLOCKS * 8 + t % 8;
            p = matrix + (x0 + x) * ld + l0 + l;
        } else {
            const int each = wide ? W : 1;
            x = t % (X / each) * each;
            l = t / (X / each);
            p = matrix + (l0 + l) * ld + x0 + x;
        }
    }
    template <typename U> __device__ __forceinline__ void across(T* s, int left) {
        constexpr int COLS = X * sizeof(T) / sizeof(U), STEP = THREADS / COLS;
        static_assert(STEP > 0, "threads copy whole rows");
        s += l * LD + x;
#pragma unroll
        for (int i = 0; i < BK; i += STEP)
            if (STEP <= BK || l < BK)
                async_copy(reinterpret_cast<U*>(s + i * LD), reinterpret_cast<const U*>(p + i * ld), x < xs && l + i < left);
    }
    // fetch starts the copies of the next piece, of which that many l are inside the matrix.
    __device__ __forceinline__ void fetch(T* s, int left) {
        if (along) {
            s += l * LD + x;
#pragma unroll
            for (int i = 0; i < X * BK / THREADS; i++) {
                const int dx = i * WARPS % BLOCKS * 4, dl = i * WARPS / BLOCKS * 8;
                async_copy(s + dl * LD + dx, p + dx * ld + dl, x + dx < xs && l + dl < left);
            }
            p += BK;
        } else {
            if (wide) across<typename Vec<T>::type>(s, left);
            else across<T>(s, left);
            p += BK * ld;
        }
    }
};

// Form is the shape of a block's work; a warp's lanes are LM x (32 / LM) threads of a tile.
template <typename T_, int BM_, int BN_, int BK_, int TM_, int TN_, int LM_, int SLICES_, int STAGES_> struct Form {
    using T = T_;
    static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, LM = LM_, SLICES = SLICES_, STAGES = STAGES_;
    static constexpr int EACH = BM / TM * (BN / TN), THREADS = EACH * SLICES, W = Vec<T>::width, LN = 32 / LM, WN = BN / (LN * TN);
    static_assert((LM == 4 || LM == 8) && EACH % 32 == 0 && BM % (LM * TM) == 0 && BN % (LN * TN) == 0, "warps share a tile evenly");
    using A = Piece<T, BM, BK, THREADS>;
    using B = Piece<T, BN, BK, THREADS>;
    static constexpr int STAGE = A::SIZE + B::SIZE, TILE = BM * BN, SUMS = SLICES > 1 ? SLICES * TILE : 0;
    static constexpr bool OBLONG = BM > 2 * BN && SLICES == 1; // C may be written transposed as often as not
    // Shared memory, in elements: stages, later the slices' sums; then the sums that blocks of a cluster send.
    static constexpr int FRONT = STAGES * STAGE > SUMS ? STAGES * STAGE : SUMS;
};

// Place is the tile and the split of a block. Tiles are numbered down groups of 8 rows of tiles, so that
// the blocks that run at one time share their rows of A and columns of B in the level-2 cache. A cluster of
// JOIN blocks takes JOIN / parts tiles, with a block for each of their splits.
struct Place {
    i64 m0, n0;
    int matrix, split, rank; // in the cluster
    bool idle;               // there is no such tile
    template <int BM, int BN, int JOIN> static __device__ __forceinline__ Place of(i64 m, i64 n, int batch, int parts) {
        constexpr int GROUP = 8;
        const int tilesM = (int)((m + BM - 1) / BM), tilesN = (int)((n + BN - 1) / BN);
        const unsigned tiles = tilesM * tilesN, total = tiles * batch;
        unsigned id = blockIdx.x;
        Place p = {};
        if constexpr (JOIN > 0) {
            const int log = 31 - __clz(parts);
            p.rank = id % JOIN;
            id = id / JOIN * (JOIN >> log) + (p.rank >> log);
            p.split = p.rank & (parts - 1);
            p.idle = id >= total;
        } else if (parts > 1) {
            p.split = id / total;
            id -= p.split * total;
        }
        if (batch > 1) { // divisions are slow: none that is not needed
            p.matrix = id / tiles;
            id -= p.matrix * tiles;
        }
        int top = 0, down = tilesM;
        if (tilesM > GROUP) {
            top = id / (unsigned)(GROUP * tilesN) * GROUP;
            id -= top * tilesN;
            down = min(tilesM - top, GROUP);
        }
        const int column = id / (unsigned)down;
        p.m0 = (i64)(top + id - column * down) * BM;
        p.n0 = (i64)column * BN;
        return p;
    }
};

// Sums are the sums of a thread: TM x TN elements of the tile, of its slice's terms.
template <typename F> struct Sums {
    using T = typename F::T;
    using V = typename Vec<T>::type;
    static constexpr int TM = F::TM, TN = F::TN, LM = F::LM, LN = F::LN, W = F::W, SLICES = F::SLICES, STAGES = F::STAGES;
    T acc[TM][TN];
    int slice, row, col; // of the first element

    __device__ __forceinline__ Sums() {
        const int u = threadIdx.x % F::EACH, warp = u / 32, lane = u % 32;
        // Lanes 1 apart, or 2 apart, read the same 16 bytes of a piece: so half a warp's reads make one pass over shared memory.
        const int few = lane / 16 * 2 + lane % 2, many = lane / 2 % 8;
        slice = threadIdx.x / F::EACH;
        row = warp / F::WN * (LM * TM) + (LM == 4 ? few : many) * W;
        col = warp % F::WN * (LN * TN) + (LM == 4 ? many : few) * W;
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] = 0;
    }
    // term adds the products of one l.
    __device__ __forceinline__ void term(const T* a, const T* b) {
        Pack<T> x[TM / W], y[TN / W];
#pragma unroll
        for (int i = 0; i < TM / W; i++) x[i].v = *reinterpret_cast<const V*>(a + row + i * LM * W);
#pragma unroll
        for (int j = 0; j < TN / W; j++) y[j].v = *reinterpret_cast<const V*>(b + col + j * LN * W);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] += x[i / W].s[i % W] * y[j / W].s[j % W];
    }
    // add adds the products of so many terms, fetched piece by piece.
    __device__ __forceinline__ void add(typename F::A a, typename F::B b, int terms, T* memory) {
        constexpr int BK = F::BK;
        int fetched = 0, into = 0;
        const auto fetch = [&] {
            if (fetched < terms) {
                T* s = memory + into * F::STAGE;
                a.fetch(s, terms - fetched);
                b.fetch(s + F::A::SIZE, terms - fetched);
                fetched += BK;
            }
            into = into == STAGES - 1 ? 0 : into + 1;
            commit();
        };
#pragma unroll 1
        for (int i = 0; i < STAGES - 1; i++) fetch();
        const T* s = memory;
#pragma unroll 1
        for (int l = 0; l < terms; l += BK) {
            arrived<STAGES - 2>(); // this thread's copies of the stage; the barrier: everyone's
            __syncthreads();       // and everyone has multiplied the stage that is filled now
            fetch();
            if (terms - l >= BK) {
#pragma unroll
                for (int i = 0; i < BK / SLICES; i++) term(s + (i * SLICES + slice) * F::A::LD, s + F::A::SIZE + (i * SLICES + slice) * F::B::LD);
            } else {
#pragma unroll 1
                for (int i = slice; i < terms - l; i += SLICES) term(s + i * F::A::LD, s + F::A::SIZE + i * F::B::LD);
            }
            s = s == memory + (STAGES - 1) * F::STAGE ? memory : s + F::STAGE;
        }
    }
    // each calls f(row, col, 16 bytes) for the thread's sums.
    template <typename Do> __device__ __forceinline__ void each(Do f) const {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN / W; j++) {
                Pack<T> v;
#pragma unroll
                for (int e = 0; e < W; e++) v.s[e] = acc[i][j * W + e];
                f(row + i / W * LM * W + i % W, col + j * LN * W, v);
            }
    }
    // down calls f(row, col, 16 bytes) for the thread's sums, where 16 bytes are of a column.
    template <typename Do> __device__ __forceinline__ void down(Do f) const {
#pragma unroll
        for (int i = 0; i < TM / W; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                Pack<T> v;
#pragma unroll
                for (int e = 0; e < W; e++) v.s[e] = acc[i * W + e][j];
                f(row + i * LM * W, col + j / W * LN * W + j % W, v);
            }
    }
    // total calls f for each 16 bytes of the tile, with the sums of all slices.
    template <typename Do> __device__ __forceinline__ void total(T* memory, Do f) const {
        if (SLICES == 1) {
            each(f);
            return;
        }
        gather(memory);
#pragma unroll
        for (int i = threadIdx.x * W; i < F::TILE; i += F::THREADS * W) f(i / F::BN, i % F::BN, inOrder(reinterpret_cast<const V*>(memory + i), F::TILE / W, SLICES));
    }
    // gather brings the sums of all slices to memory.
    __device__ __forceinline__ void gather(T* memory) const {
        __syncthreads(); // the last stage is read
        each([&](int row, int col, const Pack<T>& v) { *reinterpret_cast<V*>(memory + slice * F::TILE + row * F::BN + col) = v.v; });
        __syncthreads();
    }
    // finish writes the sums of all slices through the target's epilogue, in a loop, since its steps are many instructions.
    __device__ __forceinline__ void finish(T* memory, const Target<T>& target) const {
        constexpr int EACH = F::THREADS * W, U = F::TILE % (2 * EACH) == 0 ? 2 : 1;
        gather(memory);
#pragma unroll 1
        for (int i = threadIdx.x * W; i < F::TILE; i += U * EACH) {
            int row[U], col[U];
            Pack<T> v[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int e = i + u * EACH;
                row[u] = e / F::BN;
                col[u] = e % F::BN;
                v[u] = inOrder(reinterpret_cast<const V*>(memory + e), F::TILE / W, SLICES);
            }
            target.finish(row, col, v);
        }
    }
    // scatter writes the sums of all slices where rows begin anywhere, element by element, a warp's lanes side by side.
    __device__ __forceinline__ void scatter(T* memory, const Target<T>& target) const {
        gather(memory);
#pragma unroll 4
        for (int i = threadIdx.x; i < F::TILE; i += F::THREADS) {
            const int row = i / F::BN, col = i % F::BN;
            T v = memory[i];
#pragma unroll
            for (int j = 1; j < SLICES; j++) v += memory[j * F::TILE + i];
            if (row < target.rows && col < target.cols) target.c[row * target.down + col] = v;
        }
    }
    // inOrder adds up 16 bytes of n sums that lie so many vectors apart.
    static __device__ __forceinline__ Pack<T> inOrder(const V* sums, int apart, int n) {
        Pack<T> v;
        v.v = sums[0];
#pragma unroll
        for (int j = 1; j < n; j++) {
            Pack<T> x;
            x.v = sums[j * apart];
#pragma unroll
            for (int e = 0; e < W; e++) v.s[e] += x.s[e];
        }
        return v;
    }
};

// sliced computes a tile. parts is the number of splits of chunk terms each. With transC, C is written
// transposed: rows of it are columns of op(A) op(B), and the epilogue is that of the transpose.
template <typename F, int JOIN, typename T>
__device__ __forceinline__ void sliced(const T* a, const T* b, T* c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk,
                                       int parts, int transA, int transB, int transC, const Epilogue<T>& epilogue) {
    constexpr int BM = F::BM, BN = F::BN, W = F::W;
    using V = typename Vec<T>::type;
    __shared__ u64 full; // the barrier of the sums that other blocks send
    if (JOIN) open_inbox(&full, F::TILE * sizeof(T));
    const Place at = Place::of<BM, BN, JOIN>(m, n, (int)batch, parts);
    const i64 k0 = at.split * chunk;
    T* const memory = reinterpret_cast<T*>(dynamic);
    typename F::A pa;
    typename F::B pb;
    pa.at(a + at.matrix * strideA, m, lda, !transA, at.m0, k0);
    pb.at(b + at.matrix * strideB, n, ldb, transB, at.n0, k0);
    Sums<F> sums;
    follow();
    sums.add(pa, pb, at.idle ? 0 : (int)max(min(k - k0, chunk), 0ll), memory); // the plan keeps chunk below 2^30
    admit();

    Target<T> target;
    target.rows = at.idle ? 0 : (int)min(m - at.m0, (i64)BM);
    target.cols = (int)min(n - at.n0, (i64)BN);
    target.down = transC ? 1 : n;
    target.across = transC ? m : 1;
    target.c = c + (JOIN ? at.matrix : at.split * batch + at.matrix) * m * n + at.m0 * target.down + at.n0 * target.across;
    target.wide = !transC && n % W == 0 && reinterpret_cast<unsigned long long>(c) % 16 == 0;
    target.epilogue = epilogue.from(at.matrix, at.m0, at.n0);
    if constexpr (JOIN == 0) {
        if (epilogue.steps != 0) sums.finish(memory, target);
        else if (F::OBLONG && transC) { // rows of the tile lie side by side
            const Target<T> turned = {target.c, target.down, target.across, target.cols, target.rows, m % W == 0 && reinterpret_cast<unsigned long long>(c) % 16 == 0};
            sums.down([&](int row, int col, const Pack<T>& v) { turned.put(col, row, v); });
        }
        else if (n % W != 0 && !transC && k <= 40) // with more terms the barriers cost more than they save
            sums.scatter(memory, target);
        else sums.total(memory, [&](int row, int col, const Pack<T>& v) { target.put(row, col, v); });
    } else {
        // Each block of the tile adds up an equal share of it; the others send it their sums.
        V* const inbox = reinterpret_cast<V*>(memory + F::FRONT);
        const int share = F::TILE / W / parts;
        cluster_wait(); // all blocks have begun
        sums.total(memory, [&](int row, int col, const Pack<T>& v) {
            const int i = (row * BN + col) / W, to = i / share;
            send(at.rank - at.split + to, inbox + at.split * share + i - to * share, v.v, &full);
        });
        await_inbox(&full);
#pragma unroll 1
        for (int i = threadIdx.x; i < share; i += F::THREADS) {
            const int e = (at.split * share + i) * W;
            Pack<T> v[1] = {Sums<F>::inOrder(inbox + i, share, parts)};
            if (epilogue.steps != 0) target.finish({e / BN}, {e % BN}, v);
            else target.put(e / BN, e % BN, v[0]);
        }
    }
}
