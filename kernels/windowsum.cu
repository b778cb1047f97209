// out[row][i] = sum over j in [0, w) of in[row][i + off + j], i in [0, n_out);
// elements outside [0, n_in) are zero. Valid, same and full windows differ in
// n_out and off alone. Sums are double, the result is rounded once.
//
// Flat positions. A row takes length = n_out + w - 1 positions, the elements that its windows
// reach; position v is row v / length, element v % length + off. Windows of
// outputs never leave their row, so the rows form one sequence of rows * length
// positions, cut into tiles with no regard to rows: short rows share a block.
// Positions whose window would cross into the next row are not written.
//
// One identity at two scales. Cut the positions in chunks of K, w = q K + r:
//
//	window(t K + k) = suffix of chunk t from k          (K elements, serial)
//	                + chunks t+1 .. t+q-1, whole        (a window of q-1 chunk sums)
//	                + the first r elements of chunk t+q (the chunk's head)
//	                + k elements from t K + w on        (K elements, serial)
//
// Each term lies inside the window, nothing is ever subtracted: no element
// outside reaches a result, and no digit cancels. The middle two terms are
// shared by the K outputs of a chunk.
//
//	direct  w < 16: a thread sums w elements for each output of a 16-byte vector.
//	tile    a chunk is the 16 elements of a thread. The window of q-1 chunk sums
//	        is by doubling in shared memory (sums of 2^b chunks, one for each bit
//	        of q-1): log2(w/16) steps over 1/16 of the elements.
//	chunks  a chunk is the 16 blockDim elements of a block: sums and heads to
//	        memory. The window of q-1 sums is this op again, on double.
//	join    suffix and right part of a block's chunk by two block scans, around
//	        the middle from memory.
//
// Elements go between global and registers through shared memory, in 16-byte
// accesses where the block's positions lie in one row: loads start at the 16-byte
// boundary before the first element, and a thread takes its elements from where
// they then lie. A chunk is followed by 16 unused bytes, so that threads that
// read vectors of neighbouring chunks meet no bank twice (5 or 9 vectors, odd).
//
// Estimate for tile, float, by the data sheet of an H200 (132 SMs, 1.7 GHz): a copy's 0.53e12
// elements/s leave 0.42 clocks of an SM per element. Shared: 5 accesses of 4
// bytes, 0.16 clocks at 128 bytes/clock. Conversions: 2 to double and 1
// back, 0.19 at 16/clock. DADD: 3.5, 0.06 at 64/clock. About 20 instructions,
// 0.16 at 128/clock. The halo of w - 1 elements to a tile of 4096 comes from L2.
// These pipes overlap: bound by memory if enough blocks are resident. direct at
// w = 15: 15 DADD, 0.23; conversions 0.23. chunks + join: the input is read
// twice (three times where w elements exceed L2) and written once.
#include "vector.cuh"

typedef long long i64;

template <typename T> struct Row {
    const T* in;
    T* out;
    i64 n_in, n_out, w, off, rows;
};

// Span is count flat positions from start on: its first row, and the position
// in it.
struct Span {
    i64 row, at, length;
    unsigned inverse;  // ceil(2^32 / length) for length <= count, else 0

    __device__ Span(i64 start, int count, i64 n, i64 rows) : row(0), at(start), length(n), inverse(0) {
        if (rows > 1) {
            row = (i64)((unsigned long long)start / (unsigned long long)length);
            at = start - row * length;
            // at + j < 2 count < 2^15: the product's error stays below 1/length
            if (length <= count) inverse = 0xffffffffu / (unsigned)length + 1;
        }
    }
    // locate gives the row and place of position j of the span. A span no longer
    // than a row ends in the next one at the latest; past the last row any row
    // number >= rows will do.
    __device__ void locate(int j, i64& r, i64& p) const {
        p = at + j;
        r = row;
        if (p < length) return;
        const unsigned k = inverse ? __umulhi((unsigned)p, inverse) : 1u;
        r += k;
        p -= k * length;
    }
};

constexpr int batch = 8;  // loads of a thread in flight

