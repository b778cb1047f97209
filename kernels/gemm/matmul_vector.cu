// A matrix times a vector, batched: bound by memory. float32 sums in float32, float64 in float64, by FMA.
//
// rows: y[r] = sum over l of x[r][l] * v[l]. A group of 8 to 512 threads computes a row, or a part of it: the up to 8 blocks of a cluster take consecutive parts of the same rows, and the
// first adds up their sums in order. Before a block waits for its prerequisite kernels, it launches
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
// joined columns: the same where rows begin at multiples of 16 bytes, or, unaligned, anywhere. The up to 8 blocks of a cluster take rows in turn; the first
// adds up their sums in order. A strip of columns is 4 to 32 vectors of 16 bytes wide, 15 where rows begin anywhere. Each block prefetches its first rows to
// L2 before it waits, and launches its dependents, as in rows.
//
// flat: the same for few columns. A block loads consecutive rows as one contiguous array, 16 bytes per thread. The up to 8 blocks of a cluster take consecutive
// rows each; the first adds up their sums in order.
//
// k is cut into splits where there is too little work for the device. Each is summed into its own copy of y
// in scratch memory; combine adds the copies in the order of the splits, join many copies of few elements
// by a tree. No sum's order depends on timing.
//
// The launch that writes the result applies the epilogue to the sums (epilogue.cuh).
#include "epilogue.cuh"
#include "follow.cuh"
#include "inbox.cuh"
#include "place.cuh"

#if __CUDA_ARCH__ >= 900
constexpr int CLUSTER = 8; // the most blocks that add up columns
#define ON_CLUSTERS(...) __VA_ARGS__
#else // devices without clusters take columns: the entry points are empty there
#define ON_CLUSTERS(...)
#endif

#if __CUDA_ARCH__ / 100 == 9 // elsewhere no times say where they are faster, and the entry points only wait
#define ON_HOPPER(...) __VA_ARGS__
#else
#define ON_HOPPER(...) follow();
#endif

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

// load loads an element, or 16 bytes past the first-level cache. Neither is a load of constant memory (.nc): assemblers move those before the wait.
__device__ __forceinline__ void load(float& to, const float* p) { asm volatile("ld.global.f32 %0, [%1];" : "=f"(to) : "l"(p)); }
__device__ __forceinline__ void load(double& to, const double* p) { asm volatile("ld.global.f64 %0, [%1];" : "=d"(to) : "l"(p)); }
__device__ __forceinline__ void load(Pack<float>& to, const float* p) {
    asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to.s[0]), "=f"(to.s[1]), "=f"(to.s[2]), "=f"(to.s[3]) : "l"(p));
}
__device__ __forceinline__ void load(Pack<double>& to, const double* p) { asm volatile("ld.global.L1::no_allocate.v2.f64 {%0, %1}, [%2];" : "=d"(to.s[0]), "=d"(to.s[1]) : "l"(p)); }
// load_kept loads 16 bytes by way of the first-level cache.
__device__ __forceinline__ void load_kept(Pack<float>& to, const float* p) { asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to.s[0]), "=f"(to.s[1]), "=f"(to.s[2]), "=f"(to.s[3]) : "l"(p)); }
__device__ __forceinline__ void load_kept(Pack<double>& to, const double* p) { asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(to.s[0]), "=d"(to.s[1]) : "l"(p)); }

// exponent returns the e of 2^e.
__device__ __forceinline__ int exponent(unsigned n) { return 31 - __clz(n); }

#if __CUDA_ARCH__ >= 900
// send stores an element to p in another block's shared memory and counts it at that block's mbarrier.
__device__ __forceinline__ void send(unsigned block, float* p, float v, u64* full) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(in_block(block, p)), "r"(__float_as_uint(v)), "r"(in_block(block, full)) : "memory");
}
__device__ __forceinline__ void send(unsigned block, double* p, double v, u64* full) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(in_block(block, p)), "l"(__double_as_longlong(v)), "r"(in_block(block, full)) : "memory");
}
#endif

template <typename T, int U>
__device__ void rows(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 count, i64 k, i64 batch, i64 chunk, int threads, unsigned parts, const Epilogue<T>& epilogue) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, MOST = 512;
    __shared__ T sums[MOST / 32];
    const int lane = threadIdx.x & (threads - 1), log = exponent(blockDim.x) - exponent(threads); // 2^log rows a block, 16 at most
    const i64 all = count * batch;
