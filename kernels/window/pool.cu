// Pooling, plane by plane, y over windows of x, and the derivative dx of a loss by x, given
// its derivative dy by y:
//
//	max:      y[o] = the greatest of the window      dx[i] = the sum of dy[o] of the windows whose first greatest element is i
//	average:  y[o] = the sum of the window / div     dx[i] = the sum of dy[o] of the windows around i, / div
//
// Elements of a window outside of the plane are left out. Windows and sums are in the
// order in which elements lie. The greatest element is found by >, starting from the least finite
// number: a NaN never is the greatest, and a window with no element above that number has it
// as its result, and no derivative.
//
// Neighbouring threads take neighbouring columns, each a strip of a few rows, so that a thread
// computes divisions and the bounds of columns once for a strip, and reads the rows that
// its windows share once. Elements that neighbours read too come from the cache.
//
// The derivative of a maximum looks for each window's greatest element once: a block
// takes a tile of planes, writes the place of that element and dy, for each window that reaches the
// tile, to shared memory, and then adds up dx of each element from the windows around it.
//
// Windows of 2 x 2 by 2 and of 3 x 3 by 1 and by 2 have kernels of their own, whose loops
// are unrolled; the derivative of a maximum of 3 x 3 by 1 is in poolwalk.cu, the maximum of 2 x 2 by 2 and its derivative in poolpair.cu. Bound by memory.
#include "windows.cuh"

extern __shared__ __align__(16) unsigned char shared[];

constexpr int STRIP = 8; // rows of a strip of a plane, of known windows: as in pool.go

// The most windows of SIZE elements, STRIDE apart, that one element is in.
template <int SIZE, int STRIDE> constexpr int AROUND = (SIZE + STRIDE - 1) / STRIDE;

// A thread's strip: its plane, number there, and column. columns divides by the columns of
// a plane, strips by the strips of one.
struct Strip {
    bool exists;
    int plane, number, column;
    __device__ Strip(Divide strips, Divide columns, int total) {
        const int at = blockIdx.x * blockDim.x + threadIdx.x, line = columns(at);
        exists = at < total;
        column = at - line * columns.d;
        plane = strips(line);
        number = line - plane * strips.d;
    }
};

// total is the number of strips' columns. SIZE is the rows and columns of a window, 0 if
// not known; strips have one row then.
template <typename T, int SIZE, int STRIDE, bool MAX>
__device__ void pool(const T* __restrict__ in, T* __restrict__ out, int total, Axis v, Axis h, T div, Divide strips, Divide columns) {
    const T start = MAX ? least<T>() : 0;
    auto take = [](T& result, T e) {
        if (!MAX) result += e;
        else if (e > result) result = e;
    };
    const Strip s(strips, columns, total);
    if (!s.exists) return;
    in += (long long)s.plane * (v.in * h.in);
    out += (long long)s.plane * (v.out * h.out) + s.column;
    const int left = h.begin(s.column);
    if constexpr (SIZE == 0) {
        const int top = v.begin(s.number), bottom = min(top + v.size, v.in), right = min(left + h.size, h.in);
        T result = start;
        for (int i = max(top, 0); i < bottom; i++)
            for (int j = max(left, 0); j < right; j++) take(result, in[i * h.in + j]);
        out[s.number * h.out] = MAX ? result : result / div;
    } else {
        constexpr int WINDOWS = STRIP / STRIDE, ROWS = STRIP - STRIDE + SIZE;
        const int first = s.number * WINDOWS, top = first * STRIDE - v.pad;
        bool inside[SIZE];
#pragma unroll
        for (int j = 0; j < SIZE; j++) inside[j] = h.inside(left + j);
        in += top * h.in + left;
        T e[ROWS][SIZE];
#pragma unroll
        for (int i = 0; i < ROWS; i++, in += h.in)
#pragma unroll
            for (int j = 0; j < SIZE; j++) e[i][j] = v.inside(top + i) && inside[j] ? in[j] : start;
        if constexpr (MAX) { // of each row once
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                T greatest = start;
#pragma unroll
                for (int j = 0; j < SIZE; j++) take(greatest, e[i][j]);
                e[i][0] = greatest;
            }
        }
        T results[WINDOWS];
#pragma unroll
        for (int r = 0; r < WINDOWS; r++) {
            results[r] = start;
#pragma unroll
            for (int i = 0; i < SIZE; i++)
#pragma unroll
                for (int j = 0; j < (MAX ? 1 : SIZE); j++) take(results[r], e[r * STRIDE + i][j]);
        }
        out += first * h.out;
#pragma unroll
        for (int r = 0; r < WINDOWS; r++, out += h.out)
            if (first + r < v.out) *out = MAX ? results[r] : results[r] / div;
    }
}

