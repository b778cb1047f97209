// A matrix times a vector, batched: bound by memory. float32 sums in float32, float64 in float64, by FMA.
//
// rows: y[r] = sum over l of x[r][l] * v[l]. A group of 8 to 128 threads computes a row. Before a block waits for its prerequisite kernels, it launches
// its dependents and prefetches to L2 the first elements that it will read. The prefetch is correct even if a prerequisite kernel writes x, since writes go
// to L2 as well. In a chain of launches, the loads of the next matrix are in flight while this kernel ends. Rows of any alignment: the elements before and
// after the 16-byte vectors of a row are read one by one.
//
// longrows: the same for large matrices: fewer threads, with more loads in flight.
//
// short: the same for rows of few terms, by a group of lanes each.
//
// columns: y[j] = sum over l of v[l] * x[l][j]. A lane takes 16 bytes of columns, the block's warps take rows
// in turn, and their sums are added in order. Where rows begin anywhere, each warp's rows begin at the same
// place within 16 bytes, and warps take their columns from there on.
//
// joined columns: the same where rows begin at multiples of 16 bytes, or, 16 lanes, anywhere. The 8 blocks of a cluster split k; the first adds up
// their sums in order. A strip of columns is 8, 16 or 32 vectors of 16 bytes wide, one less where rows begin anywhere. If it is 8 wide and the matrix is
// small, each block prefetches its first rows to L2 before it waits, and launches its dependents, as in rows.
//
// flat: the same for few columns. A block loads consecutive rows as one contiguous array, 16 bytes per thread.
//
// k is cut into splits where there is too little work for the device. Each is summed into its own copy of y
// in scratch memory; combine adds the copies in the order of the splits, join many copies of few elements
// by a tree. No sum's order depends on timing.
//
// The launch that writes the result applies the epilogue to the sums (epilogue.cuh).
#include "epilogue.cuh"
#include "follow.cuh"
#include "inbox.cuh"

constexpr int CLUSTER = 8; // blocks that add up columns
#if __CUDA_ARCH__ >= 900
#define ON_CLUSTERS(...) __VA_ARGS__
#define IN_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else // devices without clusters take columns: the entry points are empty there
#define ON_CLUSTERS(...)
#define IN_CLUSTER
#endif

// place is the position of p within 16 bytes, in elements.
template <typename T> __device__ __forceinline__ int place(const T* p) { return (int)(reinterpret_cast<unsigned long long>(p) / sizeof(T) % Vec<T>::width); }

// apart returns how many rows of n elements lie between two that begin at the same place within 16 bytes.
template <typename T> __device__ __forceinline__ int apart(i64 n) {
    constexpr int W = Vec<T>::width;
    return n % W == 0 ? 1 : n % 2 == 0 ? W / 2 : W;
}

// read_once reads 16 bytes past the first-level cache.
__device__ __forceinline__ float4 read_once(const float4* p) {
    float4 v;
    asm("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ double2 read_once(const double2* p) {
    double2 v;
    asm("ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(p));
    return v;
}

template <typename T, int U, bool STREAMS>
__device__ void rows(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 count, i64 k, i64 batch, i64 chunk, int threads, const Epilogue<T>& epilogue) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, THREADS = 128;
    __shared__ T sums[THREADS / 32];
    const int lane = threadIdx.x & (threads - 1), log = __ffs(THREADS / threads) - 1; // 2^log rows a block
    const i64 all = count * batch;
    const unsigned blocks = (unsigned)((all + (1 << log) - 1) >> log), split = blockIdx.x < blocks ? 0 : blockIdx.x / blocks;
    const i64 id = ((i64)(blockIdx.x - split * blocks) << log) + threadIdx.x / threads, row = min(id, all - 1), k0 = split * chunk;
    const int left = (int)min(k - k0, chunk);
    x += row * k + k0;
    const int head = min(-place(x) & W - 1, left), vectors = (left - head) / W, tail = left - head & W - 1;
    const V* const p = reinterpret_cast<const V*>(x + head);
#if __CUDA_ARCH__ >= 900
#pragma unroll
    for (int u = 0; u < 2; u++)
        if (lane % 8 == 0 && lane + u * threads < vectors) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + lane + u * threads)); // of 128 bytes
