// C = op(A) op(B) in float64 on the tensor cores of compute capability 9.0, batched, row-major; op is the matrix
// or its transpose:
//
//	c[i][j] = sum over l of opA[i][l] * opB[l][j],  i in [0, m), j in [0, n), l in [0, k)
//
// A block's warps share a tile of C, in pieces of 16 x 8, the shape of one instruction. The factors come in
// pieces S deep, STAGES - 1 of them on their way (cp.async) while the warps multiply another, and lie in shared
// memory in the order that they have in global memory. A warp loads the next factors to registers while it
// multiplies, across pieces too, so that the tensor cores wait less for shared memory.
//
// Where C has few tiles, k is cut into parts: the up to 8 blocks of a cluster send one another their sums and add them
// up in order. Where a cluster's blocks are too few, the parts of several clusters go to copies of C, which
// matmul_combine_f64 adds up. The launch that writes C applies the epilogue (epilogue.cuh).
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "follow.cuh"

#if __CUDA_ARCH__ == 900
extern __shared__ double dynamic[];

// mma is c += a b for 16 x 8 and 8 x 8 elements spread over a warp. With g = lane / 4 and q = lane % 4 a lane
// holds
//
//	a[r + 2 h] = a(g + 8 r, q + 4 h)    b[h] = b(q + 4 h, g)    c[2 r + e] = c(g + 8 r, 2 q + e)
__device__ __forceinline__ void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

// copy_in copies 8 or 16 bytes to shared memory, or zeros where not inside. With CG 16 bytes go past the first-level
// cache.
template <int W, bool CG> __device__ __forceinline__ void copy_in(unsigned to, const double* from, bool inside) {
    const int bytes = inside ? W * 8 : 0;
    if constexpr (W == 2 && CG) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(W * 8), "r"(bytes) : "memory");
}

// Widths are the copies that a form has: two elements at a time of both factors or one, also two of a factor that alone is aligned, or
// always one of A, which is small.
enum class Widths { SAME, MIXED, NARROW_A };

// Double is a form: the tile, the pieces, the warps that share the tile down and across, in groups that share the terms of a piece. Blocks of a form that
// streams compute several tiles, and write them by way of places of the warps behind the stages.
template <int BM_, int BN_, int S_, int STAGES_, bool CG_, Widths WIDTHS_, int GROUPS_, bool STREAM_, int WM_, int WN_> struct Double {
    static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, S = S_, STAGES = STAGES_, GROUPS = GROUPS_, WARPS = WM * WN, THREADS = WARPS * GROUPS * 32;
    static constexpr bool CG = CG_, FEW = WIDTHS_ == Widths::NARROW_A, STREAM = STREAM_; // FEW: rows; C may be written transposed
    static constexpr Widths WIDTHS = WIDTHS_;
    static constexpr int MT = BM / WM / 16, NT = BN / WN / 8, LD = BN + 2; // of a tile in shared memory, so that the lanes' rows begin in other banks
    static __device__ constexpr int size(int l) { return l * (S + 4) > S * (l + 4) ? l * (S + 4) : S * (l + 4); } // of a piece
    static constexpr int PLACES = STAGES * (size(BM) + size(BN)), PITCH = BN / WN + 8, PLACE = 8 * PITCH;  // a place has eight rows of a warp
};

// Factor is op(A) or op(B)^T, from the first term of a block on: element (x, l), x along C's rows or columns, at
// p[x * sx + l * sl]; one of the strides is 1. x0 is the first x of the block's tile, size the number of all.
struct Factor {
    const double* p;
    i64 x0, size, sx, sl;
};

// Copies are a thread's share in fetching pieces of a factor.
struct Copies {
    const double* p; // of its first copy in the next piece
    i64 ld;
    int l, x, last; // of its first copy in a piece: l, and with ALONG x, which is 0 if p includes it; the largest x inside the matrix, negative if all are outside
    unsigned to;    // that copy's place in the first stage
};

