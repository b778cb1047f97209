// steps times: P = A X, X = B P, from X = x;  out = X.   A, B: n x n, the weights w1 and w2 or, with `transposed`, their transposes.
//
// Every P[j] needs all of X, and every X[j] all of P, so the whole grid must wait between two half steps. The kernels do that in
// different ways; versions/iterate.cu has more. X and P are double in scratch memory, so a float32 result is rounded once.
//
//   iterate_begin    X = x, P = 0, the counter = 0, since scratch memory is not initialised.
//   iterate_heldK    all steps in one launch, each block with eight rows of A and B in registers as double, K columns a thread. For
//                    n up to 1024. A half step then reads n doubles, makes 8 K multiplications a thread, and waits at the barrier.
//   iterate_clusterR all steps in one cluster of eight blocks of R rows, for n up to 8 R: the vectors are in the blocks' shared memory,
//                    and each block sends its results to all eight, which wait for them. Compute capability 9 and later.
//   iterate_matvec   one half step, a block for four rows: larger n, bound by memory, or few steps. The end of the launch is the barrier.
//   iterate_first    the first of them, which reads x itself: nothing has to begin.
//   iterate_wide     one half step of transposed weights, a block for some columns of w.
//   iterate_chain    the half step of the gradient: out = A in + u, all of the operands' type, of transposed weights.
//   iterate_link     the same of other weights, as iterate_matvec.
//   iterate_rows     rows taken out of a matrix, or put into one of zeros: the gradient's book-keeping.
#include "follow.cuh"
#include "grid_barrier.cuh"
#include "reduce.cuh"

// FLIGHT is the number of loads that a thread has in flight. The second launch bound grants the compiler the registers for them: without
// it, the compiler uses 32 and makes each load wait for the one before.
constexpr int FLIGHT = 8;

constexpr int MATVEC_ROWS = 4, MATVEC_WARPS = 4; // of a block of matvec

template <typename T>
__device__ void begin(const T* x, double* X, double* P, unsigned* counter, long long n, long long padded) {
    admit();
    follow();
    const long long stride = (long long)gridDim.x * blockDim.x, first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (long long j = first; j < padded; j += stride) {
        X[j] = j < n ? (double)x[j] : 0.0;
        P[j] = 0.0;
    }
    if (first == 0) *counter = 0;
}

// ROWS rows a block: a thread keeps K columns of each, of both matrices.
constexpr int ROWS = 8;

// hand_over adds up 2 HALF sums over the lanes of a warp. Each step halves the rows of a lane: lanes that differ in BIT exchange half of
// their rows and add. At the end, each lane has one row.
template <int HALF, int BIT, int N> __device__ void hand_over(double (&sum)[N], int lane) {
    if constexpr (HALF > 0) {
        const bool upper = lane & BIT;
#pragma unroll
        for (int r = 0; r < HALF; r++) {
            const double give = upper ? sum[r] : sum[r + HALF], keep = upper ? sum[r + HALF] : sum[r];
            sum[r] = keep + __shfl_xor_sync(0xffffffffu, give, BIT);
        }
        hand_over<HALF / 2, BIT / 2>(sum, lane);
    }
}

// held_half computes rows [row, row + ROWS) of A in. Thread t multiplies the columns t, t + blockDim.x, ...; the warps' sums
// are added in order by the first ROWS threads.
template <int K, typename T>
__device__ void held_half(const double (&a)[ROWS][K], const double* in, double* out, T* y, int last, long long n) {
    __shared__ double part[8][ROWS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double v[K], sum[ROWS];
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = __ldcg(in + k * blockDim.x + threadIdx.x);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = a[r][0] * v[0];
#pragma unroll
        for (int k = 1; k < K; k++) sum[r] += a[r][k] * v[k];
    }
    hand_over<ROWS / 2, 16>(sum, lane);
    double s = sum[0];  // of row lane / 4, over the lanes that differ in the upper three bits
    s += __shfl_xor_sync(0xffffffffu, s, 2);
    s += __shfl_xor_sync(0xffffffffu, s, 1);
    if (lane % 4 == 0) part[warp][lane / 4] = s;
    __syncthreads();
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x;
    if (threadIdx.x < ROWS && row < n) {
        double total = part[0][threadIdx.x];
#pragma unroll 1
        for (int i = 1; i < blockDim.x / 32; i++) total += part[i][threadIdx.x];
        out[row] = total;
        if (last) y[row] = (T)total;
    }
}

