// The scatter of many indices into few rows: sums of runs of indices, then sums of these.
// Both are in an order that follows from the numbers of rows and indices alone.
//
// A thread sums one column of a run, for all rows, in shared memory. Sums of a run lie in order of rows; lane l of
// an element sums those of runs l, l + lanes and so on, and the lanes' sums are added in order. Bound by memory, but for
// few columns, of which neighbouring threads read far from one another.

extern __shared__ __align__(16) unsigned char shared[];

constexpr int lanes = 32;  // of an element's runs: as in scatter_runs.go
constexpr int ahead = 8;   // indices that a thread reads at once
constexpr int across = 8;  // elements of a block of scatter_runs_join

// Threads count through (column, run, some o); elements are outer x rows x inner.
template <typename T>
__device__ void runs(const T* __restrict__ g, const long long* __restrict__ indices, T* __restrict__ partial, long long outer, int rows, long long count,
                     long long inner, int run, int number) {
    T* sums = reinterpret_cast<T*>(shared) + threadIdx.x;
    const int apart = blockDim.x;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, line = at / inner, c = at - line * inner, o = line / number;
    if (o >= outer) return;
    const int mine = (int)(line - o * number);
    for (int v = 0; v < rows; v++) sums[v * apart] = 0;
    const long long from = (long long)mine * run, to = min(from + run, count);
    g += o * count * inner + c;
    for (long long k = from; k < to; k += ahead) {
        long long row[ahead];
        T x[ahead];
#pragma unroll
        for (int j = 0; j < ahead; j++) {
            row[j] = k + j < to ? indices[k + j] : -1;
            x[j] = k + j < to ? g[(k + j) * inner] : T(0);
        }
#pragma unroll
        for (int j = 0; j < ahead; j++)
            if (row[j] >= 0 && row[j] < rows) sums[(int)row[j] * apart] += x[j];
    }
    partial += (mine * outer + o) * rows * inner + c;
    for (int v = 0; v < rows; v++) partial[v * inner] = sums[v * apart];
}

template <typename T>
__device__ void join(const T* __restrict__ partial, T* __restrict__ out, long long elements, int number) {
    __shared__ T sums[lanes][across];
    const int lane = threadIdx.x / across, e = threadIdx.x % across;
    const long long at = (long long)blockIdx.x * across + e;
    T sum = 0;
    if (at < elements) {
#pragma unroll 8
        for (int r = lane; r < number; r += lanes) sum += partial[r * elements + at];
    }
    sums[lane][e] = sum;
    __syncthreads();
    if (lane > 0 || at >= elements) return;
    for (int l = 1; l < lanes; l++) sum += sums[l][e];
    out[at] = sum;
}

#define RUNS(NAME, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(128)                                                             \
        scatter_runs_##NAME(const T* g, const long long* indices, T* partial, long long outer, int rows,          \
                            long long count, long long inner, int run, int number) {                              \
        runs<T>(g, indices, partial, outer, rows, count, inner, run, number);                                     \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(lanes * across)                                                  \
        scatter_runs_join_##NAME(const T* partial, T* out, long long elements, int number) {                      \
        join<T>(partial, out, elements, number);                                                                  \
    }

RUNS(f32, float)
RUNS(f64, double)