// Strips of the derivatives begin where a window does: rows and columns of a plane are counted
// from the first element of the first window that is not wholly in the padding. That window has
// the number pad / stride and begins pad % stride before the plane.

// down and across divide by the strides.
template <typename T, int SIZE, int STRIDE>
__device__ void averageDiff(const T* __restrict__ grad, T* __restrict__ out, int total, Axis v, Axis h, T div, Divide strips, Divide columns,
                            Divide down, Divide across) {
    const Strip s(strips, columns, total);
    if (!s.exists) return;
    grad += (long long)s.plane * (v.out * h.out);
    out += (long long)s.plane * (v.in * h.in) + s.column;
    if constexpr (SIZE == 0) {
        const int y = s.number + v.pad, x = s.column + h.pad;
        const int bottom = min((int)down(y), v.out - 1), right = min((int)across(x), h.out - 1);
        T sum = 0;
        for (int oy = y < v.size ? 0 : down(y - v.size + v.stride); oy <= bottom; oy++)
            for (int ox = x < h.size ? 0 : across(x - h.size + h.stride); ox <= right; ox++) sum += grad[oy * h.out + ox];
        out[s.number * h.in] = sum / div;
    } else {
        constexpr int MOST = AROUND<SIZE, STRIDE>, WINDOWS = STRIP / STRIDE + MOST - 1;
        const int x = s.column + h.pad, right = x / STRIDE, oy = s.number * (STRIP / STRIDE) + v.pad / STRIDE - (MOST - 1);
        bool exists[MOST];
#pragma unroll
        for (int m = 0; m < MOST; m++) {
            const int ox = right - (MOST - 1) + m;
            exists[m] = (unsigned)ox < (unsigned)h.out && x - ox * STRIDE < SIZE;
        }
        grad += oy * h.out + right - (MOST - 1);
        T d[WINDOWS][MOST];
#pragma unroll
        for (int q = 0; q < WINDOWS; q++, grad += h.out)
#pragma unroll
            for (int m = 0; m < MOST; m++) {
                d[q][m] = (unsigned)(oy + q) < (unsigned)v.out && exists[m] ? grad[m] : 0;
                if (MOST == 1) d[q][m] = (0 + d[q][m]) / div; // once for all rows of the window
            }
        const int first = s.number * STRIP - v.pad % STRIDE;
        out += first * h.in;
#pragma unroll
        for (int r = 0; r < STRIP; r++, out += h.in) {
            T sum = 0;
#pragma unroll
            for (int q = 0; q < WINDOWS; q++) {
                const int i = r - (q - (MOST - 1)) * STRIDE; // the row of the window
#pragma unroll
                for (int m = 0; m < MOST; m++)
                    if (i >= 0 && i < SIZE) sum = MOST == 1 ? d[q][m] : sum + d[q][m];
            }
            if (v.inside(first + r)) *out = MOST == 1 ? sum : sum / div;
        }
    }
}

// A window's derivative and the place in its plane of the element that it goes to, -1 for none.
template <typename T> struct alignas(2 * sizeof(T)) Winner {
    T slope;
    int at;
};

