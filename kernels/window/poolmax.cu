// The greatest element of each window of planes, as in pool.cu, for windows that have no kernel of their own there:
// first those of the parts of rows that windows take, then of those of a window's rows.
//
// A block does a tile of windows of a plane, or of a few small planes. The greatest of the rows' parts go to shared memory, and the
// windows are made from there, so that a window of n x n takes 2 n elements and not n n. The first of equal
// elements is the same either way: that of the first row that has one. Where windows are
// by 1, a thread makes four side by side, which share all but three of their elements.
#include "windows.cuh"

extern __shared__ __align__(16) unsigned char shared[];

constexpr int BESIDE = 4; // windows of a thread, where they are by 1: as in poolmax.go

__device__ bool beside(Axis a) { return a.stride == 1 && a.size >= BESIDE - 1; }

template <typename T> __device__ void take(T& result, T e) {
    if (e > result) result = e;
}

// The greatest of `size` elements from load(0) on; of BESIDE times as many, each from the next element on.
template <typename T, typename L> __device__ T greatest(int size, L load) {
    T result = least<T>();
#pragma unroll 4
    for (int i = 0; i < size; i++) take(result, load(i));
    return result;
}
template <typename T, typename L> __device__ void greatestBeside(int size, T (&result)[BESIDE], L load) {
    constexpr int EDGE = BESIDE - 1;
    T before[EDGE], common = least<T>(), after[EDGE];
#pragma unroll
    for (int i = 0; i < EDGE; i++) before[i] = load(i);
#pragma unroll 4
    for (int i = EDGE; i < size; i++) take(common, load(i));
#pragma unroll
    for (int i = 0; i < EDGE; i++) after[i] = load(size + i);
#pragma unroll
    for (int r = 0; r < BESIDE; r++) {
        result[r] = least<T>();
#pragma unroll
        for (int i = r; i < EDGE; i++) take(result[r], before[i]);
        take(result[r], common);
#pragma unroll
        for (int i = 0; i < r; i++) take(result[r], after[i]);
    }
}

// A tile has planes, each of rows x columns windows and of high rows of parts. high divides by these, across and
// down by what threads take of a row of parts and of a column of windows, columns by its columns.
template <typename T>
__device__ void maxTile(const T* __restrict__ in, T* __restrict__ out, long long planes, Axis v, Axis h, int group, int rows, int tilesDown, int tilesAcross,
                        Divide high, Divide across, Divide down, Divide columns) {
    T* parts = reinterpret_cast<T*>(shared);
    unsigned block = blockIdx.x;
    const int x0 = block % tilesAcross * columns.d;
    block /= tilesAcross;
    const int y0 = block % tilesDown * rows;
    const long long first = (long long)(block / tilesDown) * group;
    const int mine = (int)min((long long)group, planes - first), top = v.begin(y0);
    in += first * (v.in * h.in), out += first * (v.out * h.out);

    for (int e = threadIdx.x; e < mine * high.d * across.d; e += blockDim.x) {
        const int line = across(e), unit = e - line * across.d, plane = high(line), y = top + line - plane * high.d;
        const bool inside = v.inside(y);
        const T* row = in + (long long)plane * (v.in * h.in) + (inside ? y : 0) * h.in;
        T* to = parts + line * columns.d;
        if (beside(h)) {
            const int left = h.begin(x0 + unit * BESIDE);
            T result[BESIDE];
            greatestBeside<T>(h.size, result, [&](int i) { return inside && h.inside(left + i) ? row[left + i] : least<T>(); });
#pragma unroll
            for (int r = 0; r < BESIDE; r++) to[unit * BESIDE + r] = result[r];
        } else {
            const int left = h.begin(x0 + unit);
            to[unit] = greatest<T>(h.size, [&](int i) { return inside && h.inside(left + i) ? row[left + i] : least<T>(); });
        }
    }
    __syncthreads();

    for (int e = threadIdx.x; e < mine * down.d * columns.d; e += blockDim.x) {
        const int line = columns(e), column = e - line * columns.d, plane = down(line), unit = line - plane * down.d, x = x0 + column;
        if (x >= h.out) continue;
        const T* from = parts + plane * high.d * columns.d + column;
        T* to = out + (long long)plane * (v.out * h.out) + x;
        if (beside(v)) {
            from += unit * BESIDE * columns.d;
            T result[BESIDE];
            greatestBeside<T>(v.size, result, [&](int i) { return from[i * columns.d]; });
#pragma unroll
            for (int r = 0; r < BESIDE; r++)
                if (const int y = y0 + unit * BESIDE + r; y < v.out) to[y * h.out] = result[r];
        } else if (y0 + unit < v.out) {
            from += unit * v.stride * columns.d;
            to[(y0 + unit) * h.out] = greatest<T>(v.size, [&](int i) { return from[i * columns.d]; });
        }
    }
}

#define POOL(NAME, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        poolmax_##NAME(const T* in, T* out, long long planes, AXES, int group, int rows, int tilesDown,           \
                       int tilesAcross, DIVIDE(high), DIVIDE(across), DIVIDE(down), DIVIDE(columns)) {            \
        maxTile<T>(in, out, planes, AXES_OF, group, rows, tilesDown, tilesAcross, DIVIDE_OF(high),                \
                   DIVIDE_OF(across), DIVIDE_OF(down), DIVIDE_OF(columns));                                       \
    }

POOL(f32, float)
POOL(f64, double)
