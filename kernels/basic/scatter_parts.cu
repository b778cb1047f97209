// The scatter of many indices into few rows: sums of every parts-th index, then sums of these.
// Both are in an order that follows from the numbers of rows and indices alone.
//
// A thread sums one column of a part, for all rows, in shared memory; neighbouring threads read neighbouring elements. Lane l of
// an element then sums the parts l, l + lanes and so on, and the lanes' sums are added in order. Bound by memory.

extern __shared__ __align__(16) unsigned char shared[];

constexpr int lanes = 256; // of an element's parts: as in scatter_parts.go
constexpr int ahead = 8;   // indices that a thread reads at once
constexpr int across = 4;  // elements of a block of scatter_parts_join

// Threads count through (column, part, some o); elements are outer x rows x inner.
template <typename T>
__device__ void sums(const T* __restrict__ g, const long long* __restrict__ indices, T* __restrict__ partial, long long outer, int rows, long long count,
                     long long inner, int parts) {
    T* mine = reinterpret_cast<T*>(shared) + threadIdx.x;
    const int apart = blockDim.x;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, line = at / inner, c = at - line * inner, o = line / parts;
    if (o >= outer) return;
    const int part = (int)(line - o * parts);
    for (int v = 0; v < rows; v++) mine[v * apart] = 0;
    const long long far = parts * inner;
    g += (o * count + part) * inner + c;
    for (long long k = part; k < count; k += (long long)ahead * parts, g += ahead * far) {
        long long row[ahead];
        T x[ahead];
#pragma unroll
        for (int j = 0; j < ahead; j++) {
            const bool exists = k + (long long)j * parts < count;
            row[j] = exists ? indices[k + (long long)j * parts] : -1;
            x[j] = exists ? g[j * far] : T(0);
        }
#pragma unroll
        for (int j = 0; j < ahead; j++)
            if (row[j] >= 0 && row[j] < rows) mine[(int)row[j] * apart] += x[j];
    }
    partial += (part * outer + o) * rows * inner + c;
    for (int v = 0; v < rows; v++) partial[v * inner] = mine[v * apart];
}

template <typename T>
__device__ void join(const T* __restrict__ partial, T* __restrict__ out, long long elements, int parts) {
    __shared__ T sums[lanes][across];
    const int lane = threadIdx.x / across, e = threadIdx.x % across;
    const long long at = (long long)blockIdx.x * across + e;
    T sum = 0;
    if (at < elements) {
#pragma unroll 8
        for (int p = lane; p < parts; p += lanes) sum += partial[p * elements + at];
    }
    sums[lane][e] = sum;
    __syncthreads();
    if (lane > 0 || at >= elements) return;
#pragma unroll 16
    for (int l = 1; l < lanes; l++) sum += sums[l][e];
    out[at] = sum;
}

#define PARTS(NAME, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(128)                                                             \
        scatter_parts_##NAME(const T* g, const long long* indices, T* partial, long long outer, int rows,         \
                             long long count, long long inner, int parts) {                                       \
        sums<T>(g, indices, partial, outer, rows, count, inner, parts);                                           \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(lanes * across)                                                  \
        scatter_parts_join_##NAME(const T* partial, T* out, long long elements, int parts) {                      \
        join<T>(partial, out, elements, parts);                                                                   \
    }

PARTS(f32, float)
PARTS(f64, double)