// read calls put(j, element) for the positions j = threadIdx.x, threadIdx.x +
// blockDim.x ... of count positions from start on.
template <typename T, typename Put>
__device__ __forceinline__ void read(const Row<T>& g, i64 start, int count, Put put) {
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    const int step = blockDim.x;
    const i64 first = s.at + g.off;
    if (s.row < g.rows && s.at + count <= s.length && first >= 0 && first + count <= g.n_in) {
        const T* __restrict__ src = g.in + s.row * g.n_in + first;
        for (int j = threadIdx.x; j < count; j += batch * step) {
            T x[batch];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (j + u * step < count) x[u] = src[j + u * step];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (j + u * step < count) put(j + u * step, x[u]);
        }
        return;
    }
    for (int j = threadIdx.x; j < count; j += batch * step) {
        T x[batch];
#pragma unroll
        for (int u = 0; u < batch; u++) {
            x[u] = 0;
            if (j + u * step >= count) continue;
            i64 r, p;
            s.locate(j + u * step, r, p);
            p += g.off;
            if (r < g.rows && p >= 0 && p < g.n_in) x[u] = g.in[r * g.n_in + p];
        }
#pragma unroll
        for (int u = 0; u < batch; u++)
            if (j + u * step < count) put(j + u * step, x[u]);
    }
}

// write stores get(j) at the count positions from start on that are outputs.
template <typename T, typename Get>
__device__ __forceinline__ void write(const Row<T>& g, i64 start, int count, Get get) {
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    if (s.row < g.rows && s.at + count <= g.n_out) {
        T* dst = g.out + s.row * g.n_out + s.at;
#pragma unroll 8
        for (int j = threadIdx.x; j < count; j += blockDim.x) dst[j] = get(j);
        return;
    }
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        i64 r, p;
        s.locate(j, r, p);
        if (r < g.rows && p < g.n_out) g.out[r * g.n_out + p] = get(j);
    }
}

// copy16 copies 16 bytes to shared memory, from sm_80 on without waiting; commit
// ends a batch of copies, arrived<n> waits until all batches but the last n are
// there.
__device__ __forceinline__ void copy16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
#else
    *reinterpret_cast<float4*>(shared) = *reinterpret_cast<const float4*>(global);
#endif
}
__device__ __forceinline__ void commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int n> __device__ __forceinline__ void arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

// Chunks is shared memory for elements in chunks of K, each followed by 16
// unused bytes.
template <typename T, int K> struct Chunks {
    using Vector = typename Vec<T>::type;
    static constexpr int W = Vec<T>::width;
    static constexpr int size = K + W;  // elements that a chunk takes

    T* x;

    __device__ T& operator[](int j) const { return x[j + j / K * W]; }
    __device__ Vector& vector(int v) const { return reinterpret_cast<Vector*>(x)[v + v / (K / W)]; }

    // fetch brings the count positions from start on and returns the place of the
    // first, 0 to W - 1.
    __device__ __forceinline__ int fetch(const Row<T>& g, i64 start, int count) const {
        const Span s(start, count, g.n_out + g.w - 1, g.rows);
        const i64 first = s.at + g.off;
        if (s.row >= g.rows || s.at + count > s.length || first < 0 || first + count > g.n_in) {
            read(g, start, count, [&](int j, T e) { (*this)[j] = e; });
            return 0;
        }
        const T* src = g.in + s.row * g.n_in + first;
        const int shift = (int)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
        src -= shift;  // operands start aligned, so this is inside in
        const int end = shift + count, vectors = end / W;
        for (int v = threadIdx.x; v < vectors; v += blockDim.x) copy16(&vector(v), src + v * W);
        const int tail = vectors * W + threadIdx.x;
        if (tail < end) (*this)[tail] = src[tail];
        return shift;
    }

    // move moves the registers down by n places if on.
    template <int n, int M> __device__ static __forceinline__ void move(bool on, T (&r)[M]) {
#pragma unroll
        for (int i = 0; i + n < M; i++) r[i] = on ? r[i + n] : r[i];
    }

    // take reads the N elements from place j on; j % W is the same in all threads.
    // It may touch W - 1 elements more on either side, all within two chunks.
    template <int N> __device__ __forceinline__ void take(int j, T (&e)[N]) const {
        constexpr int M = (N + 2 * W - 2) / W;
        T r[M * W];
#pragma unroll
        for (int m = 0; m < M; m++) {
            Pack<T> p;
            p.v = vector(j / W + m);
#pragma unroll
            for (int i = 0; i < W; i++) r[m * W + i] = p.s[i];
        }
        // Shift by j % W, one bit of it at a time: registers have no address.
        if constexpr (W == 4) move<2>(j & 2, r);
        move<1>(j & 1, r);
#pragma unroll
        for (int i = 0; i < N; i++) e[i] = r[i];
    }

    // put stores K elements as chunk c.
    __device__ __forceinline__ void put(int c, const double (&e)[K]) const {
#pragma unroll
        for (int m = 0; m < K / W; m++) {
            Pack<T> p;
#pragma unroll
            for (int i = 0; i < W; i++) p.s[i] = (T)e[m * W + i];
            vector(c * (K / W) + m) = p.v;
        }
    }

    // store writes the count elements from place 0 on to those of the positions
    // from start on that are outputs.
    __device__ __forceinline__ void store(const Row<T>& g, i64 start, int count) const {
        const Span s(start, count, g.n_out + g.w - 1, g.rows);
        T* dst = g.out + s.row * g.n_out + s.at;
        if (s.row < g.rows && s.at + count <= g.n_out && reinterpret_cast<unsigned long long>(dst) % 16 == 0) {
#pragma unroll 4
            for (int v = threadIdx.x; v < count / W; v += blockDim.x) reinterpret_cast<Vector*>(dst)[v] = vector(v);
            return;
        }
        write(g, start, count, [&](int j) { return (*this)[j]; });
    }
};