// Piece fetches L x S pieces of a factor: rows of one x (ALONG) or of one l, W elements at a
// time. Beyond the last l there are zeros. Beyond the last x its elements are repeated from the L1 cache. For copies that bypass it (CG) there are zeros too:
// all blocks would load one line of the L2 cache for each repetition.
// The lanes' loads of a fragment, 8 x and 4 l, hit every bank once.
template <int L, int S, int THREADS, bool ALONG, int W, bool CG> struct Piece {
    static constexpr int ROWS = ALONG ? L : S, COLS = ALONG ? S : L, LD = COLS + 4, SIZE = L * (S + 4) > S * (L + 4) ? L * (S + 4) : S * (L + 4);
    static constexpr int STEP = THREADS * W / COLS, COPIES = ROWS / STEP;
    static_assert(STEP > 0 && ROWS % STEP == 0 && LD * ROWS <= SIZE, "threads share the piece evenly");

    static __device__ __forceinline__ Copies first(const Factor& f, const double* memory) {
        const int e = threadIdx.x * W, inside = (int)min(f.size - f.x0, (i64)L), row = e / COLS, col = e % COLS;
        Copies c;
        c.ld = ALONG ? f.sx : f.sl;
        c.l = ALONG ? col : row;
        c.x = CG ? 0 : row;
        c.last = inside - 1 - (!ALONG ? col : CG ? row : 0);
        c.to = (unsigned)__cvta_generic_to_shared(memory + row * LD + col);
        c.p = f.p + f.x0 * f.sx + (ALONG ? (row - c.x) * c.ld + col : row * c.ld + min(col, inside - W));
        return c;
    }
    static __device__ constexpr int at(int l, int x) { return ALONG ? x * LD + l : l * LD + x; }
    // fetch starts a part of the copies of the next piece, of which that many l are inside the matrix.
    static __device__ __forceinline__ void fetch(Copies& c, int left, int stage, int part, int parts) {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            if (i >= part * COPIES / parts && i < (part + 1) * COPIES / parts)
                copy_in<W, CG>(c.to + (stage + i * STEP * LD) * 8, c.p + (ALONG && !CG ? min(c.x + i * STEP, c.last) : i * STEP) * c.ld,
                               ALONG ? c.l < left && (!CG || i * STEP <= c.last) : c.l + i * STEP < left && (!CG || c.last >= 0));
        if (part == parts - 1) c.p += ALONG ? S : S * c.ld;
    }
};

// Share is the work of a block: a tile of C of one matrix, or one part of its sums.
struct Share {
    Factor a, b;
    unsigned z, matrix; // z: of the copies of C
    int k, parts, part; // part: of the blocks of the cluster
    bool turned;        // C is written transposed
    template <typename F> __device__ __forceinline__ Target<double> target(double* c, i64 m, i64 n, const Epilogue<double>& epilogue) const {
        Target<double> t;
        t.across = F::FEW && turned ? m : 1;
        t.down = F::FEW && turned ? 1 : n;
        t.c = c + (i64)z * m * n + a.x0 * t.down + b.x0 * t.across;
        t.rows = (int)min(m - a.x0, (i64)F::BM);
        t.cols = (int)min(n - b.x0, (i64)F::BN);
        t.wide = t.across == 1 && n % 2 == 0 && reinterpret_cast<unsigned long long>(c) % 16 == 0;
        t.epilogue = epilogue.from(matrix, a.x0, b.x0);
        return t;
    }
};

// Tiles are those of a block, one gridDim.x after the other.
struct Tiles {
    const double *a, *b;
    i64 m, n, k, batch, chunk;
    int transA, transB, parts;
    bool turned;
    unsigned count;
    template <typename F> __device__ __forceinline__ Share share(unsigned id) const;
};

// Stream is what a block keeps from tile to tile: copies run ahead of the products, to the next tile's pieces too.
template <typename F> struct Stream {
    const Tiles& tiles;
    unsigned ahead; // the tile that is fetched
    int left, stage, into; // left: K to be fetched of it
    Copies a, b;
    double x[2][4], y[2][F::NT][2]; // factors
};

