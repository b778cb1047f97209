// A matrix times a vector, batched: bound by memory. float32 sums in float32, float64 in float64, by FMA.
//
// rows: y[r] = sum over l of x[r][l] * v[l]. In float32 a warp takes four rows that begin at the same place
// within 16 bytes, neighbours or 2 or 4 rows apart, which depends on k: so a lane reads 16 bytes at a time
// whatever k is, and each element of v that it reads serves four times. In float64 it takes one row (line), an element a lane.
//
// short: the same for rows of few terms, by a group of lanes each.
//
// columns: y[j] = sum over l of v[l] * x[l][j]. A lane takes 16 bytes of columns, the block's warps take rows
// in turn, and their sums are added in order. Where rows begin anywhere, each warp's rows begin at the same
// place within 16 bytes, and warps take their columns from there on.
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

template <typename T>
__device__ void rows(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 count, i64 k, i64 batch, i64 chunk, const Epilogue<T>& epilogue) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, R = 4, STEP = 32 * W;
    const int step = apart<T>(k), lane = threadIdx.x % 32;
    const i64 groups = (count + R * step - 1) / (R * step) * step, id = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    const i64 rest = id / groups, group = id - rest * groups;
    const i64 split = batch == 1 ? rest : rest / batch, matrix = rest - split * batch;
    const i64 row = group / step * (R * step) + group % step, k0 = split * chunk, left = min(k - k0, chunk);
    if (row >= count || split > 0 && left <= 0) return;
    v += matrix * k + k0;
    x += (matrix * count + row) * k + k0;
    const i64 next = step * k;
    const int mine = (int)min((count - row + step - 1) / step, (i64)R);
    const int head = (int)min((i64)((W - place(x)) % W), left), tail = (int)((left - head) % W);
    const i64 end = left - tail;
    T sum[R][W];
#pragma unroll
    for (int i = 0; i < R * W; i++) sum[i / W][i % W] = 0;
    if (lane < head || lane >= 16 && lane - 16 < tail) { // elements at either end that do not fill 16 bytes
        const i64 e = lane < head ? lane : end + lane - 16;
#pragma unroll
        for (int i = 0; i < R; i++)
            if (i < mine) sum[i][0] = x[i * next + e] * v[e];
    }
    const bool along = place(v + head) == 0;
#pragma unroll 2
    for (i64 l = head + lane * W; l < end; l += STEP) {
        Pack<T> a[R], f;
#pragma unroll
        for (int i = 0; i < R; i++)
            if (i < mine) a[i].v = read_once(reinterpret_cast<const U*>(x + i * next + l));
        if (along) f.v = *reinterpret_cast<const U*>(v + l);
        else {
#pragma unroll
            for (int e = 0; e < W; e++) f.s[e] = v[l + e];
        }
#pragma unroll
        for (int i = 0; i < R; i++)
            if (i < mine) {
#pragma unroll
                for (int e = 0; e < W; e++) sum[i][e] += a[i].s[e] * f.s[e];
            }
    }
    T own = 0;
#pragma unroll
    for (int i = 0; i < R; i++) {
        T t = 0;
#pragma unroll
        for (int e = 0; e < W; e++) t += sum[i][e];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) t += __shfl_xor_sync(0xffffffffu, t, d);
        if (lane == i) own = t;
    }
    const i64 at = row + lane * step;
    if (lane < mine) y[(split * batch + matrix) * count + at] = epilogue.of(own, matrix, at, 0);
}

// line computes one row per warp. Each lane loads eight elements at a time, including at the row's end, to keep many loads in flight.
template <typename T>
__device__ void line(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 count, i64 k, i64 batch, i64 chunk, const Epilogue<T>& epilogue) {
    constexpr int U = 8;
    const i64 id = (i64)blockIdx.x * 8 + threadIdx.x / 32, all = count * batch, split = id < all ? 0 : id / all, row = id - split * all;
    const i64 matrix = batch == 1 ? 0 : row / count, k0 = split * chunk;
    const int lane = threadIdx.x % 32;
    if (k0 >= k && split > 0) return;
    const int left = (int)min(k - k0, chunk);
    x += row * k + k0;
    v += matrix * k + k0;
    T sum[4] = {};
    int l = lane;
    for (; l + (U - 1) * 32 < left; l += U * 32) {
        T a[U], f[U];
#pragma unroll
        for (int u = 0; u < U; u++) a[u] = x[l + u * 32];
#pragma unroll
        for (int u = 0; u < U; u++) f[u] = v[l + u * 32];
#pragma unroll
        for (int u = 0; u < U; u++) sum[u % 4] += a[u] * f[u];
    }
    if (l < left) {
        T a[U], f[U];
#pragma unroll
        for (int u = 0; u < U; u++) a[u] = l + u * 32 < left ? x[l + u * 32] : T(0);
#pragma unroll
        for (int u = 0; u < U; u++) f[u] = l + u * 32 < left ? v[l + u * 32] : T(0);
#pragma unroll
        for (int u = 0; u < U; u++) sum[u % 4] += a[u] * f[u];
    }
    T t = (sum[0] + sum[1]) + (sum[2] + sum[3]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) t += __shfl_xor_sync(0xffffffffu, t, d);
    if (lane == 0) y[id] = epilogue.of(t, matrix, row - matrix * count, 0);
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
#define VECTOR(T, suffix)                                                                                         \
    ENTRY(shortrows, T, suffix, int lanes) { follow(); shortRows(a, v, c, count, k, batch, lanes, EPILOGUE(T)); } \
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
extern "C" __global__ void __launch_bounds__(256, 3) matmul_rows_f32(
    const float* a, const float* v, float* c, i64 count, i64 k, i64 batch, i64 chunk, EPILOGUE_ARGUMENTS(float)) {
    follow();
    rows(a, v, c, count, k, batch, chunk, EPILOGUE(float));
}
ENTRY(rows, double, f64, i64 chunk) { follow(); line(a, v, c, count, k, batch, chunk, EPILOGUE(double)); }
VECTOR(float, f32)
VECTOR(double, f64)
