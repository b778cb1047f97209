// C = op(A) op(B) of few columns, batched, where the terms of a row of op(A) lie side by side: mostly A is read, once.
//
//	y[i][c] = sum over l of x[i][l] * v[l][c],  i in [0, m), c in [0, n), n at most R, l in [0, k)
//
// A thread computes V rows. Its warp copies 128 bytes of each of its rows at a time to shared memory, one piece while it computes
// with another, and waits for no other warp but where the block needs further terms of v, which lie in shared memory STEP at a
// time. The rows of a warp begin at the same place within A elements (they are 1, 2 or 4 apart, which depends on k): so it
// copies whole sectors in float64, reads and writes 16 bytes at a time wherever rows begin, and its lanes need the same terms of v. Sums are by FMA in the
// order of the terms; k is cut into splits where there are few rows, which matmul_vector.cu's combine adds up. An epilogue is
// left to it too.
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "follow.cuh"
#include "vector.cuh"
typedef long long i64;

extern __shared__ float4 dynamic[];

template <typename T, int R, int V, int STAGES>
__device__ __forceinline__ void narrow(const T* __restrict__ x, const T* __restrict__ v, T* __restrict__ y, i64 m, int n, i64 k, i64 colV, i64 termV, i64 strideV, i64 rowY,
                                       i64 colY, i64 batch, i64 chunk) {
    using U = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, A = 4, WARPS = 4, THREADS = 32 * WARPS, SLOTS = 32 * V, ROWS = SLOTS * WARPS;
    constexpr int PIECES = 8, TERMS = PIECES * W, PITCH = PIECES + 1; // of a row in a stage, and its pitch in shared memory in 16 bytes
    constexpr int STEP = R * sizeof(T) <= 64 ? 256 : 128;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const unsigned blocks = (unsigned)((m + ROWS - 1) / ROWS), all = blocks * (unsigned)batch;
    const unsigned split = blockIdx.x / all, id = blockIdx.x - split * all, matrix = id / blocks;
    const i64 row0 = (i64)(id - matrix * blocks) * ROWS, k0 = split * chunk;
    const int terms = (int)min(k - k0, chunk);
    const int log = k % A == 0 ? 0 : k % 2 == 0 ? 1 : 2, apart = 1 << log; // of rows that begin at the same place
    const int part = warp % apart + ((warp >> log) * SLOTS << log), inside = (int)min(m - row0, (i64)ROWS); // the warp's first row in the block, and the block's rows
    const int mine = min(max(inside - part + apart - 1, 0) >> log, SLOTS);
    U* const tile = reinterpret_cast<U*>(dynamic) + warp * (STAGES * SLOTS * PITCH);
    T* const factors = reinterpret_cast<T*>(reinterpret_cast<U*>(dynamic) + WARPS * STAGES * SLOTS * PITCH); // from A terms before the step's first
    follow();
    const T *const begin = x, *const end = x + batch * m * k;
    x += (matrix * m + row0 + part) * k + k0;
    v += matrix * strideV + k0 * termV;
    const int before = (int)(reinterpret_cast<unsigned long long>(x) / sizeof(T) % A), length = before + terms; // of a row, from where A elements begin
    const int stages = ((apart == 1 ? before : A - 1) + terms + TERMS - 1) / TERMS;
    const i64 next = k << log;
    x -= before;
    const bool whole = x >= begin && x + (mine - 1) * next + (length + W - 1) / W * W <= end; // all 16 bytes at a time
    constexpr int LANES = 32 / PIECES; // rows that a warp copies at a time
    const int first = lane / PIECES;
    x += first * next;
    const auto copy = [&](int stage) {
        const int q = stage * TERMS + lane % PIECES * W;
        if (q >= length) return;
        U* to = tile + stage % STAGES * (SLOTS * PITCH) + first * PITCH + lane % PIECES;
        const T* from = x + q;
        if (whole) {
#pragma unroll 4
            for (int i = 0; i < SLOTS; i += LANES, from += LANES * next, to += LANES * PITCH)
                if (first + i < mine) async_copy(to, reinterpret_cast<const U*>(from));
            return;
        }
#pragma unroll 1
        for (int i = first; i < mine; i += LANES, from += LANES * next, to += LANES * PITCH)
#pragma unroll 1
            for (int e = 0; e < W; e++)
                if (q + e >= before && q + e < length) async_copy(reinterpret_cast<T*>(to) + e, from + e);
    };
    T sum[V][R];
#pragma unroll
    for (int i = 0; i < V * R; i++) sum[i / R][i % R] = 0;
#pragma unroll 1
    for (int s = 1 - STAGES; s < stages; s++) {
        const int from = s * TERMS / STEP * STEP - A; // the term of factors
        if (s >= 0 && s * TERMS % STEP == 0) {
            const int count = min(STEP + A, terms + A - from);
            constexpr int LINES = THREADS / R; // terms that the block takes at a time
            const int c = t % R;
            __syncthreads();
            if (t < LINES * R) {
                const T* f = v + (from + t / R) * termV + c * colV;
#pragma unroll 4
                for (int l = t / R; l < count; l += LINES, f += LINES * termV) {
                    T value = 0;
                    if (c < n && (unsigned)(from + l) < (unsigned)terms) value = *f;
                    factors[l * R + c] = value;
                }
            }
            __syncthreads();
        }
        arrived<STAGES - 2>();
        __syncwarp();
        if (s + STAGES - 1 < stages) copy(s + STAGES - 1);
        commit();
        if (s < 0) continue;
        const U* const rows = tile + s % STAGES * (SLOTS * PITCH) + lane * PITCH;
#pragma unroll 1
        for (int g = 0; g < PIECES; g++) {
            const int l = s * TERMS + g * W - before;
            if (l >= terms) break;
            Pack<T> a[V];
#pragma unroll
            for (int i = 0; i < V; i++) a[i].v = rows[i * 32 * PITCH + g];
            if (l < 0 || l + W > terms) { // elements of other rows may be Inf or NaN
#pragma unroll
                for (int i = 0; i < V * W; i++)
                    if ((unsigned)(l + i % W) >= (unsigned)terms) a[i / W].s[i % W] = 0;
            }
            const T* const f = factors + (l - from) * R;
#pragma unroll
            for (int e = 0; e < W; e++)
#pragma unroll
                for (int c = 0; c < R; c += W) {
                    Pack<T> b;
                    b.v = *reinterpret_cast<const U*>(f + e * R + c);
#pragma unroll
                    for (int i = 0; i < V; i++)
#pragma unroll
                        for (int w = 0; w < W; w++) sum[i][c + w] += a[i].s[e] * b.s[w];
                }
        }
    }
    // C by way of shared memory, so that lanes write it side by side
    T* const out = reinterpret_cast<T*>(dynamic);
    const int pitch = n | 1;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int c = 0; c < R; c++)
            if (c < n) out[(part + (lane + i * 32 << log)) * pitch + c] = sum[i][c] + T(0); // as combine makes of one copy: no -0
    __syncthreads();
    y += (split * batch + matrix) * m * n + row0 * rowY;
    if (colY == 1) {
        int r = t / n, c = t % n;
        const int dr = THREADS / n, dc = THREADS % n;
#pragma unroll 4
        for (int i = t; i < inside * n; i += THREADS) {
            y[i] = out[r * pitch + c];
            r += dr, c += dc;
            if (c >= n) c -= n, r++;
        }
    } else