// multiply adds the products of k terms to a warp's part of the tile, whose first row and column in the tile are
// given: sums[i][j] holds a lane's elements of 16 x 8, those of c in mma. They are of the stream's first tile, or of a later one.
template <typename F, typename PA, typename PB>
__device__ __forceinline__ void multiply(Stream<F>& f, bool first, int k, int row, int col, double (&sums)[F::MT][F::NT][4]) {
    constexpr int MT = F::MT, NT = F::NT, STAGE = PA::SIZE + PB::SIZE, STAGES = F::STAGES, DEEP = F::S / 8 / F::GROUPS, STEPS = DEEP * MT;
    static_assert(DEEP % 2 == 0, "registers take turns");
    static_assert(STAGE * STAGES == F::PLACES, "warps' own places follow the stages");
    const int g = threadIdx.x % 32 / 4, l0 = threadIdx.x / (F::WARPS * 32) * (F::S / F::GROUPS) + threadIdx.x % 4;
    const double *const a0 = dynamic + PA::at(l0, g + row), *const b0 = dynamic + PA::SIZE + PB::at(l0, g + col), *a = a0 + f.stage * STAGE, *b = b0 + f.stage * STAGE;
    const auto begin = [&](const Share& s) {
        f.left = s.k;
        f.a = PA::first(s.a, dynamic);
        f.b = PB::first(s.b, dynamic + PA::SIZE);
    };
    const auto next = [&] { // goes on to the next tile's pieces
        if (!F::STREAM || f.left > 0 || f.ahead + gridDim.x >= f.tiles.count) return;
        f.ahead += gridDim.x;
        begin(f.tiles.template share<F>(f.ahead));
    };
    const auto load = [&](int step) { // the factors of a step of a piece, those across with the first step of the same terms
        const int l = step / MT * 8, i = step % MT;
#pragma unroll
        for (int e = 0; e < 4; e++) f.x[step % 2][e] = a[PA::at(l + e / 2 * 4, 16 * i + e % 2 * 8)];
        if (i == 0) {
#pragma unroll
            for (int e = 0; e < 2 * NT; e++) f.y[step / MT % 2][e / 2][e % 2] = b[PB::at(l + e % 2 * 4, e / 2 * 8)];
        }
    };
    if (first) {
        begin(f.tiles.template share<F>(f.ahead));
#pragma unroll(F::STREAM ? 1 : STAGES - 1)
        for (int i = 0; i < STAGES - 1; i++, f.left -= F::S) {
            next();
            if (f.left > 0) {
                PA::fetch(f.a, f.left, i * STAGE, 0, 1);
                PB::fetch(f.b, f.left, i * STAGE, 0, 1);
            }
            commit();
        }
        arrived<STAGES - 2>(); // this thread's copies of the stage; the barrier: everyone's
        __syncthreads();
        load(0);
    }
#pragma unroll 1
    for (; k > 0; k -= F::S, f.left -= F::S) {
        next();
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (f.left > 0) {
                PA::fetch(f.a, f.left, f.into * STAGE, step, STEPS);
                PB::fetch(f.b, f.left, f.into * STAGE, step, STEPS);
            }
            if (step == STEPS - 1) {
                commit();
                arrived<STAGES - 2>();
                __syncthreads(); // and everyone has read the stage that is filled next
                f.into = f.stage;
                f.stage = f.stage == STAGES - 1 ? 0 : f.stage + 1;
                a = a0 + f.stage * STAGE;
                b = b0 + f.stage * STAGE;
            }
            load((step + 1) % STEPS);
#pragma unroll
            for (int j = 0; j < NT; j++) mma(sums[step % MT][j], f.x[step % 2], f.y[step / MT % 2][j]);
        }
    }
}

// bring brings a tile of sums to shared memory, one of each group.
template <typename F> __device__ __forceinline__ double* bring(const double (&sums)[F::MT][F::NT][4], int row, int col) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    double* const tile = dynamic + threadIdx.x / (F::WARPS * 32) * (F::BM * F::LD);
    __syncthreads(); // the last stage is read
#pragma unroll
    for (int i = 0; i < F::MT; i++)
#pragma unroll
        for (int j = 0; j < F::NT; j++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                *reinterpret_cast<double2*>(tile + (row + 16 * i + r * 8 + g) * F::LD + col + 8 * j + 2 * q) = make_double2(sums[i][j][2 * r], sums[i][j][2 * r + 1]);
    __syncthreads();
    return dynamic;
}

// finish adds up the groups' sums of a tile and writes them through the target's epilogue, in a loop, since its steps are many instructions.
template <typename F> __device__ __forceinline__ void finish(const Target<double>& target, const double* tile) {
    constexpr int EACH = F::THREADS * 2;
#pragma unroll 1
    for (int i = threadIdx.x * 2; i < F::BM * F::BN; i += 2 * EACH) {
        const int rows[] = {i / F::BN, (i + EACH) / F::BN}, cols[] = {i % F::BN, (i + EACH) % F::BN};
        Pack<double> v[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            v[u].v = *reinterpret_cast<const double2*>(tile + rows[u] * F::LD + cols[u]);
#pragma unroll
            for (int g = 1; g < F::GROUPS; g++) {
                const double2 x = *reinterpret_cast<const double2*>(tile + g * (F::BM * F::LD) + rows[u] * F::LD + cols[u]);
                v[u].s[0] += x.x;
                v[u].s[1] += x.y;
            }
        }
        target.finish(rows, cols, v);
    }
}