template <int K, typename T>
__device__ void held(const T* w1, const T* w2, double* X, double* P, unsigned* counter, T* y, long long n, int steps, int transposed) {
    double a[ROWS][K], b[ROWS][K];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int k = 0; k < K; k++) {
            const long long row = (long long)blockIdx.x * ROWS + r, col = k * blockDim.x + threadIdx.x;
            const bool in = row < n && col < n;
            const long long at = transposed ? col * n + row : row * n + col;
            a[r][k] = in ? (double)w1[at] : 0.0;
            b[r][k] = in ? (double)w2[at] : 0.0;
        }
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
        const int last = i == steps - 1;
        held_half<K>(a, X, P, y, 0, n);
        grid_barrier(counter, 2 * i + 1);
        held_half<K>(b, P, X, y, last, n);
        if (!last) grid_barrier(counter, 2 * i + 2);
    }
}

#if __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(8, 1, 1)

// shared_address returns the address of p in the block's shared memory, in_block that address in another block of the cluster.
__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ inline unsigned in_block(int block, const void* p) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(block));
    return address;
}

// Inbox is a vector in shared memory that all blocks of the cluster write parts of, and wait for. A block waits only for the arrival of
// these parts, not for the others to read theirs: no block can send for the step after the next before all of this block's threads have
// read the vector, since it needs their results.
template <int N> struct Inbox {
    double v[N];
    unsigned long long arrived;  // an mbarrier that counts bytes

    __device__ void init() {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived)) : "memory");
        expect();
    }
// expect sets how many bytes complete the next phase; one thread calls it.
    __device__ void expect() {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&arrived)), "r"(N * 8) : "memory");
    }
// wait waits for a phase and opens the next. The first phase has parity 0.
    __device__ void wait(unsigned parity) {
        unsigned done;
        do asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(shared_address(&arrived)), "r"(parity)
            : "memory");
        while (!done);
        if (threadIdx.x == 0) expect();
    }
};

// cluster_half computes R rows of A in, by 8 R threads with a column each. Thread t then adds up the warps' parts of row t % R and sends the
// sum to block t / R: `to` and `arrived` are addresses there.
template <int R>
__device__ void cluster_half(const double (&a)[R], const double* in, double (&part)[R / 4][R], unsigned to, unsigned arrived, bool inside) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const double v = in[threadIdx.x];
    double sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] = a[r] * v;
    hand_over<R / 2, 16>(sum, lane);
    if (R == 16) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], 1);
    if (lane % (32 / R) == 0) part[warp][lane / (32 / R)] = sum[0];
    __syncthreads();
    double total = part[0][threadIdx.x % R];
#pragma unroll
    for (int i = 1; i < R / 4; i++) total += part[i][threadIdx.x % R];
    if (!inside) total = 0;  // of no row; 0 times an infinity is not 0
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to), "l"(__double_as_longlong(total)),
                 "r"(arrived)
                 : "memory");
}

