// im2col: out[b][y][x][c][i][j] = in[b][c][y sy + i dy - py][x sx + j dx - px], zeros outside
// col2im, its adjoint: out[b][c][h][w] = the sum of the elements of in that im2col
// would take from there, in the order in which they lie
//
// im2col writes as much as size of a window times what it reads. A block does a tile of
// windows of some channels of one image: it brings the rows that they cover to shared memory, all
// at once, and each thread then has one element (c, i, j), or neighbours that have 16 bytes, whose places in
// the tile it knows, and writes those of one window after the other. No division is left in that loop,
// stores are in order, and rows and planes lie such that few threads read from one bank.
//
// In col2im a block goes down the rows of some channels of one image. The rows of windows
// that a step adds come to shared memory, a ring of as many rows as two steps need, while the step
// before is summed from there: each element by one thread, neighbouring threads neighbouring
// columns. So the columns are read once, in pieces of all elements of a window in these
// channels.
//
// Both are bound by the columns' traffic.
#include "async.cuh"
#include "windows.cuh"

extern __shared__ __align__(16) unsigned char shared[];

template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
    T s[N];
};

// Blocks count through (tile of columns, tile of rows, part of the channels, image). A tile has
// down x across windows and part channels, of each high x span elements, plane from one to the next.
// A thread has WIDTH elements of a window. spanDiv divides by span, highDiv by high, kernelDiv by the elements of a channel's
// kernel, rowDiv by those of its row.
template <typename T, int WIDTH>
__device__ void im2col(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, int part, int down, int across, int plane, Divide highDiv,
                       Divide spanDiv, Divide kernelDiv, Divide rowDiv, int tilesDown, int tilesAcross, int parts) {
    T* tile = reinterpret_cast<T*>(shared);
    unsigned block = blockIdx.x;
    const int x0 = block % tilesAcross * across;
    block /= tilesAcross;
    const int y0 = block % tilesDown * down;
    block /= tilesDown;
    const int c0 = block % parts * part, mine = min(part, channels - c0), kernel = kernelDiv.d, span = spanDiv.d, high = highDiv.d;
    const long long image = block / parts;
    in += (image * channels + c0) * (v.in * h.in);

    const int top = v.begin(y0), left = h.begin(x0);
    for (int e = threadIdx.x; e < mine * high * span; e += blockDim.x) {
        const int line = spanDiv(e), x = left + e - line * span, c = highDiv(line), y = top + line - c * high;
        const bool inside = v.inside(y) && h.inside(x);
        async_copy(tile + e + c * (plane - high * span), inside ? in + (long long)c * (v.in * h.in) + (y * h.in + x) : in, inside);
    }
    commit();
    arrived<0>();
    __syncthreads();

    const int width = mine * kernel / WIDTH, columns = min(across, h.out - x0), windows = min(down, v.out - y0) * columns;
    const int beside = min(max((int)blockDim.x / width, 1), columns); // windows done at once
    const int lane = threadIdx.x % width, window = threadIdx.x / width;
    if (window >= beside) return;
    const long long stride = (long long)channels * kernel; // from window to window
    out += ((image * v.out + y0) * h.out + x0 + window) * stride + (long long)c0 * kernel;
    // From window to window of a thread, and beyond that, where a row ends:
    const int step = beside * h.stride, back = v.stride * span - columns * h.stride;
    const long long far = beside * stride, jump = (h.out - columns) * stride;
    for (int k = lane; k < width; k += blockDim.x) { // once, but for windows of more than a block has threads
        const T* from[WIDTH];
#pragma unroll
        for (int n = 0; n < WIDTH; n++) {
            const int e = k * WIDTH + n, c = kernelDiv(e), i = rowDiv(e - c * kernel), j = e - c * kernel - i * h.size;
            from[n] = tile + c * plane + i * v.dilation * span + j * h.dilation;
        }
        T* to = out + k * WIDTH;
        int at = window * h.stride, x = window;
#pragma unroll 4
        for (int w = window; w < windows; w += beside) {
            Vector<T, WIDTH> e;
#pragma unroll
            for (int n = 0; n < WIDTH; n++) e.s[n] = from[n][at];
            *reinterpret_cast<Vector<T, WIDTH>*>(to) = e;
            at += step, to += far, x += beside;
            if (x >= columns) x -= columns, at += back, to += jump;
        }
    }
}