// join adds up the parts of a tile: each of its blocks adds up an equal share of it; the others send it their sums.
template <typename F> __device__ __forceinline__ void join(const Share& s, const Target<double>& target, const double (&sums)[F::MT][F::NT][4], int row, int col) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, share = F::BM * F::BN / 2 / s.parts;
    double2* const inbox = reinterpret_cast<double2*>(dynamic);
    cluster_arrive();
    cluster_wait(); // all blocks have read their last stages
#pragma unroll
    for (int i = 0; i < F::MT; i++)
#pragma unroll
        for (int j = 0; j < F::NT; j++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int e = ((row + 16 * i + r * 8 + g) * F::BN + col + 8 * j + 2 * q) / 2, to = e / share;
                send(to, inbox + s.part * share + e - to * share, make_double2(sums[i][j][2 * r], sums[i][j][2 * r + 1]));
            }
    cluster_arrive();
    cluster_wait(); // all sums have arrived
#pragma unroll 1
    for (int i = threadIdx.x; i < share; i += F::THREADS) {
        const int e = (s.part * share + i) * 2;
        Pack<double> v[1];
        v[0].v = inbox[i];
#pragma unroll 1
        for (int j = 1; j < s.parts; j++) {
            const double2 x = inbox[j * share + i];
            v[0].s[0] += x.x;
            v[0].s[1] += x.y;
        }
        if (target.epilogue.steps != 0) target.finish({e / F::BN}, {e % F::BN}, v);
        else target.put(e / F::BN, e % F::BN, v[0]);
    }
}

// add_tile adds up a tile's products. With ALONG_A the elements of a row of op(A) lie side by side, with ALONG_B those of a column
// of op(B). All rows of A in memory are aligned to WA elements, those of B to WB.
template <typename F, bool ALONG_A, bool ALONG_B, int WA, int WB> __device__ __forceinline__ void add_tile(Stream<F>& f, bool first, int k, int row, int col, double (&sums)[F::MT][F::NT][4]) {
    using PA = Piece<F::BM, F::S, F::THREADS, ALONG_A, WA, F::CG>;
    using PB = Piece<F::BN, F::S, F::THREADS, ALONG_B, WB, F::CG>;
    multiply<F, PA, PB>(f, first, k, row, col, sums);
}

// add_aligned adds up a tile's products by copies of two elements of the factors that are wide.
template <typename F, bool ALONG_A, bool ALONG_B>
__device__ __forceinline__ void add_aligned(Stream<F>& f, bool first, int k, bool wideA, bool wideB, int row, int col, double (&sums)[F::MT][F::NT][4]) {
    if constexpr (F::WIDTHS != Widths::NARROW_A)
        if (wideA && wideB) return add_tile<F, ALONG_A, ALONG_B, 2, 2>(f, first, k, row, col, sums);
    if constexpr (F::WIDTHS == Widths::MIXED)
        if (wideA) return add_tile<F, ALONG_A, ALONG_B, 2, 1>(f, first, k, row, col, sums);
    if constexpr (F::WIDTHS != Widths::SAME)
        if (wideB) return add_tile<F, ALONG_A, ALONG_B, 1, 2>(f, first, k, row, col, sums);
    add_tile<F, ALONG_A, ALONG_B, 1, 1>(f, first, k, row, col, sums);
}

// write_rows writes a warp's sums by eight rows, through a place of its own: the stages hold the next tile's pieces.
template <typename F> __device__ __forceinline__ void write_rows(const Target<double>& target, const double (&sums)[F::MT][F::NT][4], int row, int col) {
    constexpr int COLS = 8 * F::NT;
    static_assert(COLS == 32, "lanes write a row");
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, lane = threadIdx.x % 32, half = lane / 16, pair = lane % 16 * 2;
    double* const place = dynamic + F::PLACES + threadIdx.x / 32 * F::PLACE;
    double* to = target.c + row * target.down + col + lane;
    const int rows = col + lane < target.cols ? target.rows - row : 0;
#pragma unroll
    for (int i = 0; i < 2 * F::MT; i++) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < F::NT; j++)
            *reinterpret_cast<double2*>(place + g * F::PITCH + 8 * j + 2 * q) = make_double2(sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]);
        __syncwarp();
        if (target.wide) {
#pragma unroll
            for (int r = 0; r < 8; r += 2) {
                Pack<double> v;
                v.v = *reinterpret_cast<const double2*>(place + (r + half) * F::PITCH + pair);
                target.put(row + 8 * i + r + half, col + pair, v);
            }
        } else {
#pragma unroll
            for (int r = 0; r < 8; r++, to += target.down)
                if (8 * i + r < rows) *to = place[r * F::PITCH + lane];
        }
    }
}