#endif
    admit();
    follow();
    const i64 matrix = batch == 1 ? 0 : row / count;
    v += matrix * k + k0;
    T sum[W] = {};
    if (lane < head) sum[0] = x[lane] * v[lane];
    if (lane < tail) sum[0] += x[left - tail + lane] * v[left - tail + lane];
    const auto accumulate = [&](const bool along) { // the products of vectors; without branches between the loads, or U always in flight
        if constexpr (!STREAMS) {
#pragma unroll 1
            for (int i = lane; i < vectors; i += U * threads) {
                Pack<T> a[U], f[U];
#pragma unroll
                for (int u = 0; u < U; u++) a[u].v = read_once(p + min(i + u * threads, vectors - 1));
#pragma unroll
                for (int u = 0; u < U; u++) {
                    const T* const from = v + head + min(i + u * threads, vectors - 1) * W;
                    if (along) f[u].v = *reinterpret_cast<const V*>(from);
                    else {
#pragma unroll
                        for (int e = 0; e < W; e++) f[u].s[e] = from[e];
                    }
                }
#pragma unroll
                for (int u = 0; u < U; u++)
#pragma unroll
                    for (int e = 0; e < W; e++) {
                        const T next = sum[e] + a[u].s[e] * f[u].s[e];
                        if (u == 0 || i + u * threads < vectors) sum[e] = next;
                    }
            }
        } else {
            Pack<T> a[U], f[U];
            const auto load = [&](int u, int i) {
                if (i >= vectors) return;
                a[u].v = read_once(p + i);
                const T* const from = v + head + i * W;
                if (along) f[u].v = *reinterpret_cast<const V*>(from);
                else {
#pragma unroll
                    for (int e = 0; e < W; e++) f[u].s[e] = from[e];
                }
            };
#pragma unroll
            for (int u = 0; u < U; u++) load(u, lane + u * threads);
#pragma unroll 1
            for (int i = lane; i < vectors; i += U * threads) {
#pragma unroll
                for (int u = 0; u < U; u++) {
#pragma unroll
                    for (int e = 0; e < W; e++) {
                        const T next = sum[e] + a[u].s[e] * f[u].s[e];
                        if (u == 0 || i + u * threads < vectors) sum[e] = next;
                    }
                    load(u, i + (u + U) * threads);
                }
            }
        }
    };
    if (place(v + head) == 0) accumulate(true);
    else accumulate(false);
    T t = 0;
#pragma unroll
    for (int e = 0; e < W; e++) t += sum[e];
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        if (d < threads) t += __shfl_xor_sync(0xffffffffu, t, d);
    if (threads > 32) {
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = t;
        __syncthreads();
        t = 0;
        for (int w = 0; w < threads / 32; w++) t += sums[(threadIdx.x - lane) / 32 + w];
    }
    if (lane == 0 && id < all) y[split * all + row] = epilogue.of(t, matrix, row - matrix * count, 0);
}

template <typename T>
__device__ void shortRows(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 count, i64 k, i64 batch, int lanes, const Epilogue<T>& epilogue) {
    const i64 id = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / (unsigned)lanes, row = min(id, count * batch - 1);
    const int lane = threadIdx.x & (lanes - 1);
    const i64 matrix = batch == 1 ? 0 : row / count;
    x += row * k;
    v += matrix * k;
    T sum = 0;
#pragma unroll 4
    for (int l = lane; l < (int)k; l += lanes) sum += x[l] * v[l];
    for (int d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0 && id < count * batch) y[id] = epilogue.of(sum, matrix, id - matrix * count, 0);
}

template <typename T>
__device__ void columns(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 n, i64 k, i64 batch, i64 chunk, const Epilogue<T>& epilogue) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, WARPS = 8, V = 2; // a warp's rows begin at one place, since W divides WARPS
    __shared__ T partial[WARPS][V * 32 * W];
    const int width = n % W == 0 ? V * 32 * W : (V * 32 - 1) * W;
    const int strips = (int)((n + width - 1) / width), rest = blockIdx.x / strips, split = rest / (int)batch, matrix = rest - split * (int)batch;
    const i64 first = (i64)(blockIdx.x - rest * strips) * width, begin = split * chunk, end = min(k, begin + chunk);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += matrix * k * n + first;
    v += matrix * k;
    const int before = n % W == 0 ? 0 : place(x + (begin + warp) * n), inside = (int)min(n - first, (i64)V * 32 * W);
    int c[V]; // columns of the lane, from first on
    bool whole[V];
    T sum[V][W];
