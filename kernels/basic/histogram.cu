// counts[k] = number of elements x of n with lo <= x < hi and bin(x) = k,
//
//   bin(x) = floor((x - lo) * scale), scale = bins / (hi - lo), in double precision,
//
// for bytes, integers and floating-point numbers. Counting is exact and does not
// depend on the order of the atomics: the same counts in every run.
//
// Each bin has 32 counters, column l for lane l, and all counters of column l lie in bank l: lanes
// never conflict, whatever the data, and only warps of one block share a counter. Loads take
// 16 bytes, several in flight. At the end a block adds up the columns of each bin. If there are too
// many bins for 32 columns, there are 16, 8, ..., 1. If there are too many for shared memory, counters have 16 bits
// (histogram_halves.cuh), and what each block counted goes to memory, where a second launch adds it up. Elements of still more bins are
// sorted by ranges of bins first (histogram_sort.cuh), or blocks of each range read all of them, at about the same time, so that they
// share them in the level-2 cache.
// histogram_aggregate counts in global memory, for few elements in many bins, or for more bins than ranges pay for.
// A grid of one block of histogram_columns clears the counts itself; before other grids histogram_zero does.
//
// The bytes' kernel counts all 256 values, whatever the bins, and finds a value's bin
// at the end. That takes four instructions a byte.
//
// Shared memory takes an atomic of every lane in every cycle if no two lanes meet in
// a bank (8325 G/s on an H200), so histogram_columns is bound by memory for all types.
#include "follow.cuh"
#include "histogram_halves.cuh"
#include "histogram_sort.cuh"

// sizes: those of ranges, fewer than bins.
extern "C" __global__ void histogram_zero(count_t* counts, int bins, count_t* sizes, int ranges) {
    admit();
    follow();
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < bins) counts[k] = 0;
    if (k < ranges) sizes[k] = 0;
}

// begin clears the table of counters, waits for the kernels before this one, and clears the counts of a grid of one block.
__device__ inline void begin(int words, count_t* counts, int bins) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) table[i] = 0;
    follow();
    if (gridDim.x == 1) {
#pragma unroll 1
        for (int k = threadIdx.x; k < bins; k += blockDim.x) counts[k] = 0;
    }
    __syncthreads();
}

// add_columns calls put(k, sum) with the sum of the 2^shift adjacent counters of each bin k. A
// thread adds up four of them, and neighbouring lanes combine these sums. Lanes start at
// different ones of the four, so that no two read from one bank.
template <typename Put> __device__ void add_columns(int bins, int shift, Put put) {
    __syncthreads();
    const int near = min(shift, 2), far = shift - near; // 2^near words a thread, 2^far lanes a bin
    const int lane = threadIdx.x % 32, threads = bins << far;
    for (int i = threadIdx.x; i - lane < threads; i += blockDim.x) {
        unsigned sum = 0;
        if (i < threads)
            for (int c = 0; c < 1 << near; c++) sum += table[(i << near) | ((c + lane / 8) & ((1 << near) - 1))];
        for (int step = 1 << far >> 1; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step, 1 << far);
        if (i < threads && (i & ((1 << far) - 1)) == 0) put(i >> far, sum);
    }
}

template <typename T> union Sixteen {
    uint4 v;
    T s[16 / sizeof(T)];
};

// each_sixteen calls f on the 16-byte vectors of x that belong to this part, with FLIGHT loads in flight,
// and one on each of the last elements, which do not fill a vector.
template <int FLIGHT, typename T, typename Vector, typename One>
__device__ void each_sixteen(const T* __restrict__ x, long long n, int part, int parts, Vector f, One one) {
    const uint4* vectors = reinterpret_cast<const uint4*>(x);
    const long long count = n * sizeof(T) / 16, tile = FLIGHT * blockDim.x;
    long long i = part * tile + threadIdx.x;
    for (; i + (FLIGHT - 1) * blockDim.x < count; i += parts * tile) {
        uint4 v[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) v[k] = __ldg(vectors + i + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) f(v[k]);
    }
    uint4 v[FLIGHT];
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if (i + k * blockDim.x < count) v[k] = __ldg(vectors + i + k * blockDim.x);
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if (i + k * blockDim.x < count) f(v[k]);
    const long long last = count * 16 / sizeof(T) + threadIdx.x;
    if (part == 0 && last < n) one(x[last]);
}