// write_columns writes a warp's sums by eight columns, of a C that is stored transposed.
template <typename F> __device__ __forceinline__ void write_columns(const Target<double>& target, const double (&sums)[F::MT][F::NT][4], int row, int col) {
    static_assert(16 * F::MT == 32 && F::WM == 1, "lanes write a column");
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, lane = threadIdx.x % 32;
    double* const place = dynamic + F::PLACES + threadIdx.x / 32 * F::PLACE;
    double* to = target.c + lane + col * target.across;
    const int cols = lane < target.rows ? target.cols - col : 0;
#pragma unroll
    for (int j = 0; j < F::NT; j++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2 * F::MT; i++) {
            place[2 * q * F::PITCH + 8 * i + g] = sums[i / 2][j][i % 2 * 2];
            place[(2 * q + 1) * F::PITCH + 8 * i + g] = sums[i / 2][j][i % 2 * 2 + 1];
        }
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 8; c++, to += target.across)
            if (8 * j + c < cols) *to = place[c * F::PITCH + lane];
    }
}

// write writes a tile of sums, those of a cluster's blocks added up.
template <typename F> __device__ __forceinline__ void write(const Share& s, const Target<double>& target, const double (&sums)[F::MT][F::NT][4], int row, int col) {
    if constexpr (F::GROUPS > 1) return finish<F>(target, bring<F>(sums, row, col));
    if (s.parts > 1) return join<F>(s, target, sums, row, col);
    if (!F::STREAM && target.epilogue.steps == 0 && target.wide) {
        const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < F::MT; i++)
#pragma unroll
            for (int j = 0; j < F::NT; j++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    Pack<double> v;
                    v.v = make_double2(sums[i][j][2 * r], sums[i][j][2 * r + 1]);
                    target.put(row + 16 * i + r * 8 + g, col + 8 * j + 2 * q, v);
                }
        return;
    }
    if (target.epilogue.steps != 0) return finish<F>(target, bring<F>(sums, row, col)); // the block's only tile
    // rows begin anywhere: a warp's lanes write side by side
    if constexpr (F::STREAM && F::FEW)
        if (s.turned) return write_columns<F>(target, sums, row, col);
    if constexpr (F::STREAM) return write_rows<F>(target, sums, row, col);
    const double* const t = bring<F>(sums, row, col);
    const bool turned = F::FEW && s.turned;
#pragma unroll 4
    for (int i = threadIdx.x; i < F::BM * F::BN; i += F::THREADS) {
        const int r = turned ? i % F::BM : i / F::BN, c = turned ? i / F::BM : i % F::BN;
        if (r < target.rows && c < target.cols) target.c[r * target.down + c * target.across] = t[r * F::LD + c];
    }
}

// share is a block's work of a number. Sums of k terms are cut into chunks: a cluster adds up parts of them, and clusters
// with the other chunks of a tile write copies of C, [copies][batch]. Tiles are numbered down groups of 8 rows
// of tiles, so that the blocks at work at one time share their factors in the level-2 cache.
template <typename F> __device__ __forceinline__ Share Tiles::share(unsigned id) const {
    constexpr unsigned GROUP = 8;
    const unsigned tilesM = (unsigned)((m + F::BM - 1) / F::BM), tilesN = (unsigned)((n + F::BN - 1) / F::BN), tiles = tilesM * tilesN;
    Share s;
    s.parts = parts;
    s.turned = turned;
    s.part = id & (parts - 1); // parts is a power of 2
    id >>= 31 - __clz(parts);
    s.z = id / tiles;
    id -= s.z * tiles;
    const unsigned copy = batch == 1 ? s.z : s.z / (unsigned)batch;
    s.matrix = s.z - copy * (unsigned)batch;
    const i64 k0 = ((i64)copy * parts + s.part) * chunk;
    s.k = (int)max(min(k - k0, chunk), 0ll);           // the plan keeps chunk below 2^30
    unsigned top = 0, down = tilesM;
    if (tilesM > GROUP) {
        top = id / (GROUP * tilesN) * GROUP;
        id -= top * tilesN;
        down = min(tilesM - top, GROUP);
    }
    const unsigned across = id / down;
    const i64 nextA = transA ? m : 1, nextB = transB ? 1 : n;
    s.a = {a + s.matrix * m * k + k0 * nextA, (i64)(top + id - across * down) * F::BM, m, transA ? 1 : k, nextA};
    s.b = {b + s.matrix * k * n + k0 * nextB, (i64)across * F::BN, n, transB ? k : 1, nextB};
    return s;
}

