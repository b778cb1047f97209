// im2col: out[b][y][x][c][i][j] = in[b][c][y sy + i dy - py][x sx + j dx - px], zeros outside
// col2im, its adjoint: out[b][c][h][w] = the sum of the elements of in that im2col
// would take from there, in the order in which they lie
//
// im2col writes as much as size of a window times what it reads. A block does a tile of
// windows of one image for some rows of the kernel's, (c, i): it brings the pieces of
// image rows that they cover to shared memory, in order, and each thread then
// writes one element (c, i, j) of one window after the other, so that stores are in order
// too. No division is left in that loop.
//
// In col2im a block does neighbouring elements of some channels' planes. Neighbouring
// threads have neighbouring channels, because those lie closest in the columns, and what a
// thread leaves of a cache line is what the next ones want; results go through shared
// memory to be stored in order. Each element is added up by one thread.
//
// Both are bound by the columns' traffic.
#include "windows.cuh"

extern __shared__ __align__(16) unsigned char shared[];

// Blocks count through (tile of columns, tile of rows, part of the kernel's rows, image).
// rowsDiv divides by the rows of a part, sizeDiv by the rows of a channel's kernel, spanDiv by
// span, the elements of an image row that a tile covers; down x across windows are a tile.
template <typename T>
__device__ void im2col(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, int down, int across, int span,
                       Divide rowsDiv, Divide sizeDiv, Divide spanDiv, int tilesDown, int tilesAcross, int parts) {
    T* tile = reinterpret_cast<T*>(shared);
    unsigned block = blockIdx.x;
    const int x0 = block % tilesAcross * across;
    block /= tilesAcross;
    const int y0 = block % tilesDown * down;
    block /= tilesDown;
    const int rows = rowsDiv.d, all = channels * v.size, first = block % parts * rows;
    const long long image = block / parts;
    const int mine = min(rows, all - first), width = mine * h.size; // elements of a window
    in += image * channels * v.in * h.in;

#pragma unroll 4
    for (int e = threadIdx.x; e < down * rows * span; e += blockDim.x) {
        const int line = spanDiv(e), at = e - line * span, dy = rowsDiv(line), row = first + line - dy * rows;
        const int c = sizeDiv(row), y = v.begin(y0 + dy) + (row - c * v.size) * v.dilation, x = h.begin(x0) + at;
        tile[e] = row < all && v.inside(y) && h.inside(x) ? in[((long long)c * v.in + y) * h.in + x] : (T)0;
    }
    __syncthreads();

    const int beside = max((int)blockDim.x / width, 1); // windows done at once
    const int lane = threadIdx.x % width, window = threadIdx.x / width;
    if (window >= beside) return;
    const long long stride = (long long)all * h.size; // from window to window
    out += (image * v.out * h.out) * stride + (long long)first * h.size;
    for (int j = lane; j < width; j += blockDim.x) { // once, but for kernels of more elements than a block has threads
        const T* from = tile + j / h.size * span + j % h.size * h.dilation;
        for (int dy = 0; dy < down && y0 + dy < v.out; dy++) {
            T* to = out + ((long long)(y0 + dy) * h.out + x0) * stride + j;
            const int windows = min(across, h.out - x0);
#pragma unroll 4
            for (int x = window; x < windows; x += beside) to[x * stride] = from[dy * rows * span + x * h.stride];
        }
    }
}

// Blocks count through (run of elements of a plane, part of the channels, image). SIZE is
// the rows and columns of the kernel, 0 if not known. channelsDiv divides by the channels
// of a part, rowDiv by the elements of an image row.
template <typename T, int SIZE>
__device__ void col2im(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, int run, Divide channelsDiv, Divide rowDiv,
                       Divide downDiv, Divide acrossDiv, int runs, int parts) {
    T* tile = reinterpret_cast<T*>(shared);
    unsigned block = blockIdx.x;
    const int begin = block % runs * run;
    block /= runs;
    const int part = channelsDiv.d, c0 = block % parts * part;
    const long long image = block / parts;
    const int plane = v.in * h.in, elements = min(run, plane - begin), row = h.size, kernel = v.size * row;
    const long long stride = (long long)channels * kernel; // from window to window
    in += image * v.out * h.out * stride;

    for (int e = threadIdx.x; e < part * elements; e += blockDim.x) {
        const int k = channelsDiv(e), c = c0 + e - k * part, y = rowDiv(begin + k) + v.pad, x = begin + k - (y - v.pad) * h.in + h.pad;
        T sum = 0;
        const T* from = in + (long long)c * kernel;
#pragma unroll(SIZE ? SIZE : 1)
        for (int n = 0; n < (SIZE ? SIZE : v.size); n++) { // the first window ends at the element
            const int i = (SIZE ? SIZE : v.size) - 1 - n, a = y - i * v.dilation, oy = downDiv(max(a, 0));
            const bool down = c < channels && a >= 0 && oy * v.stride == a && oy < v.out;
#pragma unroll(SIZE ? SIZE : 1)
            for (int m = 0; m < (SIZE ? SIZE : row); m++) {
                const int j = (SIZE ? SIZE : row) - 1 - m, b = x - j * h.dilation, ox = acrossDiv(max(b, 0));
                if (down && b >= 0 && ox * h.stride == b && ox < h.out) sum += from[((long long)oy * h.out + ox) * stride + i * row + j];
            }
        }
        tile[(e - k * part) * (run + 1) + k] = sum;
    }
    __syncthreads();
    out += (image * channels + c0) * plane + begin;
    for (int c = 0; c < part && c0 + c < channels; c++)
        for (int k = threadIdx.x; k < elements; k += blockDim.x) out[(long long)c * plane + k] = tile[c * (run + 1) + k];
}

#define AXES                                                                                                      \
    int ih, int oh, int kh, int sh, int dh, int ph, int iw, int ow, int kw, int sw, int dw, int pw
#define DIVIDE(name) int name##0, int name##1, int name##2

#define IM2COL(NAME, T)                                                                                           \
    extern "C" __global__ void __launch_bounds__(512)                                                             \
        im2col_##NAME(const T* in, T* out, int channels, AXES, int down, int across, int span, DIVIDE(rows),      \
                      DIVIDE(size), DIVIDE(span), int tilesDown, int tilesAcross, int parts) {                    \
        im2col<T>(in, out, channels, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}, down, across, span,      \
                  {rows0, rows1, rows2}, {size0, size1, size2}, {span0, span1, span2}, tilesDown, tilesAcross,    \
                  parts);                                                                                         \
    }

#define COL2IM(NAME, SIZE, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        col2im_##NAME(const T* in, T* out, int channels, AXES, int run, DIVIDE(channels), DIVIDE(row),            \
                      DIVIDE(down), DIVIDE(across), int runs, int parts) {                                        \
        col2im<T, SIZE>(in, out, channels, {ih, oh, kh, sh, dh, ph}, {iw, ow, kw, sw, dw, pw}, run,               \
                        {channels0, channels1, channels2}, {row0, row1, row2}, {down0, down1, down2},             \
                        {across0, across1, across2}, runs, parts);                                                \
    }

IM2COL(f32, float)
IM2COL(f64, double)
COL2IM(3x3_f32, 3, float)
COL2IM(3x3_f64, 3, double)
COL2IM(f32, 0, float)
COL2IM(f64, 0, double)