// A tile of a block: its planes, rows and columns; the windows around it in a plane, high x wide; the most
// windows along either axis that an element is in; and divisions by the rows and columns of its strips, of
// windows and of elements.
struct Tile {
    int planes, rows, columns, down, across, aroundRows, aroundColumns, high, wide;
    Divide windowStrips, windowColumns, strips, stripColumns;
};

// Finds the greatest elements of a strip of windows, and writes them to the tile, whose
// rows of windows are wide.
template <typename T, int SIZE, int STRIDE>
__device__ void winners(const T* __restrict__ in, const T* __restrict__ grad, Winner<T>* to, Axis v, Axis h, int oy, int ox, int rows, int wide) {
    constexpr int WINDOWS = SIZE ? STRIP / STRIDE : 1;
    const bool column = (unsigned)ox < (unsigned)h.out;
    T slope[WINDOWS];
    grad += oy * h.out + ox;
#pragma unroll
    for (int r = 0; r < WINDOWS; r++, grad += h.out) slope[r] = column && (unsigned)(oy + r) < (unsigned)v.out ? *grad : 0;
    auto write = [&](int r, int at) {
        if (r < rows) *to = {slope[r], (unsigned)(oy + r) < (unsigned)v.out ? at : -1};
        to += wide;
    };
    const int top = v.begin(oy), left = h.begin(ox);
    if constexpr (SIZE == 0) {
        const int bottom = column ? min(top + v.size, v.in) : 0, right = min(left + h.size, h.in);
        T greatest = least<T>();
        int at = -1;
        for (int i = max(top, 0); i < bottom; i++)
#pragma unroll 1
            for (int j = max(left, 0); j < right; j++) {
                const T e = in[i * h.in + j];
                if (e > greatest) greatest = e, at = i * h.in + j;
            }
        write(0, at);
    } else {
        constexpr int ROWS = STRIP - STRIDE + SIZE;
        bool inside[SIZE];
#pragma unroll
        for (int j = 0; j < SIZE; j++) inside[j] = column && h.inside(left + j);
        T e[ROWS][SIZE];
        int first = top * h.in + left;
        in += first;
#pragma unroll
        for (int i = 0; i < ROWS; i++, in += h.in)
#pragma unroll
            for (int j = 0; j < SIZE; j++) e[i][j] = v.inside(top + i) && inside[j] ? in[j] : least<T>();
        int at[ROWS]; // the greatest of each row, which goes to e[i][0]
#pragma unroll
        for (int i = 0; i < ROWS; i++, first += h.in) {
            T greatest = e[i][0];
            at[i] = first;
            if (!(greatest > least<T>())) greatest = least<T>(), at[i] = -1;
#pragma unroll
            for (int j = 1; j < SIZE; j++)
                if (e[i][j] > greatest) greatest = e[i][j], at[i] = first + j;
            e[i][0] = greatest;
        }
#pragma unroll
        for (int r = 0; r < WINDOWS; r++) {
            T greatest = e[r * STRIDE][0];
            int place = at[r * STRIDE];
#pragma unroll
            for (int i = 1; i < SIZE; i++)
                if (e[r * STRIDE + i][0] > greatest) greatest = e[r * STRIDE + i][0], place = at[r * STRIDE + i];
            write(r, place);
        }
    }
}