#pragma unroll
    for (int j = 0; j < V; j++) {
        c[j] = (j * 32 + lane) * W - before;
        whole[j] = first + c[j] >= 0 && c[j] + W <= inside;
#pragma unroll
        for (int e = 0; e < W; e++) sum[j][e] = 0;
    }
#pragma unroll 4
    for (i64 l = begin + warp; l < end; l += WARPS) {
        Pack<T> p[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            if (whole[j]) p[j].v = read_once(reinterpret_cast<const U*>(x + l * n + c[j]));
        const T f = v[l];
#pragma unroll
        for (int j = 0; j < V; j++)
            if (whole[j]) {
#pragma unroll
                for (int e = 0; e < W; e++) sum[j][e] += f * p[j].s[e];
            }
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (!whole[j] && c[j] < inside) {
            for (i64 l = begin + warp; l < end; l += WARPS) {
                const T f = v[l];
#pragma unroll
                for (int e = 0; e < W; e++)
                    if (first + c[j] + e >= 0 && c[j] + e < inside) sum[j][e] += f * x[l * n + c[j] + e];
            }
        }
#pragma unroll
        for (int e = 0; e < W; e++)
            if (c[j] + e >= 0) partial[warp][c[j] + e] = sum[j][e];
    }
    __syncthreads();
    const i64 at = first + threadIdx.x;
    if (threadIdx.x < width && at < n) {
        T t = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) t += partial[w][threadIdx.x];
        y[((i64)split * batch + matrix) * n + at] = epilogue.of(t, matrix, at, 0);
    }
}

#if __CUDA_ARCH__ >= 900
// joinedColumns with 16 lanes takes rows that begin anywhere: a thread's rows begin at the same place within 16 bytes, since W divides ROWS.
template <typename T, int LANES>
__device__ void joinedColumns(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 n, i64 k, i64 batch, i64 chunk, const Epilogue<T>& epilogue) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, ROWS = 256 / LANES, WARPS = 8, LOADS = 8;
    constexpr bool ANY = LANES == 16; // alignment of rows
    constexpr i64 SMALL = 10 << 20; // bytes of a matrix
    __shared__ Pack<T> partial[ANY ? ROWS : WARPS][LANES];
    __shared__ Pack<T> inbox[CLUSTER][LANES];
    __shared__ u64 full;
    const bool unaligned = ANY && n % W != 0;
    constexpr int WHOLE = LANES * W, LESS = (LANES - 1) * W; // columns of a strip; constants, since no function may be called before the wait
    const int width = unaligned ? LESS : WHOLE;
    const unsigned rank = blockIdx.x % CLUSTER, id = blockIdx.x / CLUSTER;
    const unsigned strips = unaligned ? (unsigned)((n + LESS - 1) / LESS) : (unsigned)((n + WHOLE - 1) / WHOLE), matrix = id / strips;
    open_inbox(&full, rank == 0 ? (int)sizeof(inbox) : 0);
    const i64 first = (i64)(id - matrix * strips) * width, begin = rank * chunk + threadIdx.x / LANES, end = min(k, (rank + 1) * chunk);
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / 32;
    const T* const row = x + matrix * k * n + first; // of the strip
    const int column = lane * W - (unaligned ? place(row + begin * n) : 0), columns = (int)min(n - first, (i64)width);
    const bool inside = column < columns && column + W > 0;
    // The 16 bytes of one thread may begin before the first matrix, and those of another one may end behind the last. Each reads that row, edge, by elements.
    i64 edge = -1;
    if (unaligned && row + column < x) edge = 0;
    if (unaligned && matrix == batch - 1 && row + (k - 1) * n + column + W > x + batch * k * n) edge = k - 1;
    x = row + column;
    v += matrix * k;
    if (LANES == 8 && n * k * (i64)sizeof(T) <= SMALL) {
#pragma unroll
        for (int u = 0; u < LOADS; u++)
            if (lane == 0 && inside && begin + u * ROWS < end) asm volatile("prefetch.global.L2 [%0];" ::"l"(x + (begin + u * ROWS) * n)); // of 128 bytes
        admit();
    }
    follow();
    Pack<T> sum;
#pragma unroll
    for (int e = 0; e < W; e++) sum.s[e] = 0;
