// im2col: out[b][y][x][c][i][j] = in[b][c][y sy + i dy - py][x sx + j dx - px], zeros outside
// col2im, its adjoint: out[b][c][h][w] = the sum of the elements of in that im2col
// would copy from there, in the order in which they lie
//
// im2col writes up to the window size times as much as it reads. A block processes a tile of windows of some channels of one
// image, or all windows of a few small images. It first copies all rows that the windows cover to shared memory. Windows are
// processed in groups of adjacent windows, or singly. A thread owns one element (c, i, j) of a group, or 16 bytes of consecutive
// elements. It computes their offsets in the tile once, then writes them for group after group. A table holds each group's offset
// in the tile and in memory, so that 16 bytes take about 15 instructions. The pitches of rows and planes avoid most bank conflicts.
//
// In col2im a block iterates over the rows of windows of some channels of one image. It copies a row of windows to shared memory
// while it adds the previous row to the accumulators of the image rows that the windows contain. One thread accumulates each
// element, at precomputed offsets in a row of windows. An image row is written when no later windows contain it. So each column
// element is read once; a contiguous piece holds all elements of a window in these channels.
//
// Both are bound by the columns' traffic.
#include "async.cuh"
#include "windows.cuh"

extern __shared__ __align__(16) unsigned char shared[];

template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
    T s[N];
};

// fill copies an element or 16 bytes to shared memory as async_copy, zeros where not inside. A copy that may be of no bytes takes twice the instructions.
template <typename U> __device__ __forceinline__ void fill(U* to, const U* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (sizeof(U) == 16)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; @!p st.shared.v4.u32 [%0], {0, 0, 0, 0}; }" ::"r"(shared), "l"(from), "r"((unsigned)inside) : "memory");
    else if constexpr (sizeof(U) == 8)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], 8; @!p st.shared.u64 [%0], 0; }" ::"r"(shared), "l"(from), "r"((unsigned)inside) : "memory");
    else
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], 4; @!p st.shared.u32 [%0], 0; }" ::"r"(shared), "l"(from), "r"((unsigned)inside) : "memory");
#else
    *to = inside ? *from : U();
#endif
}

// Where a group of windows begins: bytes in the tile, and which group of the image's, or of the images', it is, from the tile's first one on.
struct Place {
    unsigned tile, group;
};

// Lines distributes the image rows that a block copies over its threads; 2^lanes threads copy each row.
struct Lines {
    int plane, row, planes, rows; // a thread's first row, and the distance to its next row
    __device__ Lines(int lanes, Divide high) {
        const int first = threadIdx.x >> lanes, beside = blockDim.x >> lanes;
        plane = high(first), row = first - plane * high.d;
        planes = high(beside), rows = beside - planes * high.d;
    }
};

