// Convolution as a product whose operand is gathered from images as it is read (implicit GEMM), in the unit of the element type.
//
//	outputs  y[b][f][q]     = sum over (c, i) of w[f][c][i] x[b][c][q stride - pad + i dilation], 0 outside of x
//	images   x[b][c][p]     = sum over (f, i) of w[f][c][i] y[b][f][q], q stride - pad + i dilation = p, 0 outside of y
//	filters  w[f][c][i]     = sum over (b, q) of y[b][f][q] x[b][c][q stride - pad + i dilation]
//
// for each group of channels and filters; p, q and i are of two axes. m rows of a matrix in memory meet n columns of k terms. For outputs and images columns are
// pixels and terms are taps (channel, i), for filters it is the other way round. For images, pixels at a distance of stride meet the same taps: they are a phase, and
// each phase is a convolution with a part of the taps and without a stride.
// Sums are by FMA in the order of the terms; k is cut into splits where there are few blocks, which matmul_vector.cu's combine adds up.
#include "conv_gather.cuh"

// Several elements side by side in shared memory.
template <typename T, int N> struct alignas(N * sizeof(T) > 16 ? 16 : N * sizeof(T)) Vec {
    T v[N];
    static __device__ __forceinline__ const Vec& of(const T* p) { return *reinterpret_cast<const Vec*>(p); }
};

// tiles: a block computes 16 TM x 64 elements, a thread TM x 4 of them. Both operands pass through shared memory in steps of 16 terms; those of the next step are loaded while this one is
// multiplied. Where terms are taps, each is found once for a warp, which reads it from shared memory.
template <typename T, bool FILTERS, int TM>
__device__ void tiles(const Gathered<T>& g, const T* __restrict__ matrix, T* __restrict__ out, int m, int n, int k, int chunk, int groups, i64 count, Rows a, Rows c) {
    constexpr int THREADS = 256, SIDE = 16, STEP = 16, TN = 4, BM = SIDE * TM, BN = SIDE * TN, PAD = 16 / sizeof(T), ROWS = THREADS / BN;
    __shared__ __align__(16) T left[2][STEP][BM + PAD], right[2][STEP][BN + PAD];
    __shared__ Item items[FILTERS ? 1 : THREADS / 2]; // the terms of a step for each warp
    const int thread = threadIdx.x, down = (m + BM - 1) / BM, across = (n + BN - 1) / BN;
    unsigned id = blockIdx.x;
    const int m0 = id % down * BM, n0 = (id /= down) % across * BN, group = (id /= across) % groups;
    const Phase v(g.rows, (id /= groups) % g.rows.phases), h(g.columns, (id /= g.rows.phases) % g.columns.phases);
    const int split = id / g.columns.phases, k0 = split * chunk, k1 = min(k - k0, chunk) + k0;
    const int leftTerm = thread % STEP, leftRow = thread / STEP;
    const int rightColumn = FILTERS ? thread / STEP : thread % BN, rightTerm = FILTERS ? thread % STEP : thread / BN;
    using Pixel = typename Gathered<T>::Pixel;
    using Tap = typename Gathered<T>::Tap;
    const T* corner; // the element that the column meets without a tap's offset
    int pixelY, pixelX;
    Item column[TN]; // of filters
    if constexpr (FILTERS) {
#pragma unroll
        for (int u = 0; u < TN; u++) column[u] = g.item(g.tap(v, h, min(n0 + rightColumn + SIDE * u, n - 1)), n0 + rightColumn + SIDE * u < n);
    } else {
        const Pixel pixel = g.pixel(group, v, h, min(n0 + rightColumn, n - 1));
        corner = pixel.base + (i64)pixel.y * g.width + pixel.x, pixelY = pixel.y, pixelX = pixel.x;
    }
    matrix += (i64)group * a.group + (i64)(m0 + leftRow) * a.row;
    const int rows = m - m0 - leftRow;
    T nextLeft[TM], nextRight[TN], sum[TM][TN] = {};
    const auto load = [&](int from) {
        const int t = min(from + leftTerm, k - 1);
        bool has = from + leftTerm < k1;
        i64 at;
        if constexpr (FILTERS) {
            const Pixel here = g.pixel(group, v, h, t); // the same term in both operands
            at = here.place;
            corner = here.base + (i64)here.y * g.width + here.x, pixelY = has ? here.y : Item::NONE, pixelX = here.x;
        } else {
            const Tap of = g.tap(v, h, t);
            at = of.place;
            __syncwarp(); // all have read the terms before
            if (thread % 32 < STEP) items[thread / 32 * STEP + leftTerm] = g.item(of, has);
            __syncwarp();
            has = has && of.inside;
        }
        const T* const p = matrix + at;
        const int limit = has ? rows : 0;
#pragma unroll
        for (int u = 0; u < TM; u++) nextLeft[u] = load_if(p, (int)((unsigned)(SIDE * u) * (unsigned)a.row), SIDE * u < limit);
#pragma unroll
        for (int u = 0; u < TN; u++) nextRight[u] = g.meet(corner, pixelY, pixelX, FILTERS ? column[u] : items[thread / 32 * STEP + rightTerm + ROWS * u]);
    };
    const auto store = [&](int stage) {
#pragma unroll
        for (int u = 0; u < TM; u++) left[stage][leftTerm][leftRow + SIDE * u] = nextLeft[u];
#pragma unroll
        for (int u = 0; u < TN; u++) {
            if constexpr (FILTERS)
                right[stage][rightTerm][rightColumn + SIDE * u] = nextRight[u];
            else
                right[stage][rightTerm + ROWS * u][rightColumn] = nextRight[u];
        }
    };
    const int y = thread / SIDE * TM, x = thread % SIDE * 2; // of the thread's elements: TM rows, two columns and two half a tile beside them
    load(k0);
    store(0);
    __syncthreads();
    int stage = 0;
#pragma unroll 1
    for (int from = k0; from < k1; from += STEP) {
        if (from + STEP < k1) load(from + STEP);
#pragma unroll
        for (int t = 0; t < STEP; t++) {
            const Vec<T, TM> l = Vec<T, TM>::of(&left[stage][t][y]);
            const Vec<T, 2> r[2] = {Vec<T, 2>::of(&right[stage][t][x]), Vec<T, 2>::of(&right[stage][t][x + BN / 2])};
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += l.v[i] * r[j / 2].v[j % 2];
        }
        stage ^= 1;
        if (from + STEP < k1) store(stage);
        __syncthreads();
    }
    out += split * count + (i64)group * c.group;
#pragma unroll
    for (int j = 0; j < TN; j++) {
        const int column = n0 + x + j / 2 * (BN / 2) + j % 2;
        if (column >= n) continue;
        i64 at;
        if constexpr (FILTERS)
            at = g.tap(v, h, column).place;
        else {
            const Pixel to = g.pixel(group, v, h, column);
            if (!to.inside) continue;
            at = to.place;
        }
#pragma unroll
        for (int i = 0; i < TM; i++) {
            const int row = m0 + y + i;
            if (row < m) out[(i64)row * c.row + at] = sum[i][j];
        }
    }
    admit();
}