template <typename T, int SIZE, int STRIDE>
__device__ void maxDiff(const T* __restrict__ in, const T* __restrict__ grad, T* __restrict__ out, long long planes, Axis v, Axis h, Tile t, Divide down, Divide across) {
    constexpr int ROWS = SIZE ? STRIP : 1, WINDOWS = SIZE ? STRIP / STRIDE : 1;
    Winner<T>* tile = reinterpret_cast<Winner<T>*>(shared);
    unsigned block = blockIdx.x;
    const int x0 = block % t.across * t.columns;
    block /= t.across;
    const int y0 = block % t.down * t.rows;
    const long long first = (long long)(block / t.down) * t.planes;
    const int group = (int)min((long long)t.planes, planes - first);
    in += first * (v.in * h.in), out += first * (v.in * h.in), grad += first * (v.out * h.out);

    const int oy0 = (int)down(y0 + v.pad) - (t.aroundRows - 1), ox0 = (int)across(x0 + h.pad) - (t.aroundColumns - 1);
    const int windows = t.high * t.wide;
    for (int e = threadIdx.x; e < group * t.windowStrips.d * t.wide; e += blockDim.x) {
        const int line = t.windowColumns(e), column = e - line * t.wide, plane = t.windowStrips(line), row = (line - plane * t.windowStrips.d) * WINDOWS;
        winners<T, SIZE, STRIDE>(in + (long long)plane * (v.in * h.in), grad + (long long)plane * (v.out * h.out), tile + plane * windows + row * t.wide + column, v, h,
                                 oy0 + row, ox0 + column, t.high - row, t.wide);
    }
    __syncthreads();

    const int offset = down(v.pad) * v.stride - v.pad; // from a row's number in the count of rows to its number in the plane
    const int side = (int)across(h.pad) * h.stride - h.pad;
    for (int e = threadIdx.x; e < group * t.strips.d * t.columns; e += blockDim.x) {
        const int line = t.stripColumns(e), column = e - line * t.columns, plane = t.strips(line), row = (line - plane * t.strips.d) * ROWS;
        const int y = y0 + row + offset, x = x0 + column + side, at = y * h.in + x;
        if (!h.inside(x)) continue;
        T* to = out + (long long)plane * (v.in * h.in) + at;
        const Winner<T>* from = tile + plane * windows + (SIZE ? row / STRIDE : down(row)) * t.wide + (SIZE ? column / STRIDE : across(column));
        if constexpr (SIZE == 0) {
            if (!v.inside(y)) continue;
            T sum = 0;
            for (int q = 0; q < t.aroundRows; q++)
                for (int m = 0; m < t.aroundColumns; m++) {
                    const Winner<T> w = from[q * t.wide + m];
                    if (w.at == at) sum += w.slope;
                }
            *to = sum;
        } else {
            constexpr int MOST = AROUND<SIZE, STRIDE>;
            T sums[STRIP] = {};
#pragma unroll
            for (int q = 0; q < STRIP / STRIDE + MOST - 1; q++, from += t.wide) {
#pragma unroll
                for (int m = 0; m < MOST; m++) {
                    const Winner<T> w = from[m];
#pragma unroll
                    for (int r = 0; r < STRIP; r++) {
                        const int i = r - (q - (MOST - 1)) * STRIDE; // the row of the window
                        if (i >= 0 && i < SIZE && w.at == at + r * h.in) sums[r] += w.slope;
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < STRIP; r++, to += h.in)
                if (v.inside(y + r)) *to = sums[r];
        }
    }
}

// The same where an element is in so many windows that those around a tile do not fit into
// shared memory: each thread finds out whether its element is the first greatest of each window.
template <typename T>
__device__ void maxDiffFar(const T* __restrict__ in, const T* __restrict__ grad, T* __restrict__ out, int total, Axis v, Axis h, Divide strips, Divide columns,
                           Divide down, Divide across) {
    const Strip s(strips, columns, total);
    if (!s.exists) return;
    in += (long long)s.plane * (v.in * h.in);
    grad += (long long)s.plane * (v.out * h.out);
    const int y = s.number + v.pad, x = s.column + h.pad, at = s.number * h.in + s.column;
    const T value = in[at];
    auto first = [&](int oy, int ox) {
        const int bottom = min(v.begin(oy) + v.size, v.in), left = max(h.begin(ox), 0), right = min(h.begin(ox) + h.size, h.in);
        for (int i = max(v.begin(oy), 0); i < bottom; i++)
            for (int j = left; j < right; j++) {
                const T e = in[i * h.in + j];
                if (e > value || (e == value && i * h.in + j < at)) return false;
            }
        return value > least<T>();
    };
    T sum = 0;
    const int bottom = min((int)down(y), v.out - 1), right = min((int)across(x), h.out - 1);
    for (int oy = y < v.size ? 0 : down(y - v.size + v.stride); oy <= bottom; oy++)
        for (int ox = x < h.size ? 0 : across(x - h.size + h.stride); ox <= right; ox++)
            if (first(oy, ox)) sum += grad[oy * h.out + ox];
    out[(long long)s.plane * (v.in * h.in) + at] = sum;
}

#define POOL(OP, MAX, NAME, SIZE, STRIDE, T)                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        pool_##OP##_##NAME(const T* in, T* out, int total, AXES, double div, DIVIDE(strips), DIVIDE(columns)) { \
        pool<T, SIZE, STRIDE, MAX>(in, out, total, AXES_OF, (T)div, DIVIDE_OF(strips), DIVIDE_OF(columns));       \
    }

#define AVERAGES(NAME, SIZE, STRIDE, T)                                                                           \
    POOL(average, false, NAME, SIZE, STRIDE, T)                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        pool_average_diff_##NAME(const T* grad, T* out, int total, AXES, double div, DIVIDE(strips),        \
                                 DIVIDE(columns), DIVIDE(down), DIVIDE(across)) {                                 \
        averageDiff<T, SIZE, STRIDE>(grad, out, total, AXES_OF, (T)div, DIVIDE_OF(strips), DIVIDE_OF(columns),    \
                                     DIVIDE_OF(down), DIVIDE_OF(across));                                         \
    }