// Blocks count through (part of the channels, tile of columns, tile of rows, batch images). A tile holds
// down x across windows of part channels, or several whole images. It has high x span elements per channel; plane is the distance between
// channels. vectors is the number of elements in 16 bytes if the image's rows are 16-byte aligned; the tile's rows are then aligned too.
// Otherwise vectors is 1. 2^lanes threads copy a row. A thread writes WIDTH elements, contiguous in out, of each group of 2^group windows.
// highDiv divides by high, kernelDiv by the size of a channel's window, rowDiv by the length of a window's row. tilesDown, tilesAcross
// and parts divide by the numbers of tiles and parts.
template <typename T, int WIDTH>
__device__ void im2col(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, int part, int down, int across, int span, int plane,
                       int group, int images, int batch, int vectors, int lanes, Divide highDiv, Divide kernelDiv, Divide rowDiv, Divide tilesDown, Divide tilesAcross, Divide parts) {
    constexpr int W = 16 / sizeof(T);
    T* tile = reinterpret_cast<T*>(shared);
    const int shared0 = (batch * part * plane * (int)sizeof(T) + 15) & ~15; // of the table
    Place* places = reinterpret_cast<Place*>(shared + shared0);
    const unsigned partsOver = parts(blockIdx.x), acrossOver = tilesAcross(partsOver), batches = tilesDown(acrossOver);
    const int c0 = (blockIdx.x - partsOver * parts.d) * part, x0 = (partsOver - acrossOver * tilesAcross.d) * across, y0 = (acrossOver - batches * tilesDown.d) * down;
    const long long image = (long long)batches * batch;
    const int several = (int)min((long long)batch, images - image), mine = min(part, channels - c0), kernel = kernelDiv.d, high = highDiv.d;

    const int top = v.begin(y0), left = h.begin(x0) & -vectors;
    in += (image * channels + c0) * (v.in * h.in) + ((long long)top * h.in + left);
    const Lines lines(lanes, highDiv);
    const int x1 = threadIdx.x & (1 << lanes) - 1;
    for (int c = lines.plane, row = lines.row; c < several * mine;) {
        const int end = v.inside(top + row) ? h.in : 0;
        const T* source = in + ((long long)c * (v.in * h.in) + row * h.in);
        T* target = tile + (c * plane + row * span);
        if (vectors > 1) {
#pragma unroll 2
            for (int x = x1 * W; x < span; x += W << lanes)
                fill(reinterpret_cast<Vector<T, W>*>(target + x), reinterpret_cast<const Vector<T, W>*>(source + x), (unsigned)(left + x) < (unsigned)end);
        } else {
#pragma unroll 4
            for (int x = x1; x < span; x += 1 << lanes) fill(target + x, source + x, (unsigned)(left + x) < (unsigned)end);
        }
        c += lines.planes, row += lines.rows;
        if (row >= high) row -= high, c++;
    }
    commit();

    const int size = mine * kernel, width = (size << group) / WIDTH, columns = min(across, h.out - x0) >> group, rows = min(down, v.out - y0), groups = several * rows * columns;
    for (int g = threadIdx.x; g < groups; g += blockDim.x) {
        const int line = g / columns, x = g - line * columns, i = batch > 1 ? line / rows : 0, y = line - i * rows;
        places[g] = {(unsigned)(i * mine * plane + y * v.stride * span + (x << group) * h.stride) * (unsigned)sizeof(T), (unsigned)((i * v.out + y) * (h.out >> group) + x)};
    }
    const int beside = min(max((int)blockDim.x / width, 1), groups); // groups done at once
    const int first = threadIdx.x / width, lane = threadIdx.x - first * width;
    const unsigned stride = (unsigned)(channels * kernel << group) * (unsigned)sizeof(T); // bytes from group to group
    out += ((image * v.out + y0) * h.out + x0) * ((long long)channels * kernel) + (long long)c0 * kernel;
    arrived<0>();
    __syncthreads();
    if (first >= beside) return;
    for (int k = lane; k < width; k += blockDim.x) { // more than one iteration only if width exceeds the block size
        unsigned from[WIDTH];
#pragma unroll
        for (int n = 0; n < WIDTH; n++) {
            int e = k * WIDTH + n, at = h.begin(x0) - left; // of a window of the group
            for (; e >= size; e -= size) at += h.stride;
            const int c = kernelDiv(e), i = rowDiv(e - c * kernel), j = e - c * kernel - i * h.size;
            from[n] = (unsigned)(at + c * plane + i * v.dilation * span + j * h.dilation) * (unsigned)sizeof(T);
        }
        unsigned char* to = reinterpret_cast<unsigned char*>(out + k * WIDTH);
        auto element = [&](unsigned at) { return *reinterpret_cast<const T*>(shared + at); };
        using V = Vector<T, WIDTH>;
        int g = first;
        for (; g + beside < groups; g += 2 * beside) { // two at once hide what it takes to read
            const Place p = places[g], q = places[g + beside];
            V d, e;
#pragma unroll
            for (int n = 0; n < WIDTH; n++) d.s[n] = element(from[n] + p.tile);
#pragma unroll
            for (int n = 0; n < WIDTH; n++) e.s[n] = element(from[n] + q.tile);
            *reinterpret_cast<V*>(to + (unsigned long long)p.group * stride) = d;
            *reinterpret_cast<V*>(to + (unsigned long long)q.group * stride) = e;
        }
        if (g < groups) {
            const Place p = places[g];
            V d;
#pragma unroll
            for (int n = 0; n < WIDTH; n++) d.s[n] = element(from[n] + p.tile);
            *reinterpret_cast<V*>(to + (unsigned long long)p.group * stride) = d;
        }
    }
}

// The last window along an axis that has element at.
__device__ int last(Axis a, Divide stride, int at) { return min((int)stride(at + a.pad), a.out - 1); }

// The first window along an axis that reaches element at, or elements beyond it.
__device__ int first(Axis a, Divide stride, int at) {
    const int from = at + a.pad - (a.size - 1) * a.dilation;
    return from <= 0 ? 0 : stride(from + a.stride - 1);
}