#if __CUDA_ARCH__ / 100 != 9
    parts = 1; // only plans for 9.0 have more
#endif
    const unsigned rank = blockIdx.x & (parts - 1), block = blockIdx.x >> exponent(parts), blocks = (unsigned)((all + (1 << log) - 1) >> log), split = block < blocks ? 0 : block / blocks;
    const i64 id = ((i64)(block - split * blocks) << log) + threadIdx.x / threads, row = min(id, all - 1), k0 = (split * parts + rank) * chunk;
    const int left = (int)max(min(k - k0, chunk), 0ll);
    x += row * k + k0;
    const int head = min(-place(x) & W - 1, left), vectors = (left - head) / W, tail = left - head & W - 1;
    const V* const p = reinterpret_cast<const V*>(x + head);
#if __CUDA_ARCH__ >= 900
#pragma unroll
    for (int u = 0; u < 2; u++)
        if (lane % 8 == 0 && lane + u * threads < vectors) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + lane + u * threads)); // of 128 bytes
#endif
#if __CUDA_ARCH__ / 100 == 9
    __shared__ T inbox[CLUSTER][16];
    __shared__ u64 full;
    open_inbox(&full, rank == 0 ? (int)(parts * sizeof(T) << log) : 0);
#endif
    admit();
    follow();
    const i64 matrix = batch == 1 ? 0 : row / count;
    v += matrix * k + k0;
    T sum[W] = {};
    if (lane < head) sum[0] = x[lane] * v[lane];
    if (lane < tail) sum[0] += x[left - tail + lane] * v[left - tail + lane];
    const auto accumulate = [&](const bool along) { // the products of vectors, U of them always in flight
        Pack<T> a[U], f[U];
        const T *next = x + head + lane * W, *factors = v + head + lane * W;
        const i64 step = threads * 16ll;
        const int mine = vectors - lane + threads - 1 >> exponent(threads); // vectors of the thread
        const auto fetch = [&](int u, int i) {
            if (i < mine) {
                load(a[u], next);
                if (along) load_kept(f[u], factors);
                else {
#pragma unroll
                    for (int e = 0; e < W; e++) load(f[u].s[e], factors + e);
                }
            }
            asm volatile("add.s64 %0, %0, %2;\n\tadd.s64 %1, %1, %2;" : "+l"(next), "+l"(factors) : "l"(step)); // else registers hold the addresses of all loads
        };
#pragma unroll
        for (int u = 0; u < U; u++) fetch(u, u);
#pragma unroll 1
        for (int i = 0; i < mine; i += U) {
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int e = 0; e < W; e++) {
                    const T more = sum[e] + a[u].s[e] * f[u].s[e];
                    if (u == 0 || i + u < mine) sum[e] = more;
                }
                fetch(u, i + u + U);
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
#if __CUDA_ARCH__ / 100 == 9
    cluster_wait(); // all blocks have begun
    if (parts > 1) {
        if (lane == 0) send(0, &inbox[rank][threadIdx.x / threads], t, &full);
        if (rank > 0) return;
        await_inbox(&full);
        t = 0;
        for (int c = 0; c < parts; c++) t += inbox[c][threadIdx.x / threads];
    }
#endif
    if (lane == 0 && id < all) {
        i64 at = id;
        asm volatile("" : "+l"(at)); // else registers hold its matrix while rows are summed
        const i64 which = batch == 1 ? 0 : at / count;
        y[split * all + at] = epilogue.of(t, which, at - which * count, 0);
    }
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
// joinedColumns: groups of `lanes` threads, a power of 2 up to 32, take rows in turn, and a thread has LOADS rows in flight. ANY, with 16 lanes: rows begin
// anywhere, those of a thread at the same place within 16 bytes, since W divides the rows between them.
template <typename T, int THREADS, bool ANY>
__device__ void joinedColumns(const T* x, const T* v, T* y, i64 n, i64 k, i64 batch, int lanes, unsigned blocks, const Epilogue<T>& epilogue) {
    constexpr int W = Vec<T>::width, HALVES = W == 4 ? 2 : 1, WARP = 32, LOADS = 4; // HALVES: of the columns of a thread, until one is left
    __shared__ T partial[THREADS * W];
    __shared__ T inbox[CLUSTER][WARP * W];
    __shared__ u64 full;
    if (ANY) lanes = 16;
    const unsigned rank = blockIdx.x & (blocks - 1);
    const int log = exponent(lanes), logGroups = exponent(THREADS) - log, logStep = logGroups + exponent(blocks), lane = threadIdx.x & (lanes - 1), row = (threadIdx.x >> log) + (rank << logGroups), step = 1 << logStep;
    const int wide = lanes * W, width = ANY ? 15 * W : wide; // columns of a strip; no function, such as a 64-bit division, may be called before the wait
    open_inbox(&full, rank == 0 ? (int)(blocks * wide * sizeof(T)) : 0);
    const unsigned strips = ANY ? (unsigned)((n + 15 * W - 1) / (15 * W)) : (unsigned)((n + wide - 1) >> exponent(wide)), id = blockIdx.x >> exponent(blocks), matrix = id / strips;
    const i64 first = (i64)(id - matrix * strips) * width;
    const T* const strip = x + matrix * k * n + first;
    const int column = lane * W - (ANY ? place(strip + row * n) : 0), columns = (int)min(n - first, (i64)width);
    int count = column < columns && column + W > 0 ? (int)k + step - 1 - row >> logStep : 0; // rows of the thread
    const T* p = strip + row * n + column;
    v += matrix * k + row;
    i64 stride = step * n * (i64)sizeof(T), next = step * (i64)sizeof(T);
    asm volatile("" : "+l"(stride), "+l"(next)); // else they are computed again for each load
    // The 16 bytes of one thread may begin before the first matrix, and those of another one may end behind the last. They read these rows by elements.
    bool head = false, tail = false;
    const i64 last = row + (i64)(count - 1) * step;
    if (ANY) {
        head = count > 0 && p < x;
        tail = count > (head ? 1 : 0) && matrix == batch - 1 && strip + last * n + column + W > x + batch * k * n;
    }
#pragma unroll
    for (int u = 0; u < LOADS; u++) // of 128 bytes; NVRTC 12.9 crashes on p + u * stride alone, for 12.0
        asm volatile("{\n.reg .pred first;\nsetp.ne.s32 first, %1, 0;\n@first prefetch.global.L2 [%0];\n}" ::"l"(reinterpret_cast<const char*>(p) + (u < count ? u : 0) * stride),
                     "r"((int)((reinterpret_cast<u64>(p) % 128 == 0 || ANY && lane == 0) && !head && u < count - tail)));
    admit();
    follow();
    Pack<T> a[LOADS], sum;
    T f[LOADS];
#pragma unroll
    for (int e = 0; e < W; e++) sum.s[e] = 0;
    const auto element = [&](i64 l) { // the products of a row, by elements
        const T* const q = strip + l * n;
#pragma unroll
        for (int e = 0; e < W; e++)
            if (column + e >= 0 && column + e < columns) sum.s[e] += v[l - row] * q[column + e];
    };
    if (ANY && head) element(row);
    if (ANY && tail) element(last), count--;
    const T* w = v;
    const auto skip = [&] { asm volatile("add.s64 %0, %0, %2;\n\tadd.s64 %1, %1, %3;" : "+l"(p), "+l"(w) : "l"(stride), "l"(next)); }; // else registers hold the addresses of all loads
    if (ANY && head) count--, skip();
    const auto fetch = [&](int u, int i) {
        if (i < count) {
            load(f[u], w);
            load(a[u], p);
        }
        skip();
    };
#pragma unroll
    for (int u = 0; u < LOADS; u++) fetch(u, u);
#pragma unroll 1
    for (int i = 0; i < count; i += LOADS) {
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
#pragma unroll
            for (int e = 0; e < W; e++) {
                const T more = sum.s[e] + f[u] * a[u].s[e];
                if (u == 0 || i + u < count) sum.s[e] = more;
            }
            fetch(u, i + u + LOADS);
        }
    }
    const int warp = threadIdx.x / WARP;
    int groups = THREADS / WARP; // sums of a column
    if (ANY) {
        groups = THREADS >> log;
#pragma unroll
        for (int e = 0; e < W; e++)
            if (column + e >= 0) partial[(threadIdx.x >> log) * wide + column + e] = sum.s[e];
    } else if (lanes <= WARP >> HALVES) { // at each step a thread keeps half of its columns
        int at = lane * W;
#pragma unroll
        for (int h = 1; h <= HALVES; h++) {
            const bool upper = threadIdx.x & WARP >> h;
#pragma unroll
            for (int e = 0; e < W >> h; e++) {
                const T other = __shfl_xor_sync(0xffffffffu, upper ? sum.s[e] : sum.s[e + (W >> h)], WARP >> h);
                sum.s[e] = (upper ? sum.s[e + (W >> h)] : sum.s[e]) + other;
            }
            if (upper) at += W >> h;
        }
#pragma unroll
        for (int d = WARP >> HALVES + 1; d > 0; d /= 2)
            if (d >= lanes) sum.s[0] += __shfl_xor_sync(0xffffffffu, sum.s[0], d);
        if ((threadIdx.x & (WARP >> HALVES) - lanes) == 0) partial[warp * wide + at] = sum.s[0];
    } else {
#pragma unroll
        for (int d = WARP / 2; d > WARP >> HALVES + 1; d /= 2)
#pragma unroll
            for (int e = 0; e < W; e++)
                if (d >= lanes) sum.s[e] += __shfl_xor_sync(0xffffffffu, sum.s[e], d);
        if (threadIdx.x % WARP < lanes) *reinterpret_cast<Pack<T>*>(&partial[warp * wide + lane * W]) = sum;
    }
    __syncthreads();
    cluster_wait(); // all blocks have begun
    const int t = threadIdx.x;
    if (t >= wide) return;
    constexpr int SUMS = 4;
    T sums[SUMS] = {};
#pragma unroll 2
    for (int g = 0; g < groups; g += SUMS)
#pragma unroll
        for (int i = 0; i < SUMS; i++) sums[i] += partial[(g + i) * wide + t];
    T total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (blocks > 1) {
        send(0, &inbox[rank][t], total, &full);
        if (rank > 0) return;
        await_inbox(&full);
        total = 0;
        for (int c = 0; c < blocks; c++) total += inbox[c][t];
    }
    if (t < columns) y[matrix * n + first + t] = epilogue.of(total, matrix, first + t, 0);
}
#endif