// Block b counts in range b % ranges of the bins.
template <typename T>
__device__ void histogram_columns(const T* x, count_t* counts, long long n, Range r, int shift, int ranges) {
    const int width = (r.bins + ranges - 1) / ranges, first = blockIdx.x % ranges * width, own = min(width, r.bins - first);
    begin(own << shift, counts, r.bins);
    const int column = threadIdx.x & ((1 << shift) - 1);
    const auto count = [&](T e) {
        const int k = r.bin((double)e) - first;
        if ((unsigned)k < (unsigned)own) atomicAdd(&table[(k << shift) + column], 1u);
    };
    each_sixteen<2>(x, n, blockIdx.x / ranges, gridDim.x / ranges, [&](uint4 v) {
        Sixteen<T> e;
        e.v = v;
#pragma unroll
        for (int k = 0; k < 16 / sizeof(T); k++) count(e.s[k]);
    }, count);
    add_columns(own, shift, [&](int k, unsigned sum) {
        if (sum > 0) atomicAdd(&counts[first + k], (count_t)sum);
    });
}

// histogram_halves counts in halves of words; a thread has two vectors under way. Between two barriers it adds at most 48 to a counter.
template <typename T> __device__ void histogram_halves(const T* x, count_t* counts, long long n, Range r, unsigned* parts) {
    constexpr int W = 16 / sizeof(T), TURNS = halves_between / (2 * W);
    const int words = (r.bins + 1) / 2;
    clear_table(words);
    const uint4* const vectors = reinterpret_cast<const uint4*>(x);
    const long long all = n / W;
    int turn = 0;
    for (long long first = 2ll * blockIdx.x * blockDim.x; first < all; first += 2ll * gridDim.x * blockDim.x) {
        const long long i = first + threadIdx.x;
        const bool two = i + blockDim.x < all;
        Sixteen<T> now, next;
        if (i < all) now.v = __ldg(vectors + i);
        next.v = two ? __ldg(vectors + i + blockDim.x) : now.v;
        if (turn++ == TURNS) __syncthreads(), turn = 1; // while these are on their way
        if (i >= all) continue;
#pragma unroll 1
        for (int left = two; left >= 0; left--) {
            int bin[W];
#pragma unroll
            for (int k = 0; k < W; k++) bin[k] = r.bin((double)now.s[k]);
            count_halves(bin, counts);
            now = next;
        }
    }
    if (blockIdx.x == 0 && all * W + threadIdx.x < n) {
        const int k = r.bin((double)x[all * W + threadIdx.x]);
        if (k >= 0) atomicAdd(&counts[k], (count_t)1);
    }
    __syncthreads();
    unsigned* const own = parts + (long long)blockIdx.x * words;
    for (int i = threadIdx.x; i < words; i += blockDim.x) own[i] = table[i];
}

// histogram_aggregate counts in global memory. The first lane of those with elements in the same bin
// adds their number. A warp therefore issues at most one atomic for each bin among its elements.
template <typename T> __device__ void histogram_aggregate(const T* __restrict__ x, count_t* counts, long long n, Range r) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    const int lane = threadIdx.x % 32;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i - lane < n; i += stride) {
        const int k = i < n ? r.bin((double)x[i]) : -1;
        const unsigned same = __match_any_sync(0xffffffffu, k);
        if (k >= 0 && __ffs(same) - 1 == lane) atomicAdd(&counts[k], (count_t)__popc(same));
    }
}