extern __shared__ double shared_memory[];

// pipeline runs work(tile start, elements, place of the first) for the tiles
// blockIdx.x, blockIdx.x + gridDim.x ... of `outputs` positions each. With two
// stages the next tile is on its way while a tile is worked on. work leaves a
// tile's outputs in the chunks from place 0 on.
template <typename T, int K, typename Work>
__device__ __forceinline__ void pipeline(const Row<T>& g, T* shared, int chunks, int stages, i64 tiles, int outputs, Work work) {
    Chunks<T, K> now{shared}, next{shared + (stages - 1) * chunks * Chunks<T, K>::size};
    const int count = outputs + (int)g.w - 1;
    i64 tile = blockIdx.x;
    int shift = now.fetch(g, tile * outputs, count), coming = 0;
    commit();
    for (; tile < tiles; tile += gridDim.x) {
        const bool more = tile + gridDim.x < tiles;
        if (stages > 1 && more) {
            coming = next.fetch(g, (tile + gridDim.x) * outputs, count);
            commit();
            arrived<1>();
        } else {
            arrived<0>();
        }
        __syncthreads();
        work(now, shift);
        __syncthreads();
        now.store(g, tile * outputs, outputs);
        __syncthreads();
        if (stages == 1 && more) {
            coming = now.fetch(g, (tile + gridDim.x) * outputs, count);
            commit();
        }
        const Chunks<T, K> swap = now;
        now = next;
        next = swap;
        shift = coming;
    }
}

constexpr int direct_vectors = 4;   // 16-byte vectors of outputs of a thread

// windows sums windows of w elements, known to the compiler, for the thread's
// vectors of outputs: to[0], to[blockDim], ...; from is the vector that the first
// window starts in, at element `shift`.
template <int w, typename T, typename Vector>
__device__ __forceinline__ void windows(const Vector* __restrict__ from, Vector* __restrict__ to, unsigned shift) {
    constexpr int W = Vec<T>::width, M = (w + W - 1 + 2 * W - 2) / W;
    constexpr int FLIGHT = w > 7 ? 1 : direct_vectors;  // wide windows fill the registers
#pragma unroll FLIGHT
    for (int v = 0; v < direct_vectors; v++, from += blockDim.x, to += blockDim.x) {
        T r[M * W];
#pragma unroll
        for (int m = 0; m < M; m++) {
            Pack<T> p;
            p.v = __ldg(from + m);
#pragma unroll
            for (int i = 0; i < W; i++) r[m * W + i] = p.s[i];
        }
        if constexpr (W == 4) Chunks<T, 16>::template move<2>(shift & 2, r);
        Chunks<T, 16>::template move<1>(shift & 1, r);
        double e[w + W - 1], sum[W] = {};
#pragma unroll
        for (int i = 0; i < w + W - 1; i++) e[i] = (double)r[i];
#pragma unroll
        for (int k = 0; k < W; k++)
#pragma unroll
            for (int j = 0; j < w; j++) sum[k] += e[j + k];
        Pack<T> p;
#pragma unroll
        for (int k = 0; k < W; k++) p.s[k] = (T)sum[k];
        *to = p.v;
    }
}