// product computes a block's tiles.
template <typename F>
__device__ __forceinline__ void product(const Tiles& tiles, double* c, const Epilogue<double>& epilogue) {
    Stream<F> f = {tiles, blockIdx.x, 0, 0, F::STAGES - 1};
    const bool transA = tiles.transA, transB = tiles.transB;
    const auto aligned = [](const double* p, i64 ld) { return ld % 2 == 0 && reinterpret_cast<unsigned long long>(p) % 16 == 0; };
    const bool wideA = aligned(tiles.a, transA ? tiles.m : tiles.k), wideB = aligned(tiles.b, transB ? tiles.k : tiles.n);
    const int warp = threadIdx.x / 32 % F::WARPS, row = warp / F::WN * (F::BM / F::WM), col = warp % F::WN * (F::BN / F::WN);
    unsigned id = blockIdx.x;
#pragma unroll 1
    do {
        double sums[F::MT][F::NT][4] = {};
        const int k = tiles.share<F>(id).k;
#define TILE(ALONG_A, ALONG_B) add_aligned<F, ALONG_A, ALONG_B>(f, id == blockIdx.x, k, wideA, wideB, row, col, sums)
        if (!transA && transB) TILE(true, true);
        else if (!transA) TILE(true, false);
        else if (transB) TILE(false, true);
        else TILE(false, false);
        const Share s = tiles.share<F>(id);
        write<F>(s, s.target<F>(c, tiles.m, tiles.n, epilogue), sums, row, col);
    } while (F::STREAM && (id += gridDim.x) < tiles.count);
}
#define BODY(...) __VA_ARGS__
#else // plans use it nowhere else
#define BODY(...)
#endif

#define ARGUMENTS const double *a, const double *b, double *c, i64 m, i64 n, i64 k, int transA, int transB, i64 batch, i64 chunk
#define RUN(PARTS, TURNED, ...) \
    follow();                   \
    BODY((product<Double<__VA_ARGS__>>({a, b, m, n, k, batch, chunk, transA, transB, PARTS, TURNED, (unsigned)count}, c, EPILOGUE(double)));)
#define DOUBLE(name, BLOCKS, WM, WN, GROUPS, ...) \
    extern "C" __global__ void __launch_bounds__(WM * WN * GROUPS * 32, BLOCKS) matmul_double_##name(ARGUMENTS, int count, int parts, EPILOGUE_ARGUMENTS(double)) { RUN(parts, false, __VA_ARGS__, WM, WN) }
#define FEW(name, BLOCKS, WM, WN, ...) \
    extern "C" __global__ void __launch_bounds__(WM * WN * 32, BLOCKS) matmul_double_##name(ARGUMENTS, int count, int turned, EPILOGUE_ARGUMENTS(double)) { RUN(1, turned != 0, __VA_ARGS__, Widths::NARROW_A, 1, true, WM, WN) }
// Blocks on a multiprocessor; warps down and across, in groups; tile, step along k and stages, copies past the first-level cache, their widths, and whether
// blocks compute several tiles.
DOUBLE(large, 1, 2, 4, 1, 128, 128, 16, 4, false, Widths::SAME, 1, false)
DOUBLE(small, 2, 2, 2, 1, 64, 64, 16, 4, true, Widths::MIXED, 1, true)
DOUBLE(oblong, 2, 2, 2, 1, 64, 32, 16, 6, true, Widths::SAME, 1, false)
DOUBLE(tiny, 4, 2, 2, 1, 32, 32, 16, 4, true, Widths::SAME, 1, false)
DOUBLE(sliced, 2, 1, 1, 4, 32, 32, 64, 3, true, Widths::SAME, 4, false)
// Few rows, times a large B; the same for few columns, as a product of transposes.
FEW(rows, 2, 1, 4, 32, 128, 16, 4, true)