// A thread's share in copying a row of windows: pieces of windows, which lie pitch apart in the ring and stride apart in memory.
struct Copier {
    int x, k, dx, dk, pieces, pitch; // its first window and piece; the step to its next piece, before the carry from k to x
    long long stride;
    __device__ Copier(int pieces, int pitch, long long stride) : pieces(pieces), pitch(pitch), stride(stride) {
        x = threadIdx.x / pieces, k = threadIdx.x - x * pieces;
        dx = blockDim.x / pieces, dk = blockDim.x - dx * pieces;
    }
    template <typename U> __device__ void copy(U* to, const U* from, int windows) const {
        to += x * pitch + k, from += x * stride + k;
        const int step = dx * pitch + dk, turn = pitch - pieces;
        const long long far = dx * stride + dk, leap = stride - pieces;
        for (int at = x, piece = k; at < windows;) {
            async_copy(to, from);
            at += dx, piece += dk, to += step, from += far;
            if (piece >= pieces) at++, piece -= pieces, to += turn, from += leap;
        }
    }
};

// How a row of windows is copied to shared memory.
enum { ELEMENTS, VECTORS, WHOLE }; // element by element; in 16 bytes; as one array of all channels, in 16 bytes, even if unaligned

// Blocks count through (tile of columns, tile of rows, part of the channels, image). Shared memory double-buffers
// rows of windows: one is accumulated while the next is copied. line is the distance between the buffers, pitch between windows, in elements.
// Accumulators for ring image rows follow, the window height, one for each thread. A warp processes elements of beside channels. unitsDiv
// divides by the number of warps for a row of the tile. The windows of a row that contain the same image element are apart windows from each
// other, by stride and dilation. leap is the distance between that element's copies in shared memory. TAPS is the max number of windows of a
// row that contain an element, 0 if unknown.
template <typename T, int TAPS>
__device__ void col2im(const T* __restrict__ in, T* __restrict__ out, int channels, Axis v, Axis h, int part, int rows, int columns, int ring, int line,
                       int pitch, int how, int beside, int apart, int leap, Divide unitsDiv, Divide downDiv, Divide acrossDiv,
                       int tilesDown, int tilesAcross, int parts) {
    constexpr int W = 16 / sizeof(T);
    using V = Vector<T, W>;
    T* windowRows = reinterpret_cast<T*>(shared);
    T* sums = windowRows + 2 * line;
    unsigned block = blockIdx.x;
    const int x0 = block % tilesAcross * columns;
    block /= tilesAcross;
    const int y0 = block % tilesDown * rows, y1 = min(y0 + rows, v.in);
    block /= tilesDown;
    const int c0 = block % parts * part, mine = min(part, channels - c0), kernel = v.size * h.size, width = mine * kernel;
    const long long image = block / parts, stride = (long long)channels * kernel; // from window to window
    const int x2 = min(x0 + columns, h.in), ox0 = first(h, acrossDiv, x0), windows = max(last(h, acrossDiv, x2 - 1) - ox0 + 1, 0);
    in += image * v.out * h.out * stride;
    out += (image * channels + c0) * (v.in * h.in);
    const unsigned shift = how == WHOLE ? (unsigned)(image * v.out * h.out * stride) : 0;
    // Elements before the first of a row of windows that 16 bytes begin with.
    auto before = [&](int oy) { return how == WHOLE ? (int)((shift + (unsigned)(oy * h.out + ox0) * (unsigned)stride) % W) : 0; };

    const int oy0 = first(v, downDiv, y0), oy1 = last(v, downDiv, y1 - 1) + 1;
    const int piece = how == VECTORS ? W : 1;
    const Copier pieces(width / piece, pitch / piece, stride / piece);
    const T* source = in + ((long long)oy0 * h.out + ox0) * stride + (long long)c0 * kernel;
    auto fetch = [&](int oy) {
        if (oy < oy1) {
            T* to = windowRows + (oy & 1) * line;
            if (how == VECTORS) {
                pieces.copy(reinterpret_cast<V*>(to), reinterpret_cast<const V*>(source), windows);
            } else if (how == ELEMENTS) {
                pieces.copy(to, source, windows);
            } else {
                const int b = before(oy), n = b + windows * width;
                const T* from = source - b;
#pragma unroll 4
                for (int k = threadIdx.x; k < n / W; k += blockDim.x) async_copy(reinterpret_cast<V*>(to) + k, reinterpret_cast<const V*>(from) + k);
                if (const int k = n / W * W + (int)threadIdx.x; k < n) async_copy(to + k, from + k);
            }
            source += h.out * stride;
        }
        commit();
    };

    // A thread's element of a row: where in a row of windows its first one is, how many there are, and where it goes.
    const int lane = threadIdx.x % 32, wide = 32 / beside, unit = threadIdx.x / 32;
    const int some = unitsDiv(unit), c = some * beside + lane / wide, x = x0 + (unit - some * (int)unitsDiv.d) * wide + lane % wide;
    const int to = last(h, acrossDiv, x);
    int ox = first(h, acrossDiv, x);
    while (ox <= to && (x - h.begin(ox)) % h.dilation > 0) ox++;
    const int taps = ox <= to ? (to - ox) / apart + 1 : 0, start = c * kernel + (ox - ox0) * pitch + (x - h.begin(ox)) / h.dilation;
    const bool mineToo = c < mine && x < x2;
    T* target = out + ((long long)c * (v.in * h.in) + (long long)y0 * h.in + x);
    T* mineSums = sums + threadIdx.x;
    for (int r = 0; r < ring; r++) mineSums[r * blockDim.x] = 0;

    int y = y0, at = 0; // the next row to write, and where row top is among the sums
    auto write = [&](int end, int top) {
        for (; y < end; y++, target += h.in) {
            T sum = 0;
            if (y >= top && y < top + ring) {
                int slot = at + y - top;
                if (slot >= ring) slot -= ring;
                sum = mineSums[slot * blockDim.x];
                mineSums[slot * blockDim.x] = 0;
            }
            *target = sum;
        }
    };
    fetch(oy0);
    for (int oy = oy0; oy < oy1; oy++) {
        arrived<0>();
        __syncthreads(); // the row has been copied, and all threads have finished reading the previous row
        fetch(oy + 1);
        if (!mineToo) continue;
        const int top = v.begin(oy);
        const T* from = windowRows + (oy & 1) * line + before(oy) + start;
        int slot = at;
        for (int i = 0; i < v.size; i++, from += h.size) {
            if (const int row = top + i * v.dilation; row >= y0 && row < y1) {
                T sum = mineSums[slot * blockDim.x];
                const T* e = from;
                for (int n = 0; n < (TAPS ? 1 : taps); n += 4, e += 4 * leap) {
#pragma unroll
                    for (int k = 0; k < (TAPS ? TAPS : 4); k++)
                        if (n + k < taps) sum += e[k * leap];
                }
                mineSums[slot * blockDim.x] = sum;
            }
            if ((slot += v.dilation) >= ring) slot -= ring;
        }
        const int next = oy + 1 < oy1 ? min(top + v.stride, y1) : y1;
        write(next, top);
        for (at += v.stride; at >= ring;) at -= ring;
    }
    if (mineToo) write(y1, y1); // where no windows are
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

#define IM2COL(NAME, WIDTH, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(512)                                                             \
        im2col_##NAME(const T* in, T* out, int channels, AXES, int part, int down, int across, int span,          \
                      int plane, int group, int images, int batch, int vectors, int lanes, DIVIDE(high),          \
                      DIVIDE(kernel), DIVIDE(row), DIVIDE(tilesDown), DIVIDE(tilesAcross), DIVIDE(parts)) {       \
        im2col<T, WIDTH>(in, out, channels, AXES_OF, part, down, across, span, plane, group, images, batch, vectors, lanes, DIVIDE_OF(high), \
                         DIVIDE_OF(kernel), DIVIDE_OF(row), DIVIDE_OF(tilesDown), DIVIDE_OF(tilesAcross),         \
                         DIVIDE_OF(parts));                                                                       \
    }

// Blocks of col2im on a multiprocessor, at least: three have 40 registers a thread, which spill where the compiler needs more.
#if __CUDA_ARCH__ >= 1000
#define COL2IM_BLOCKS 2
#else
#define COL2IM_BLOCKS 3
#endif

#define COL2IM(NAME, TAPS, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(512, COL2IM_BLOCKS)                                              \
        col2im_##NAME(const T* in, T* out, int channels, AXES, int part, int rows, int columns, int ring,         \
                      int line, int pitch, int how, int beside, int apart, int leap, DIVIDE(units), DIVIDE(down), \
                      DIVIDE(across), int tilesDown, int tilesAcross, int parts) {                                \
        col2im<T, TAPS>(in, out, channels, AXES_OF, part, rows, columns, ring, line, pitch, how, beside, apart,   \
                        leap, DIVIDE_OF(units), DIVIDE_OF(down), DIVIDE_OF(across), tilesDown, tilesAcross,       \
                        parts);                                                                                   \
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
COL2IM(few_f32, 3, float)
COL2IM(few_f64, 3, double)
COL2IM(f32, 0, float)
COL2IM(f64, 0, double)
FAR(f32, float)
FAR(f64, double)