// Tiles of 4 blockDim vectors of outputs: a thread sums w elements for each
// output, straight from global memory: the elements that neighbouring threads
// share come from L1, and there is nothing to wait for.
template <typename T> __device__ __forceinline__ void direct(const Row<T>& g) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    const int w = (int)g.w, count = blockDim.x * W * direct_vectors, t = threadIdx.x;
    const i64 start = (i64)blockIdx.x * count;
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    const i64 first = s.at + g.off;  // element of the block's first window
    T* const dst = g.out + s.row * g.n_out + s.at;
    const T* src = g.in + s.row * g.n_in + first;
    const unsigned shift = (unsigned)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
    if (s.row < g.rows && s.at + count <= g.n_out && first >= 0 && first + count + w + 2 * W <= g.n_in &&
        reinterpret_cast<unsigned long long>(dst) % 16 == 0) {
        const Vector* from = reinterpret_cast<const Vector*>(src - shift) + t;
        Vector* to = reinterpret_cast<Vector*>(dst) + t;
        switch (w) {
        case 1: return windows<1, T>(from, to, shift);
        case 3: return windows<3, T>(from, to, shift);
        case 5: return windows<5, T>(from, to, shift);
        case 7: return windows<7, T>(from, to, shift);
        case 9: return windows<9, T>(from, to, shift);
        case 11: return windows<11, T>(from, to, shift);
        case 13: return windows<13, T>(from, to, shift);
        case 15: return windows<15, T>(from, to, shift);
        }  // an even w is a window over chunk sums: short
    }
    for (int k = t; k < count; k += blockDim.x) {
        i64 row, at;
        s.locate(k, row, at);
        if (row >= g.rows || at >= g.n_out) continue;
        const T* x = g.in + row * g.n_in;
        double total = 0;
        for (int j = 0; j < w; j++) {
            const i64 i = at + g.off + j;
            if (i >= 0 && i < g.n_in) total += (double)x[i];
        }
        g.out[row * g.n_out + at] = (T)total;
    }
}

constexpr int K = 16;  // elements of a thread in tile, chunks and join

// Tiles of 16 blockDim outputs; w >= 16. Shared, with q = w / 16 and n =
// blockDim + q chunks: 3 n doubles (rounded up to 16 bytes), then stages x (n +
// 2) chunks.
template <typename T> __device__ __forceinline__ void tile(const Row<T>& g, int stages, i64 tiles) {
    const int t = threadIdx.x, threads = blockDim.x;
    const int w = (int)g.w, q = w / K, rest = w % K, n = threads + q;
    double* const heads = shared_memory + 2 * n;
    T* const elements = reinterpret_cast<T*>(heads + n + n % 2);
    pipeline<T, K>(g, elements, n + 2, stages, tiles, threads * K, [&](const Chunks<T, K>& x, int shift) {
        double* sums = shared_memory;
        double* next = sums + n;
        T e[K];
        double suffix[K], head = 0;
        x.take(shift + t * K, e);
#pragma unroll
        for (int k = 0; k < K; k++) suffix[k] = (double)e[k];
#pragma unroll
        for (int k = 0; k < K - 1; k++)
            if (k < rest) head += suffix[k];
#pragma unroll
        for (int k = K - 2; k >= 0; k--) suffix[k] += suffix[k + 1];
        sums[t] = suffix[0];
        heads[t] = head;
        // The halo's chunks. The last one may reach past the elements read: what
        // lies there enters its sum, which no window takes, and not its head.
        for (int c = t + threads; c < n; c += threads) {
            double lo = 0, hi = 0;
            x.take(shift + c * K, e);
#pragma unroll
            for (int k = 0; k < K; k++) {
                if (k < rest) lo += (double)e[k];
                else hi += (double)e[k];
            }
            sums[c] = lo + hi;
            heads[c] = lo;
        }
        __syncthreads();

        // sums[c] = sum of chunks c .. c + size - 1 (those past n are in no window).
        double right = 0;
        int at = t + 1;
        for (int middle = q - 1, size = 1; middle > 0; middle >>= 1, size <<= 1) {
            if (middle & 1) {
                right += sums[at];
                at += size;
            }
            if (middle > 1) {
                for (int c = t; c < n; c += threads) next[c] = sums[c] + (c + size < n ? sums[c + size] : 0.0);
                __syncthreads();
                double* const swap = sums;
                sums = next;
                next = swap;
            }
        }
        right += heads[t + q];
        x.take(shift + (t + q) * K + rest, e);
#pragma unroll
        for (int k = 0; k < K; k++) {
            suffix[k] += right;
            if (k < K - 1) right += (double)e[k];
        }
        __syncthreads();
        x.put(t, suffix);
    });
}

// Block b: sums[b] = sum of the 16 blockDim positions of chunk b, heads[b] =
// sum of its first w % (16 blockDim).
template <typename T> __device__ __forceinline__ void chunks(const Row<T>& g, double* sums, double* heads) {
    __shared__ double warps[2][32];
    const int chunk = blockDim.x * K, rest = (int)(g.w % chunk);
    double lo = 0, hi = 0;
    read(g, (i64)blockIdx.x * chunk, chunk, [&](int j, T e) {
        if (j < rest) lo += (double)e;
        else hi += (double)e;
    });
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        lo += __shfl_down_sync(0xffffffffu, lo, d);
        hi += __shfl_down_sync(0xffffffffu, hi, d);
    }
    if (threadIdx.x % 32 == 0) {
        warps[0][threadIdx.x / 32] = lo;
        warps[1][threadIdx.x / 32] = hi;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < blockDim.x / 32; i++) {
        lo += warps[0][i];
        hi += warps[1][i];
    }
    heads[blockIdx.x] = lo;
    sums[blockIdx.x] = lo + hi;
}