// direct: a thread computes an element of outputs or images, for groups of few rows, as those of a depthwise convolution.
template <typename T>
__device__ void direct(const Gathered<T>& g, const T* __restrict__ matrix, T* __restrict__ out, int m, int n, int k, int groups, Rows a, Rows c) {
    const unsigned across = (n + blockDim.x - 1) / blockDim.x;
    unsigned id = blockIdx.x;
    const int column = id % across * blockDim.x + threadIdx.x, row = (id /= across) % m, group = (id /= m) % groups;
    const Phase v(g.rows, (id /= groups) % g.rows.phases), h(g.columns, id / g.rows.phases);
    if (column < n) {
        matrix += (i64)group * a.group + (i64)row * a.row;
        const auto pixel = g.pixel(group, v, h, column);
        const int rows = g.taps.d / g.tapRow.d, across = g.tapRow.d;
        T sum = 0;
        for (int t = 0, base = 0; t < k; t += g.taps.d, base += g.plane, matrix += g.outerTap)
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < across; j++) {
                    const int y = v.first + i * g.rows.every, x = h.first + j * g.columns.every;
                    if (y < g.rows.filter && x < g.columns.filter) sum += matrix[y * g.widthTap + x] * g.at(pixel, {base, i * g.rows.step, j * g.columns.step, 0, true});
                }
        if (pixel.inside) out[(i64)group * c.group + (i64)row * c.row + pixel.place] = sum;
    }
    admit();
}

// filters: a block computes an element of filters, for groups of few rows. A thread sums every 256th term; the sums are added by a tree.
template <typename T>
__device__ void filters(const Gathered<T>& g, const T* __restrict__ matrix, T* __restrict__ out, int m, int n, int k, int groups, Rows a, Rows c) {
    __shared__ T sums[8];
    unsigned id = blockIdx.x;
    const int column = id % n, row = (id /= n) % m, group = id / m, lane = threadIdx.x % 32;
    const Phase v(g.rows, 0), h(g.columns, 0);
    matrix += (i64)group * a.group + (i64)row * a.row;
    const auto tap = g.tap(v, h, column);
    T sum = 0;
    for (int q = threadIdx.x; q < k; q += 256) {
        const auto pixel = g.pixel(group, v, h, q);
        sum += matrix[pixel.place] * g.at(pixel, tap);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = sums[0];
        for (int i = 1; i < 8; i++) sum += sums[i];
        out[(i64)group * c.group + (i64)row * c.row + tap.place] = sum;
    }
    admit();
}

// A guarded launch computes something only where a kernel of conv_hopper.cu before it has set `when`.
#define ENTRY(name, suffix, T, ...)                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) conv_##name##_##suffix(PARAMETERS(T)) {                                                           \
        follow();                                                                                                                                       \
        if (!guarded || *when) __VA_ARGS__;                                                                                                             \
    }
#define TILES(FILTERS, TM, T) tiles<T, FILTERS, TM>(GATHERED(T), matrix, out, m, n, k, chunk, groups, count, {groupA, rowA}, {groupC, rowC})
#define CONV(T, suffix)                                                                                                                                 \
    ENTRY(windows_tiles, suffix, T, TILES(false, 4, T))                                                                                                 \
    ENTRY(windows_strip, suffix, T, TILES(false, 1, T))                                                                                                 \
    ENTRY(windows_direct, suffix, T, direct(GATHERED(T), matrix, out, m, n, k, groups, {groupA, rowA}, {groupC, rowC}))                                 \
    ENTRY(filters_tiles, suffix, T, TILES(true, 4, T))                                                                                                  \
    ENTRY(filters_strip, suffix, T, TILES(true, 1, T))                                                                                                  \
    ENTRY(filters_direct, suffix, T, filters(GATHERED(T), matrix, out, m, n, k, groups, {groupA, rowA}, {groupC, rowC}))
CONV(float, f32)
CONV(double, f64)