#pragma unroll 4
        for (int i = t; i < ROWS * n; i += THREADS)
            if (i % ROWS < inside) y[i / ROWS * colY + i % ROWS] = out[i % ROWS * pitch + i / ROWS];
    admit();
}

// Other devices take tiles: the entry points are empty there.
#if __CUDA_ARCH__ == 900
#define ON_HOPPER(...) __VA_ARGS__
#else
#define ON_HOPPER(...)
#endif
#define ENTRY(T, name, R, V, STAGES, BLOCKS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS) matmul_narrow##R##_##name(                                                        \
        const T* a, const T* b, T* c, i64 m, i64 n, i64 k, i64 colV, i64 termV, i64 strideV, i64 rowY, i64 colY, i64 batch, i64 chunk) {          \
        ON_HOPPER(narrow<T, R, V, STAGES>(a, b, c, m, (int)n, k, colV, termV, strideV, rowY, colY, batch, chunk);)                               \
    }
ENTRY(float, f32, 4, 1, 3, 3)
ENTRY(float, f32, 8, 1, 3, 3)
ENTRY(float, f32, 12, 2, 2, 2)
ENTRY(float, f32, 16, 2, 2, 2)
ENTRY(double, f64, 4, 1, 3, 3)
ENTRY(double, f64, 8, 1, 3, 3)