#pragma unroll 1
    for (i64 l = begin; inside && l < end; l += LOADS * ROWS) {
        Pack<T> a[LOADS];
        T f[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const bool in = l + u * ROWS < end && !(ANY && l + u * ROWS == edge);
            f[u] = in ? v[l + u * ROWS] : T(0);
            if (in) a[u].v = read_once(reinterpret_cast<const U*>(x + (l + u * ROWS) * n));
            else {
#pragma unroll
                for (int e = 0; e < W; e++) a[u].s[e] = 0;
            }
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++)
#pragma unroll
            for (int e = 0; e < W; e++) sum.s[e] += f[u] * a[u].s[e];
    }
    if (ANY && inside && edge >= begin && edge < end && (edge - begin) % ROWS == 0) {
#pragma unroll
        for (int e = 0; e < W; e++)
            if (column + e >= 0 && column + e < columns) sum.s[e] += v[edge] * x[edge * n + e];
    }
    if (unaligned) {
#pragma unroll
        for (int e = 0; e < W; e++)
            if (column + e >= 0) partial[threadIdx.x / LANES][(column + e) / W].s[(column + e) % W] = sum.s[e];
    } else {
#pragma unroll
        for (int d = 16; d >= LANES; d /= 2) // none of 32 lanes
#pragma unroll
            for (int e = 0; e < W; e++) sum.s[e] += __shfl_xor_sync(0xffffffffu, sum.s[e], d);
        if (threadIdx.x % 32 < LANES) partial[warp][lane] = sum;
    }
    __syncthreads();
    cluster_wait(); // all blocks have begun
    if (threadIdx.x < LANES) {
        const int groups = unaligned ? ROWS : WARPS;
#pragma unroll
        for (int w = 1; w < (ANY ? ROWS : WARPS); w++)
#pragma unroll
            for (int e = 0; e < W; e++)
                if (!ANY || w < groups) sum.s[e] = (w == 1 ? partial[0][lane].s[e] : sum.s[e]) + partial[w][lane].s[e];
        send(0, &inbox[rank][lane].v, sum.v, &full);
    }
    const int t = threadIdx.x;
    if (rank > 0 || t >= LANES * W) return;
    await_inbox(&full);
    T total = 0;
#pragma unroll
    for (int c = 0; c < CLUSTER; c++) total += inbox[c][t / W].s[t % W];
    if (t < columns) y[matrix * n + first + t] = epilogue.of(total, matrix, first + t, 0);
}
#endif

// flat takes as many rows at a time as fill the block and end at a multiple of 16 bytes.
template <typename T>
__device__ void flat(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 n, i64 k, i64 batch, i64 chunk, const Epilogue<T>& epilogue) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, THREADS = 256;
    __shared__ T partial[THREADS * W];
    const i64 matrix = blockIdx.x % (unsigned)batch, split = blockIdx.x / (unsigned)batch;
    const i64 begin = split * chunk, end = min(k, begin + chunk);
    const int t = threadIdx.x, across = apart<T>(n), most = THREADS * W / (int)n, step = most / across * across;
    x += matrix * k * n + t * W;
    v += matrix * k;
    const bool mine = t * W < step * (int)n, wide = place(x + begin * n) == 0;
    int row[W];
    T acc[W];
#pragma unroll
    for (int e = 0; e < W; e++) row[e] = (t * W + e) / (int)n, acc[e] = 0;
    if (mine) {
        i64 l = begin;
#pragma unroll 4
        for (; l + step <= end; l += step) {
            Pack<T> p;
            if (wide) p.v = read_once(reinterpret_cast<const U*>(x + l * n));
            else {
#pragma unroll
                for (int e = 0; e < W; e++) p.s[e] = x[l * n + e];
            }
#pragma unroll
            for (int e = 0; e < W; e++) acc[e] += v[l + row[e]] * p.s[e];
        }
#pragma unroll
        for (int e = 0; e < W; e++)
            if (l + row[e] < end) acc[e] += v[l + row[e]] * x[l * n + e];
#pragma unroll
        for (int e = 0; e < W; e++) partial[t * W + e] = acc[e];
    }
    for (int all = step; all > 1;) { // the second half of the rows joins the first
        const int half = (all + 1) / 2;
        __syncthreads();
        for (int i = t; i < (all - half) * (int)n; i += THREADS) partial[i] += partial[half * (int)n + i];
        all = half;
    }
    __syncthreads();
    if (t < n) y[(split * batch + matrix) * n + t] = epilogue.of(partial[t], matrix, t, 0);
}