#define POOLS(NAME, SIZE, STRIDE, T)                                                                              \
    POOL(max, true, NAME, SIZE, STRIDE, T)                                                                        \
    AVERAGES(NAME, SIZE, STRIDE, T)

#define MAX_DIFF(NAME, SIZE, STRIDE, T)                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        pool_max_diff_##NAME(const T* in, const T* grad, T* out, long long planes, AXES, DIVIDE(down),            \
                             DIVIDE(across), int tilePlanes, int tileRows, int tileColumns, int tilesDown,        \
                             int tilesAcross, int aroundRows, int aroundColumns, int high, int wide,              \
                             DIVIDE(windowStrips), DIVIDE(windowColumns), DIVIDE(strips), DIVIDE(columns)) {      \
        maxDiff<T, SIZE, STRIDE>(in, grad, out, planes, AXES_OF,                                                  \
                                 {tilePlanes, tileRows, tileColumns, tilesDown, tilesAcross, aroundRows,          \
                                  aroundColumns, high, wide, DIVIDE_OF(windowStrips), DIVIDE_OF(windowColumns),   \
                                  DIVIDE_OF(strips), DIVIDE_OF(columns)},                                         \
                                 DIVIDE_OF(down), DIVIDE_OF(across));                                             \
    }

#define ALL(NAME, T)                                                                                              \
    AVERAGES(2x2_2_##NAME, 2, 2, T)                                                                               \
    POOLS(3x3_1_##NAME, 3, 1, T)                                                                                  \
    POOLS(3x3_2_##NAME, 3, 2, T)                                                                                  \
    MAX_DIFF(3x3_2_##NAME, 3, 2, T)                                                                               \
    POOLS(NAME, 0, 1, T)                                                                                          \
    MAX_DIFF(NAME, 0, 1, T)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        pool_max_diff_far_##NAME(const T* in, const T* grad, T* out, int total, AXES, DIVIDE(strips),       \
                                 DIVIDE(columns), DIVIDE(down), DIVIDE(across)) {                                 \
        maxDiffFar<T>(in, grad, out, total, AXES_OF, DIVIDE_OF(strips), DIVIDE_OF(columns), DIVIDE_OF(down),      \
                      DIVIDE_OF(across));                                                                         \
    }

ALL(f32, float)
ALL(f64, double)
