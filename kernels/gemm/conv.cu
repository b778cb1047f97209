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
    const auto place = [](int column) { return column % SIDE * TN + column / SIDE; }; // the index of a column in shared memory: columns x, x + 16, ... of a thread are contiguous
    const auto store = [&](int stage) {
#pragma unroll
        for (int u = 0; u < TM; u++) left[stage][leftTerm][leftRow + SIDE * u] = nextLeft[u];
#pragma unroll
        for (int u = 0; u < TN; u++) {
            if constexpr (FILTERS)
                right[stage][rightTerm][place(rightColumn + SIDE * u)] = nextRight[u];
            else
                right[stage][rightTerm + ROWS * u][place(rightColumn)] = nextRight[u];
        }
    };
    const int y = thread / SIDE * TM, x = thread % SIDE; // of the thread's elements
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
            const Vec<T, TN> r = Vec<T, TN>::of(&right[stage][t][x * TN]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += l.v[i] * r.v[j];
        }
        stage ^= 1;
        if (from + STEP < k1) store(stage);
        __syncthreads();
    }
    out += split * count + (i64)group * c.group;
#pragma unroll
    for (int j = 0; j < TN; j++) {
        const int column = n0 + x + SIDE * j;
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

// direct: a thread computes an element of outputs or images, for groups of few rows.
template <typename T>
__device__ void direct(const Gathered<T>& g, const T* __restrict__ matrix, T* __restrict__ out, int m, int n, int k, int groups, Rows a, Rows c) {
    const unsigned across = (n + blockDim.x - 1) / blockDim.x;
    unsigned id = blockIdx.x;
    const int column = id % across * blockDim.x + threadIdx.x, row = (id /= across) % m, group = (id /= m) % groups;
    const Phase v(g.rows, (id /= groups) % g.rows.phases), h(g.columns, id / g.rows.phases);
    if (column < n) {
        matrix += (i64)group * a.group + (i64)row * a.row;
        const auto pixel = g.pixel(group, v, h, column);
        const int down = v.first < g.rows.filter ? (g.rows.filter - v.first + g.rows.every - 1) / g.rows.every : 0, over = h.first < g.columns.filter ? (g.columns.filter - h.first + g.columns.every - 1) / g.columns.every : 0;
        const T *plane = pixel.base + (i64)pixel.y * g.width + pixel.x, *taps = matrix + v.first * g.widthTap + h.first;
        T sum = 0;
        for (int t = 0; t < k; t += g.taps.d, plane += g.plane, taps += g.outerTap)
            for (int i = 0; i < down; i++) {
                const bool inside = (unsigned)(pixel.y + i * g.rows.step) < (unsigned)g.rows.images;
                const T *const from = plane + (i64)(i * g.rows.step) * g.width, *const w = taps + i * g.rows.every * g.widthTap;
                int x = 0, t = 0;
#pragma unroll 3
                for (int j = 0; j < over; j++, x += g.columns.step, t += g.columns.every) sum += w[t] * load_if(from, x, inside && (unsigned)(pixel.x + x) < (unsigned)g.columns.images);
            }
        if (pixel.inside) out[(i64)group * c.group + (i64)row * c.row + pixel.place] = sum;
    }
    admit();
}

// filters: a block computes 8 x 8 elements of filters, for groups of few rows. A thread sums every 256th term of a split; its sums are added up by shuffles and through shared memory.
template <typename T>
__device__ void filters(const Gathered<T>& g, const T* __restrict__ matrix, T* __restrict__ out, int m, int n, int k, int chunk, int groups, i64 count, Rows a, Rows c) {
    constexpr int SIDE = 8, WARPS = 8;
    __shared__ T sums[WARPS][SIDE * SIDE];
    __shared__ Item items[SIDE];
    const int lane = threadIdx.x % 32, down = (m + SIDE - 1) / SIDE, across = (n + SIDE - 1) / SIDE;
    unsigned id = blockIdx.x;
    const int m0 = id % down * SIDE, n0 = (id /= down) % across * SIDE, group = (id /= across) % groups, split = id / groups, end = min(k, (split + 1) * chunk);
    const Phase v(g.rows, 0), h(g.columns, 0);
    if (threadIdx.x < SIDE) items[threadIdx.x] = g.item(g.tap(v, h, min(n0 + (int)threadIdx.x, n - 1)), n0 + threadIdx.x < n);
    __syncthreads();
    matrix += (i64)group * a.group + (i64)m0 * a.row;
    T sum[SIDE][SIDE] = {};
#pragma unroll 1
    for (int q = split * chunk + threadIdx.x; q < end; q += 256) {
        const auto pixel = g.pixel(group, v, h, q);
        const T *const row = matrix + pixel.place, *const corner = pixel.base + (i64)pixel.y * g.width + pixel.x;
        T l[SIDE], r[SIDE];
#pragma unroll
        for (int i = 0; i < SIDE; i++) l[i] = load_if(row, (int)((unsigned)i * (unsigned)a.row), m0 + i < m);
#pragma unroll
        for (int j = 0; j < SIDE; j++) r[j] = g.meet(corner, pixel.y, pixel.x, items[j]);
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++) sum[i][j] += l[i] * r[j];
    }
#pragma unroll
    for (int i = 0; i < SIDE * SIDE; i++) {
        T x = sum[i / SIDE][i % SIDE];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
        if (lane == i % 32) sums[threadIdx.x / 32][i] = x;
    }
    __syncthreads();
    if (threadIdx.x < SIDE * SIDE) {
        const int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
        T x = sums[0][threadIdx.x];
        for (int w = 1; w < WARPS; w++) x += sums[w][threadIdx.x];
        if (m0 + row < m && n0 + column < n) out[split * count + (i64)group * c.group + (i64)(m0 + row) * c.row + g.tap(v, h, n0 + column).place] = x;
    }
    admit();
}