template <int R, typename T>
__device__ void cluster(const T* w1, const T* w2, const T* x, T* y, int n, int steps, int transposed) {
    __shared__ Inbox<8 * R> X, P;
    __shared__ double part[2][R / 4][R];  // one for each half step: a thread may be late in reading it
    const int col = threadIdx.x, first = blockIdx.x * R;
    double a[R], b[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int row = first + r, at = transposed ? col * n + row : row * n + col;
        const bool in = row < n && col < n;
        a[r] = in ? (double)w1[at] : 0.0;
        b[r] = in ? (double)w2[at] : 0.0;
    }
    X.v[col] = col < n ? (double)x[col] : 0.0;
    if (col == 0) {
        X.init();
        P.init();
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const int block = col / R, row = first + col % R;
    const unsigned toX = in_block(block, X.v + row), arrivedX = in_block(block, &X.arrived);
    const unsigned toP = in_block(block, P.v + row), arrivedP = in_block(block, &P.arrived);
// No block may be sent anything before it has started, nor end before all has arrived.
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
        if (i > 0) X.wait((i - 1) & 1);
        cluster_half<R>(a, X.v, part[0], toP, arrivedP, row < n);
        P.wait(i & 1);
        cluster_half<R>(b, P.v, part[1], toX, arrivedX, row < n);
    }
    X.wait((steps - 1) & 1);
    if (col < R && row < n) y[row] = (T)X.v[row];
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#else
#define CLUSTER
// No plan uses it where there are no clusters.
template <int R, typename T> __device__ void cluster(const T*, const T*, const T*, T*, int, int, int) { __trap(); }
#endif

// read_if loads 16 bytes past the first-level cache if `there`, else x stays.
__device__ __forceinline__ void read_if(Pack<float>& x, const float4* p, bool there) {
    asm volatile("{\n.reg .pred there;\nsetp.ne.s32 there, %5, 0;\n@there ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
        : "+f"(x.v.x), "+f"(x.v.y), "+f"(x.v.z), "+f"(x.v.w) : "l"(p), "r"((int)there));
}
__device__ __forceinline__ void read_if(Pack<double>& x, const double2* p, bool there) {
    asm volatile("{\n.reg .pred there;\nsetp.ne.s32 there, %3, 0;\n@there ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];\n}"
        : "+d"(x.v.x), "+d"(x.v.y) : "l"(p), "r"((int)there));
}

// matvec calls store(j, (w in)[j]) for all j. A block sums rows that begin at the same place within 16 bytes, of which `period` are apart; its warps take a part of
// them each, in vectors of 16 bytes, and their sums are added in order. The elements before the first and after the last vector of a row are read one by one. So
// rows share the loads of `in`, and enough loads are in flight. Before a block waits for its prerequisite kernels, which compute `in`, it prefetches the first
// vectors to L2.
template <typename T, typename In, typename Store> __device__ __forceinline__ void matvec(const T* __restrict__ w, const In* __restrict__ in, int n, int period, Store store) {
    using V = typename Vec<T>::type;
    constexpr int W = Vec<T>::width, VECTORS = 2;
    __shared__ double sums[MATVEC_WARPS][MATVEC_ROWS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int j = blockIdx.x / period * (MATVEC_ROWS * period) + blockIdx.x % period, rows = j < n ? min((n - 1 - j) / period + 1, MATVEC_ROWS) : 0;
    const T* const row = w + (long long)min(j, n - 1) * n;
    const int head = min(Value<T>::misaligned(row), n), vectors = (n - head) / W, tail = head + vectors * W;
    const int part = ((vectors + MATVEC_WARPS - 1) / MATVEC_WARPS + 31) / 32 * 32, first = warp * part, count = rows > 0 ? min(part, vectors - first) : 0;
    const V* a[MATVEC_ROWS]; // of the first row for those behind the last
#pragma unroll
    for (int r = 0; r < MATVEC_ROWS; r++) a[r] = reinterpret_cast<const V*>(row + (r < rows ? (long long)r * period * n : 0) + head) + first + lane;
#if __CUDA_ARCH__ >= 900
#pragma unroll
    for (int r = 0; r < MATVEC_ROWS; r++)
#pragma unroll
        for (int f = 0; f < VECTORS; f++)
            if (lane % 8 == 0 && lane + f * 32 < count) asm volatile("prefetch.global.L2 [%0];" ::"l"(a[r] + f * 32)); // of 128 bytes
#endif
    admit();
    follow();
    double acc[MATVEC_ROWS] = {};
    if (warp == 0 && rows > 0) {
#pragma unroll
        for (int r = 0; r < MATVEC_ROWS; r++) {
            const T* const x = reinterpret_cast<const T*>(a[r] - lane) - head;
            if (lane < head) acc[r] = (double)x[lane] * (double)in[lane];
            if (lane < n - tail) acc[r] += (double)x[tail + lane] * (double)in[tail + lane];
        }
    }
    in += head + (first + lane) * W;
#pragma unroll 1
    for (int k = 0; k + lane < count; k += VECTORS * 32) {
        Pack<T> x[MATVEC_ROWS][VECTORS] = {};
#pragma unroll
        for (int f = 0; f < VECTORS; f++)
#pragma unroll
            for (int r = 0; r < MATVEC_ROWS; r++) read_if(x[r][f], a[r] + k + f * 32, k + lane + f * 32 < count);
#pragma unroll
        for (int f = 0; f < VECTORS; f++) {
            if (f > 0 && k + lane + f * 32 >= count) break;
            In v[W];
#pragma unroll
            for (int e = 0; e < W; e++) v[e] = in[(k + f * 32) * W + e];
#pragma unroll
            for (int r = 0; r < MATVEC_ROWS; r++)
#pragma unroll
                for (int e = 0; e < W; e++) acc[r] += (double)x[r][f].s[e] * (double)v[e];
        }
    }
#pragma unroll
    for (int r = 0; r < MATVEC_ROWS; r++) {
        acc[r] = warp_sum(acc[r], 32);
        if (lane == 0) sums[warp][r] = acc[r];
    }
    __syncthreads();
    const int r = threadIdx.x;
    if (r >= rows) return;
    double sum = sums[0][r];
#pragma unroll
    for (int p = 1; p < MATVEC_WARPS; p++) sum += sums[p][r];
    store(j + r * period, sum);
}

// wide calls store(j, (A in)[j]) for all j, A = w transposed. Each block computes `columns` columns of w, a power of two up to 32. The threads of a column
// stride over the rows, and the block reduces their sums in a fixed order. Before a block waits for its prerequisite kernels, which compute `in`, it prefetches
// the first elements of w to L2.
template <typename T, typename In, typename Store>
__device__ void wide(const T* __restrict__ w, const In* __restrict__ in, long long n, int columns, Store store) {
    __shared__ double part[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const long long j = (long long)blockIdx.x * columns + threadIdx.x % columns, stride = blockDim.x / columns;
    const T* a = w + j;
    long long k = threadIdx.x / columns;
#if __CUDA_ARCH__ >= 900
    if (j < n && threadIdx.x % columns == 0) {
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
            if (k + f * stride < n) asm volatile("prefetch.global.L2 [%0];" ::"l"(a + (k + f * stride) * n)); // of 128 bytes
    }
#endif
    admit();
    follow();
    double acc[2] = {};
    if (j < n) {
#pragma unroll 1
        for (; k + (FLIGHT - 1) * stride < n; k += FLIGHT * stride) {
            T x[FLIGHT];
            In v[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) x[f] = a[(k + f * stride) * n], v[f] = in[k + f * stride];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) acc[f % 2] += (double)x[f] * (double)v[f];
        }
#pragma unroll 1
        for (; k < n; k += stride) acc[0] += (double)a[k * n] * (double)in[k];
    }
    double sum = acc[0] + acc[1];
#pragma unroll 1
    for (int bit = 16; bit >= columns; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    if (lane < columns) part[lane][warp] = sum;
    __syncthreads();
#pragma unroll 1
    for (int c = warp; c < columns; c += warps) {
        const double total = warp_sum(lane < warps ? part[c][lane] : 0.0, 32);
        const long long col = (long long)blockIdx.x * columns + c;
        if (lane == 0 && col < n) store(col, total);
    }
}

#define HELD(K, T, SUFFIX)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                                   \
        iterate_held##K##_##SUFFIX(const T* w1, const T* w2, double* X, double* P, unsigned* counter, T* y, long long n, int steps,     \
                                   int transposed) {                                                                                    \
        held<K>(w1, w2, X, P, counter, y, n, steps, transposed);                                                                        \
    }

#define CLUSTERED(R, T, SUFFIX)                                                                                                         \
    extern "C" __global__ void CLUSTER __launch_bounds__(8 * R)                                                                         \
        iterate_cluster##R##_##SUFFIX(const T* w1, const T* w2, const T* x, T* y, int n, int steps, int transposed) {                   \
        cluster<R>(w1, w2, x, y, n, steps, transposed);                                                                                 \
    }

#define ITERATE(T, SUFFIX)                                                                                                              \
    extern "C" __global__ void iterate_begin_##SUFFIX(const T* x, double* X, double* P, unsigned* counter, long long n,                 \
                                                      long long padded) {                                                               \
        begin(x, X, P, counter, n, padded);                                                                                             \
    }                                                                                                                                   \
    HELD(1, T, SUFFIX)                                                                                                                  \
    HELD(2, T, SUFFIX)                                                                                                                  \
    CLUSTERED(16, T, SUFFIX)                                                                                                            \
    CLUSTERED(32, T, SUFFIX)                                                                                                            \
    HELD(4, T, SUFFIX)                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * MATVEC_WARPS, 6)                                                                  \
        iterate_matvec_##SUFFIX(const T* w, const double* in, double* out, T* y, int last, int n, int period) {                         \
        matvec(w, in, n, period, [=](int j, double sum) {                                                                               \
            out[j] = sum;                                                                                                               \
            if (last) y[j] = (T)sum;                                                                                                    \
        });                                                                                                                             \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * MATVEC_WARPS, 6)                                                                  \
        iterate_first_##SUFFIX(const T* w, const T* x, double* out, int n, int period) {                                                \
        matvec(w, x, n, period, [=](int j, double sum) { out[j] = sum; });                                                              \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                                 \
        iterate_wide_##SUFFIX(const T* w, const double* in, double* out, T* y, int last, long long n, int columns) {                    \
        wide(w, in, n, columns, [=](long long j, double sum) {                                                                          \
            out[j] = sum;                                                                                                               \
            if (last) y[j] = (T)sum;                                                                                                    \
        });                                                                                                                             \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                                 \
        iterate_chain_##SUFFIX(const T* w, const T* in, const T* u, T* out, long long n, int columns) {                                 \
        wide(w, in, n, columns, [=](long long j, double sum) { out[j] = (T)(sum + (double)u[j]); });                                    \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * MATVEC_WARPS, 6)                                                                  \
        iterate_link_##SUFFIX(const T* w, const T* in, const T* u, T* out, int n, int period) {                                         \
        matvec(w, in, n, period, [=](int j, double sum) { out[j] = (T)(sum + (double)u[j]); });                                         \
    }                                                                                                                                   \
    /* A block per row: row first + i stride of the wide matrix is row i of the narrow one; put writes the other rows as zeros. */      \
    extern "C" __global__ void iterate_rows_##SUFFIX(const T* in, T* out, long long n, int first, int stride, int narrow, int put) {    \
        admit();                                                                                                                        \
        follow();                                                                                                                       \
        const int row = blockIdx.x, i = put ? (row - first) / stride : first + row * stride;                                            \
        const bool hit = !put || (row >= first && (row - first) % stride == 0 && i < narrow);                                           \
        for (long long j = threadIdx.x; j < n; j += blockDim.x) out[row * n + j] = hit ? in[i * n + j] : (T)0;                          \
    }

ITERATE(float, f32)
ITERATE(double, f64)