// The last window along an axis that has element at.
__device__ int last(Axis a, Divide stride, int at) { return min((int)stride(at + a.pad), a.out - 1); }

// The first window along an axis that reaches element at or what is behind it.
__device__ int first(Axis a, Divide stride, int at) {
    const int from = at + a.pad - (a.size - 1) * a.dilation;
    return from <= 0 ? 0 : stride(from + a.stride - 1);
}

// Blocks count through (tile of columns, tile of rows, part of the channels, image). A step is step
// rows; windows lie pitch apart in the ring, ringDiv divides by its rows of wide windows, columnsDiv
// by the columns of a tile. SIZE is the rows and columns of the kernel, 0 if not known.
template <typename T, int SIZE>
__device__ void col2im(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, int part, int rows, int step, int wide, int pitch,
                       Divide columnsDiv, Divide ringDiv, Divide downDiv, Divide acrossDiv, int tilesDown, int tilesAcross, int parts) {
    T* ring = reinterpret_cast<T*>(shared);
    int* places = reinterpret_cast<int*>(ring + ringDiv.d * wide * pitch); // in the ring, of the windows that have a row of the step as their row i, -1 for none
    unsigned block = blockIdx.x;
    const int x0 = block % tilesAcross * columnsDiv.d;
    block /= tilesAcross;
    const int y0 = block % tilesDown * rows, y1 = min(y0 + rows, v.in);
    block /= tilesDown;
    const int c0 = block % parts * part, mine = min(part, channels - c0), kernel = v.size * h.size, width = mine * kernel;
    const long long image = block / parts, stride = (long long)channels * kernel; // from window to window
    const int columns = min(columnsDiv.d, h.in - x0);
    const int ox0 = first(h, acrossDiv, x0), windows = last(h, acrossDiv, x0 + columns - 1) - ox0 + 1;
    in += (image * v.out * h.out + ox0) * stride + (long long)c0 * kernel;
    out += (image * channels + c0) * (v.in * h.in) + x0;

    // A thread's first element of a row of windows, and how far it is to the next, without and with a turn to another window.
    const int x1 = threadIdx.x / width, k1 = threadIdx.x - x1 * width, dx = blockDim.x / width, dk = blockDim.x - dx * width;
    int next = first(v, downDiv, y0); // row of windows to come
    auto slot = [&](int y) { return y - (int)ringDiv(y) * ringDiv.d; }; // of a row of windows
    auto fetch = [&](int y) { // those that the rows to y have
        for (const int end = last(v, downDiv, min(y, y1 - 1)); next <= end; next++) {
            T* to = ring + slot(next) * wide * pitch + x1 * pitch + k1;
            const T* from = in + (long long)next * h.out * stride + x1 * stride + k1;
            for (int x = x1, k = k1; x < windows;) {
                async_copy(to, from);
                x += dx, k += dk, to += dx * pitch + dk, from += dx * stride + dk;
                if (k >= width) x++, k -= width, to += pitch - width, from += stride - width;
            }
        }
        commit();
    };
    fetch(y0 + step - 1);
    for (int y = y0; y < y1; y += step) {
        fetch(y + 2 * step - 1);
        for (int e = threadIdx.x; e < step * v.size; e += blockDim.x) {
            const int row = e / v.size, i = e - row * v.size, at = y + row + v.pad - i * v.dilation, oy = downDiv(max(at, 0));
            places[e] = at >= 0 && oy * v.stride == at && oy < v.out ? slot(oy) * wide * pitch + i * h.size : -1;
        }
        arrived<1>();
        __syncthreads();
        for (int e = threadIdx.x; e < mine * columnsDiv.d; e += blockDim.x) {
            const int c = columnsDiv(e), column = e - c * columnsDiv.d, b = x0 + column + h.pad;
            if (column >= columns) continue;
            const T* from = ring + c * kernel - ox0 * pitch;
            T* to = out + (long long)c * (v.in * h.in) + y * h.in + column;
            auto place = [&](int j) { // of the window that has the column as its column j
                const int at = b - j * h.dilation, ox = acrossDiv(max(at, 0));
                return at >= 0 && ox * h.stride == at && ox < h.out ? ox * pitch + j : -1;
            };
            int known[SIZE ? SIZE : 1];
#pragma unroll
            for (int j = 0; j < SIZE; j++) known[j] = place(j);
            for (int row = 0; row < step && y + row < y1; row++, to += h.in) {
                T sum = 0;
#pragma unroll(SIZE ? SIZE : 1)
                for (int i = (SIZE ? SIZE : v.size) - 1; i >= 0; i--) { // the first window ends at the element
                    const int down = places[row * (SIZE ? SIZE : v.size) + i];
                    if (down < 0) continue;
#pragma unroll(SIZE ? SIZE : 1)
                    for (int j = (SIZE ? SIZE : h.size) - 1; j >= 0; j--) {
                        const int across = SIZE ? known[j] : place(j);
                        if (across >= 0) sum += from[down + across];
                    }
                }
                *to = sum;
            }
        }
        __syncthreads();
    }
    arrived<0>();
}