// combine: c[i] = sum over s of partial[s][i], i in [0, count), s in [0, splits), of matrices of m x n elements.
template <typename T>
__device__ void combine(const T* __restrict__ partial, T* __restrict__ c, i64 count, i64 splits, i64 m, i64 n, const Epilogue<T>& epilogue) {
    const i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        T sum = 0;
#pragma unroll 4
        for (i64 s = 0; s < splits; s++) sum += partial[s * count + i];
        if (epilogue.steps != 0) sum = epilogue.of(sum, i / n / m, i / n % m, i % n);
        c[i] = sum;
    }
}

// join is combine of many copies: a block's warps take copies of 32 elements in turn.
template <typename T>
__device__ void join(const T* __restrict__ partial, T* __restrict__ c, i64 count, i64 splits, i64 m, i64 n, const Epilogue<T>& epilogue) {
    constexpr int WARPS = 32;
    __shared__ T sums[WARPS][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 i = (i64)blockIdx.x * 32 + lane;
    T sum = 0;
    if (i < count) {
#pragma unroll 8
        for (i64 s = warp; s < splits; s += WARPS) sum += partial[s * count + i];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    sum = sums[lane][warp]; // of element warp
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    const i64 at = (i64)blockIdx.x * 32 + warp;
    if (lane == 0 && at < count) c[at] = epilogue.of(sum, at / n / m, at / n % m, at % n);
}

#define ENTRY(name, T, suffix, last)                                                                      \
    extern "C" __global__ void __launch_bounds__(256) matmul_##name##_##suffix(                           \
        const T* a, const T* v, T* c, i64 count, i64 k, i64 batch, last, EPILOGUE_ARGUMENTS(T))
#define JOINED(name, T, suffix, lanes)                                                                            \
    extern "C" __global__ void IN_CLUSTER __launch_bounds__(256) matmul_joined_##name##_##suffix(                 \
        const T* a, const T* v, T* c, i64 count, i64 k, i64 batch, i64 chunk, EPILOGUE_ARGUMENTS(T)) {            \
        ON_CLUSTERS(joinedColumns<T, lanes>(a, v, c, count, k, batch, chunk, EPILOGUE(T));)                           \
    }
#define ROWS_ARGUMENTS(T) const T *a, const T *v, T *c, i64 count, i64 k, i64 batch, i64 chunk, int each, EPILOGUE_ARGUMENTS(T)
#define VECTOR(T, suffix)                                                                                         \
    ENTRY(shortrows, T, suffix, int lanes) { follow(); shortRows(a, v, c, count, k, batch, lanes, EPILOGUE(T)); } \
    extern "C" __global__ void __launch_bounds__(128, 12) matmul_rows_##suffix(ROWS_ARGUMENTS(T)) {               \
        rows<T, 2, false>(a, v, c, count, k, batch, chunk, each, EPILOGUE(T));                                    \
    }                                                                                                             \
    JOINED(columns, T, suffix, 8)                                                                                 \
    JOINED(columns16, T, suffix, 16)                                                                              \
    JOINED(columns32, T, suffix, 32)                                                                              \
    ENTRY(columns, T, suffix, i64 chunk) { follow(); columns(a, v, c, count, k, batch, chunk, EPILOGUE(T)); }     \
    ENTRY(flat, T, suffix, i64 chunk) { follow(); flat(a, v, c, count, k, batch, chunk, EPILOGUE(T)); }           \
    extern "C" __global__ void __launch_bounds__(256) matmul_combine_##suffix(                                    \
        const T* partial, T* c, i64 count, i64 splits, i64 m, i64 n, EPILOGUE_ARGUMENTS(T)) {                     \
        follow();                                                                                                 \
        combine(partial, c, count, splits, m, n, EPILOGUE(T));                                                    \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(1024) matmul_join_##suffix(                                      \
        const T* partial, T* c, i64 count, i64 splits, i64 m, i64 n, EPILOGUE_ARGUMENTS(T)) {                     \
        follow();                                                                                                 \
        join(partial, c, count, splits, m, n, EPILOGUE(T));                                                       \
    }
VECTOR(float, f32)
extern "C" __global__ void __launch_bounds__(128, 8) matmul_longrows_f32(ROWS_ARGUMENTS(float)) {
    rows<float, 4, true>(a, v, c, count, k, batch, chunk, each, EPILOGUE(float));
}
VECTOR(double, f64)