// Block b: the outputs of chunk b; middles[b] is the sum of chunks b+1 ..
// b+q-1, q = w / (16 blockDim) >= 2. Shared: 2 (blockDim + 2) chunks.
template <typename T>
__device__ __forceinline__ void join(const Row<T>& g, const double* middles, const double* heads) {
    __shared__ double warps[2][32];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, chunk = blockDim.x * K;
    const Chunks<T, K> x{reinterpret_cast<T*>(shared_memory)};
    const Chunks<T, K> y{x.x + (blockDim.x + 2) * x.size};
    const i64 start = (i64)blockIdx.x * chunk;
    const int shift = x.fetch(g, start, chunk), shifty = y.fetch(g, start + g.w, chunk);
    commit();
    arrived<0>();
    __syncthreads();

    T e[K];
    double suffix[K], total = 0;
    x.take(shift + t * K, e);
#pragma unroll
    for (int k = 0; k < K; k++) suffix[k] = (double)e[k];
#pragma unroll
    for (int k = K - 2; k >= 0; k--) suffix[k] += suffix[k + 1];
    y.take(shifty + t * K, e);
#pragma unroll
    for (int k = 0; k < K; k++) total += (double)e[k];

    // after: own elements of later threads; before: right elements of earlier ones.
    double after = suffix[0], before = total;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const double a = __shfl_down_sync(0xffffffffu, after, d);
        const double b = __shfl_up_sync(0xffffffffu, before, d);
        if (lane + d < 32) after += a;
        if (lane >= d) before += b;
    }
    if (lane == 0) warps[0][warp] = after;
    if (lane == 31) warps[1][warp] = before;
    after = __shfl_down_sync(0xffffffffu, after, 1);
    before = __shfl_up_sync(0xffffffffu, before, 1);
    if (lane == 31) after = 0;
    if (lane == 0) before = 0;
    __syncthreads();
    for (int i = warp + 1; i < blockDim.x / 32; i++) after += warps[0][i];
    for (int i = warp - 1; i >= 0; i--) before += warps[1][i];

    double right = after + middles[blockIdx.x];
    if (g.w % chunk) right += heads[blockIdx.x + g.w / chunk];
    right += before;
#pragma unroll
    for (int k = 0; k < K; k++) {
        suffix[k] += right;
        right += (double)e[k];
    }
    // All threads have taken their elements of x before the barrier above.
    x.put(t, suffix);
    __syncthreads();
    x.store(g, start, chunk);
}

// Blocks on a multiprocessor: three are resident with 80 registers a thread,
// which sm_90 and later fit the tile into without spills.
#if __CUDA_ARCH__ >= 900
constexpr int resident = 3;
#else
constexpr int resident = 2;
#endif

// direct wants many warps: at most 85 registers a thread, where no spills come of it.
#if __CUDA_ARCH__ >= 800
template <typename T> constexpr int direct_blocks = sizeof(T) == 4 ? 3 : 2;
#else
template <typename T> constexpr int direct_blocks = 2;
#endif

#define ENTRIES(T, S, THREADS, BLOCKS)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, direct_blocks<T>) windowsum_direct_##S(                                          \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {                                        \
        direct(Row<T>{in, out, n_in, n_out, w, off, rows});                                                          \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) windowsum_tile_##S(                        \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int stages, i64 tiles) {               \
        tile(Row<T>{in, out, n_in, n_out, w, off, rows}, stages, tiles);                                                            \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS / 2) windowsum_chunks_##S(                                  \
        const T* in, double* sums, double* heads, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {                   \
        chunks(Row<T>{in, nullptr, n_in, n_out, w, off, rows}, sums, heads);                                         \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS / 2, 1024 / THREADS) windowsum_join_##S(                    \
        const T* in, T* out, const double* middles, const double* heads, i64 n_in, i64 n_out, i64 w, i64 off,        \
        i64 rows) {                                                                                                  \
        join(Row<T>{in, out, n_in, n_out, w, off, rows}, middles, heads);                                            \
    }

ENTRIES(float, f32, 256, resident)
ENTRIES(double, f64, 128, 3)