// For bytes, byte * 128 + lane * 4 is the address of the counter: a shift and a
// mask away from the word that the byte was loaded in.
__device__ inline void histogram_columns(const unsigned char* x, count_t* counts, long long n, Range r, int, int) {
    begin(256 * 32, counts, r.bins);
    const unsigned column = threadIdx.x % 32 * 4;
    const auto count = [&](unsigned times_128) {
        atomicAdd(reinterpret_cast<unsigned*>(reinterpret_cast<char*>(table) + ((times_128 & 0x7f80) | column)), 1u);
    };
    const auto word = [&](unsigned w) {
        count(w << 7);
        count(w >> 1);
        count(w >> 9);
        count(w >> 17);
    };
    each_sixteen<4>(x, n, blockIdx.x, gridDim.x, [&](uint4 v) {
        word(v.x);
        word(v.y);
        word(v.z);
        word(v.w);
    }, [&](unsigned char e) { count(e << 7); });
    // Of 32 values in one bin there is one atomic.
    __shared__ unsigned sums[256];
    add_columns(256, 5, [&](int value, unsigned sum) { sums[value] = sum; });
    __syncthreads();
    if (threadIdx.x >= 256) return;
    const int k = r.bin(threadIdx.x), lane = threadIdx.x % 32;
    const unsigned same = __match_any_sync(0xffffffffu, k);
    if (k < 0 || __ffs(same) - 1 != lane) return;
    count_t total = 0;
    for (unsigned rest = same; rest; rest &= rest - 1) total += sums[threadIdx.x - lane + __ffs(rest) - 1];
    if (total > 0) atomicAdd(&counts[k], total);
}

#define HISTOGRAM(NAME, T)                                                                                          \
    extern "C" __global__ void __launch_bounds__(1024, 2)                                                           \
        histogram_columns_##NAME(const T* x, count_t* counts, long long n, int bins, double lo, double hi,          \
                                 double scale, int shift, int ranges) {                                             \
        histogram_columns(x, counts, n, Range{bins, lo, hi, scale}, shift, ranges);                                 \
    }

#define HISTOGRAM_AGGREGATE(NAME, T)                                                                                \
    extern "C" __global__ void histogram_aggregate_##NAME(const T* x, count_t* counts, long long n, int bins,       \
                                                          double lo, double hi, double scale) {                     \
        histogram_aggregate(x, counts, n, Range{bins, lo, hi, scale});                                              \
    }

#define HISTOGRAM_HALVES(NAME, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 2)                                                           \
        histogram_halves_##NAME(const T* x, count_t* counts, long long n, int bins, double lo, double hi,           \
                                double scale, unsigned* parts) {                                                    \
        histogram_halves(x, counts, n, Range{bins, lo, hi, scale}, parts);                                          \
    }

HISTOGRAM(u8, unsigned char)
HISTOGRAM(i32, int)
HISTOGRAM(i64, long long)
HISTOGRAM(f32, float)
HISTOGRAM(f64, double)
HISTOGRAM_HALVES(i32, int)
HISTOGRAM_HALVES(i64, long long)
HISTOGRAM_HALVES(f32, float)
HISTOGRAM_HALVES(f64, double)
HISTOGRAM_AGGREGATE(i32, int)
HISTOGRAM_AGGREGATE(i64, long long)
HISTOGRAM_AGGREGATE(f32, float)
HISTOGRAM_AGGREGATE(f64, double)

#define HISTOGRAM_SORT(NAME, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(sort_threads, 4)                                                   \
        histogram_sort_##NAME(const T* x, u16* sorted, u16* begins, count_t* sizes, long long n, int bins, double lo, \
                              double hi, double scale, int ranges, int width, int magic, int shift) {               \
        histogram_sort(x, n, Range{bins, lo, hi, scale},                                                            \
                       Ranges{ranges, Divide{width, magic, shift}, sorted, begins, sizes, (int)gridDim.x});         \
    }

HISTOGRAM_SORT(i32, int)
HISTOGRAM_SORT(i64, long long)
HISTOGRAM_SORT(f32, float)
HISTOGRAM_SORT(f64, double)

// histogram_join adds the halves that all blocks counted to the counts, two bins a thread.
extern "C" __global__ void histogram_join(count_t* counts, const unsigned* __restrict__ parts, int bins, int blocks) {
    const int words = (bins + 1) / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= words) return;
    unsigned low = 0, high = 0;
#pragma unroll 16
    for (int b = 0; b < blocks; b++) {
        const unsigned both = parts[(long long)b * words + i];
        low += both & 0xffff;
        high += both >> 16;
    }
    counts[2 * i] += low;
    if (2 * i + 1 < bins) counts[2 * i + 1] += high;
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    histogram_count(count_t* counts, u16* sorted, u16* begins, count_t* sizes, int tiles, int bins, int ranges, int width) {
    histogram_count(counts, bins, Ranges{ranges, Divide{width, 0, 0}, sorted, begins, sizes, tiles});
}