// flat takes as many rows at a time as fill the block and end at a multiple of 16 bytes, so that a thread's vectors have the same columns, of two rows at most.
template <typename T>
__device__ void flat(const T* x, const T* v, T* y, i64 n, i64 k, i64 batch, i64 chunk, unsigned blocks, const Epilogue<T>& epilogue) {
    constexpr int W = Vec<T>::width, THREADS = 256, LOADS = 4, RADIX = 8;
    __shared__ T partial[THREADS * W];
    __shared__ T ends[W];
    ON_CLUSTERS(__shared__ T inbox[CLUSTER][THREADS]; __shared__ u64 full;)
    const unsigned rank = blockIdx.x & (blocks - 1), id = blockIdx.x >> exponent(blocks), split = id / (unsigned)batch, matrix = id - split * (unsigned)batch;
    ON_CLUSTERS(open_inbox(&full, rank == 0 ? (int)(blocks * n * sizeof(T)) : 0);)
    const i64 begin = (i64)(split * blocks + rank) * chunk;
    const int t = threadIdx.x, columns = (int)n, rows = (int)max(min(k - begin, chunk), 0ll);
    const int step = (int)(THREADS * W / (unsigned)columns) & -apart<T>(n), jump = step * columns;
    const int row = t * W / (unsigned)columns, same = (row + 1) * columns - t * W, next = same < W; // elements of the first row, and whether there is another one
    const int whole = (unsigned)rows / (unsigned)step;
    int count = whole + (t * W + W <= (rows - whole * step) * columns); // vectors of the thread
    asm volatile("" : "+r"(count)); // else the division is behind a branch
    count = t * W < jump ? count : 0;
    x += (matrix * k + begin) * n;
    v += matrix * k + begin;
    const T *p = x + t * W, *w = v + row;
#pragma unroll
    for (int u = 0; u < LOADS; u++) // of 128 bytes, without a branch before the wait
        asm volatile("{\n.reg .pred first;\nsetp.ne.s32 first, %1, 0;\n@first prefetch.global.L2 [%0];\n}" ::"l"(p + u * jump), "r"((int)(t % 8 == 0 && u < count)));
    admit();
    follow();
    const int tail = (int)((i64)rows * n & W - 1); // elements behind the last vector
    if (t < tail) {
        int column = columns - tail + t, last = rows - 1;
        for (; column < 0; column += columns) last--;
        T a, f;
        load(a, x + (i64)rows * n - tail + t);
        load(f, v + last);
        ends[t] = a * f;
    }
    const bool wide = place(p) == 0;
    T sum[W] = {};
#pragma unroll 1
    for (int i = 0; i < count; i += LOADS) {
        Pack<T> a[LOADS];
        T f[LOADS][2];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            if (i + u < count) {
                load(f[u][0], w);
                load(f[u][1], w + next);
                if (wide) load(a[u], p);
                else {
#pragma unroll
                    for (int e = 0; e < W; e++) load(a[u].s[e], p + e);
                }
            }
            p += jump;
            w += step;
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++)
#pragma unroll
            for (int e = 0; e < W; e++) {
                const T more = sum[e] + (e < same ? f[u][0] : f[u][1]) * a[u].s[e];
                if (u == 0 || i + u < count) sum[e] = more;
            }
    }
    if (t * W < jump) {
#pragma unroll
        for (int e = 0; e < W; e++) partial[t * W + e] = sum[e];
    }
    for (int all = step; all > 1;) { // a thread adds up an element of RADIX rows
        const int few = (all + RADIX - 1) / RADIX;
        __syncthreads();
        if (t < few * columns) {
            T total = partial[t];
#pragma unroll
            for (int j = 1; j < RADIX; j++)
                if (t + j * few * columns < all * columns) total += partial[t + j * few * columns];
            partial[t] = total;
        }
        all = few;
    }
    __syncthreads();
    T total = 0;
    if (t < columns) {
        total = partial[t];
        for (int i = 0; i < tail; i++)
            if ((columns - tail + i + W * columns) % columns == t) total += ends[i];
    }