// The same where the windows of a row do not fit into shared memory: a thread sums an
// element from where it lies. Blocks count through (run of elements of a plane, plane).
template <typename T>
__device__ void col2imFar(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, Divide rowDiv, Divide downDiv, Divide acrossDiv, int runs) {
    const long long plane = blockIdx.x / (unsigned)runs, image = plane / channels;
    const int at = blockIdx.x % (unsigned)runs * blockDim.x + threadIdx.x, kernel = v.size * h.size;
    if (at >= v.in * h.in) return;
    const long long stride = (long long)channels * kernel;
    in += image * v.out * h.out * stride + (plane - image * channels) * kernel;
    const int y = rowDiv(at), x = at - y * h.in;
    T sum = 0;
    for (int oy = first(v, downDiv, y); oy <= last(v, downDiv, y); oy++) {
        const int i = y - v.begin(oy);
        if (i % v.dilation > 0) continue;
        for (int ox = first(h, acrossDiv, x); ox <= last(h, acrossDiv, x); ox++) {
            const int j = x - h.begin(ox);
            if (j % h.dilation == 0) sum += in[((long long)oy * h.out + ox) * stride + i / v.dilation * h.size + j / h.dilation];
        }
    }
    out[plane * (v.in * h.in) + at] = sum;
}

#define AXES                                                                                                      \
    int ih, int oh, int kh, int sh, int dh, int ph, int iw, int ow, int kw, int sw, int dw, int pw
#define AXES_OF {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}
#define DIVIDE(name) int name##0, int name##1, int name##2
#define DIVIDE_OF(name) {name##0, name##1, name##2}

#define IM2COL(NAME, WIDTH, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(512)                                                             \
        im2col_##NAME(const T* in, T* out, int channels, AXES, int part, int down, int across, int plane,         \
                      DIVIDE(high), DIVIDE(span), DIVIDE(kernel), DIVIDE(row), int tilesDown, int tilesAcross,    \
                      int parts) {                                                                                \
        im2col<T, WIDTH>(in, out, channels, AXES_OF, part, down, across, plane, DIVIDE_OF(high), DIVIDE_OF(span), \
                  DIVIDE_OF(kernel), DIVIDE_OF(row), tilesDown, tilesAcross, parts);                              \
    }

#define COL2IM(NAME, SIZE, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        col2im_##NAME(const T* in, T* out, int channels, AXES, int part, int rows, int step, int wide, int pitch, \
                      DIVIDE(columns), DIVIDE(ring), DIVIDE(down), DIVIDE(across), int tilesDown,                 \
                      int tilesAcross, int parts) {                                                               \
        col2im<T, SIZE>(in, out, channels, AXES_OF, part, rows, step, wide, pitch, DIVIDE_OF(columns),            \
                        DIVIDE_OF(ring), DIVIDE_OF(down), DIVIDE_OF(across), tilesDown, tilesAcross, parts);      \
    }

#define FAR(NAME, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        col2im_far_##NAME(const T* in, T* out, int channels, AXES, DIVIDE(row), DIVIDE(down), DIVIDE(across),     \
                          int runs) {                                                                             \
        col2imFar<T>(in, out, channels, AXES_OF, DIVIDE_OF(row), DIVIDE_OF(down), DIVIDE_OF(across), runs);       \
    }

IM2COL(f32, 1, float)
IM2COL(f64, 1, double)
IM2COL(vector_f32, 4, float)
IM2COL(vector_f64, 2, double)
COL2IM(3x3_f32, 3, float)
COL2IM(3x3_f64, 3, double)
COL2IM(f32, 0, float)
COL2IM(f64, 0, double)
FAR(f32, float)
FAR(f64, double)