// spread writes images whose elements at multiples of a stride are those of `from`, planes of rows x columns, and whose others are 0. A thread writes four.
template <typename T>
__device__ void spread(const T* __restrict__ from, T* __restrict__ out, i64 count, const Divide& high, const Divide& wide, const Divide& strideY, const Divide& strideX, int rows, int columns) {
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    int line = wide((int)first), x = (int)first - line * wide.d;
    const T* row; // of the line, or null
    const auto find = [&] {
        const int plane = high(line), y = line - plane * high.d, i = strideY(y);
        row = i * strideY.d == y && i < rows ? from + ((i64)plane * rows + i) * columns : nullptr;
    };
    find();
    Vec<T, 4> v;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const int j = strideX(x);
        v.v[u] = row && j * strideX.d == x && j < columns && first + u < count ? row[j] : T(0);
        if (++x == wide.d) x = 0, line++, find();
    }
    admit();
    if (first + 4 <= count && (unsigned long long)out % sizeof v == 0)
        *reinterpret_cast<Vec<T, 4>*>(out + first) = v;
    else
        for (int u = 0; u < 4; u++)
            if (first + u < count) out[first + u] = v.v[u];
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
    ENTRY(filters_direct, suffix, T, filters(GATHERED(T), matrix, out, m, n, k, chunk, groups, count, {groupA, rowA}, {groupC, rowC}))                  \
    extern "C" __global__ void __launch_bounds__(256) conv_spread_##suffix(const T* from, T* out, i64 count, DIVIDE(high), DIVIDE(wide), DIVIDE(strideY), DIVIDE(strideX), int rows, int columns) { \
        follow();                                                                                                                                       \
        spread(from, out, count, DIVIDE_OF(high), DIVIDE_OF(wide), DIVIDE_OF(strideY), DIVIDE_OF(strideX), rows, columns);                              \
    }
CONV(float, f32)
CONV(double, f64)