#if __CUDA_ARCH__ >= 900
    cluster_wait(); // all blocks have begun
    if (blocks > 1) {
        if (t < columns) send(0, &inbox[rank][t], total, &full);
        if (rank > 0) return;
        await_inbox(&full);
        total = 0;
        if (t < columns)
            for (int c = 0; c < blocks; c++) total += inbox[c][t];
    }
#endif
    if (t < columns) y[((i64)split * batch + matrix) * n + t] = epilogue.of(total, matrix, t, 0);
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
#define JOINED(name, T, suffix, threads, any, ON)                                                                     \
    extern "C" __global__ void __launch_bounds__(threads, threads == 512 ? 2 : 5) matmul_joined_##name##_##suffix(    \
        const T* a, const T* v, T* c, i64 count, i64 k, i64 batch, int lanes, int blocks, EPILOGUE_ARGUMENTS(T)) {    \
        ON(joinedColumns<T, threads, any>(a, v, c, count, k, batch, lanes, blocks, EPILOGUE(T));)                     \
    }
#define SPLIT_ARGUMENTS(T) const T *a, const T *v, T *c, i64 count, i64 k, i64 batch, i64 chunk, int each
#define ROWS_ARGUMENTS(T) SPLIT_ARGUMENTS(T), int parts, EPILOGUE_ARGUMENTS(T)
#define VECTOR(T, suffix)                                                                                         \
    ENTRY(shortrows, T, suffix, int lanes) { follow(); shortRows(a, v, c, count, k, batch, lanes, EPILOGUE(T)); } \
    extern "C" __global__ void __launch_bounds__(512, 3) matmul_rows_##suffix(ROWS_ARGUMENTS(T)) {               \
        rows<T, 2>(a, v, c, count, k, batch, chunk, each, parts, EPILOGUE(T));                             \
    }                                                                                                             \
    JOINED(columns, T, suffix, 256, false, ON_CLUSTERS)                                                           \
    JOINED(unaligned, T, suffix, 256, true, ON_HOPPER)                                                            \
    ENTRY(columns, T, suffix, i64 chunk) { follow(); columns(a, v, c, count, k, batch, chunk, EPILOGUE(T)); }     \
    extern "C" __global__ void __launch_bounds__(256) matmul_flat_##suffix(SPLIT_ARGUMENTS(T), EPILOGUE_ARGUMENTS(T)) { \
        flat(a, v, c, count, k, batch, chunk, each, EPILOGUE(T));                                                 \
    }                                                                                                             \
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
JOINED(columns_wide, float, f32, 512, false, ON_HOPPER)
extern "C" __global__ void __launch_bounds__(512, 2) matmul_longrows_f32(ROWS_ARGUMENTS(float)) {
    ON_HOPPER(rows<float, 4>(a, v, c, count, k, batch, chunk, each, parts, EPILOGUE(float));)
}
VECTOR(double, f64)
