// Convolution of each channel with a filter of its own (depthwise), in the unit of the element type. Memory is the bound: each element of images and outputs is moved once.
//
//	outputs  y[p][q] = sum over i of w[c][i] x[p][q stride - pad + i dilation], of plane p of all images, channel c = p % channels; 0 outside of x
//	images   x[p][e] = sum over i of w[c][i] y[p][q], q stride - pad + i dilation = e
//	filters  w[c][i] = sum over (b, q) of y[b][c][q] x[b][c][q stride - pad + i dilation]
//
// A block copies what `each` planes meet of a band of rows to shared memory, with zeros around. A thread computes four results, one below the other: they share what they meet where the
// stride and the dilation are 1. Gradients w.r.t. images at stride 1 are outputs of mirrored filters; at other strides the four results are a stride apart, so that they meet the same taps.
// For the filters a thread sums some taps of a row over a part of the pixels, and splits of the pixels are added up by matmul_vector.cu's combine.
#include "async.cuh"
#include "follow.cuh"
#include "windows.cuh"
typedef long long i64;

// copied waits for all copies of the block.
__device__ __forceinline__ void copied() {
    commit();
    arrived<0>();
    __syncthreads();
}

// Band is the part of each plane that a block holds in shared memory: `high` rows of `wide` elements. Its first element is that at y, x.
struct Band {
    int each, rows; // planes and rows of results of a block
    int high, wide;
    // load copies planes, `next` elements apart, of rows x columns. A warp copies rows of one float32 plane, all warps few rows; of several planes a thread copies the same element of each.
    template <typename T> __device__ __forceinline__ void load(T* to, const T* from, i64 next, int planes, int rows, int columns, int y, int x) const {
        if (sizeof(T) == 4 && each == 1) {
            const unsigned lanes = high < 8 ? blockDim.x : 32;
#pragma unroll 1
            for (int h = threadIdx.x / lanes; h < high; h += blockDim.x / lanes) {
                const bool inside = (unsigned)(y + h) < (unsigned)rows;
                const T* const row = from + (i64)(inside ? y + h : 0) * columns;
#pragma unroll 1
                for (int w = threadIdx.x % lanes; w < wide; w += lanes) {
                    const bool has = inside && (unsigned)(x + w) < (unsigned)columns;
                    async_copy(to + h * wide + w, row + (has ? x + w : 0), has);
                }
            }
            return;
        }
        const int n = high * wide, groups = max((int)blockDim.x / n, 1), group = groups > 1 ? threadIdx.x / n : 0;
        int at = threadIdx.x - group * n, h = at / wide, w = at - h * wide;
        const int down = blockDim.x / wide, over = blockDim.x - down * wide;
        if (group >= groups) return;
#pragma unroll 1
        for (; at < n; at += blockDim.x) {
            const bool has = (unsigned)(y + h) < (unsigned)rows && (unsigned)(x + w) < (unsigned)columns;
            const T* element = from + group * next + (has ? (y + h) * columns + x + w : 0);
            T* place = to + group * n + at;
#pragma unroll 1
            for (int p = group; p < planes; p += groups, element += groups * next, place += groups * n) async_copy(place, element, has);
            h += down, w += over;
            if (w >= wide) w -= wide, h++;
        }
    }
};

extern __shared__ unsigned char dynamic[];

// copy_filters copies the filters of a block's planes, mirrored if `last` is the last tap, not 0.
template <typename T> __device__ __forceinline__ void copy_filters(T* to, const T* filters, int first, int count, int planes, const Divide& channels, int taps, int last) {
    for (int at = threadIdx.x; at < count * taps; at += blockDim.x) {
        const int p = at / taps, tap = at - p * taps, plane = min(first + p, planes - 1);
        to[at] = filters[(plane - channels(plane) * channels.d) * taps + (last ? last - tap : tap)];
    }
}

// slide adds a column of taps to four sums: rows of shared memory are `wide` elements apart, and taps of the column `next`. SIZE is their number, or 0.
template <int SIZE, typename T> __device__ __forceinline__ void slide(T (&sum)[4], const T* column, const T* w, int wide, int next, int size) {
    T e0 = column[0], e1 = column[wide], e2 = column[2 * wide];
    const T* row = column + 3 * wide;
    const auto tap = [&](int i) {
        const T e3 = *row, f = w[i * next];
        sum[0] += f * e0, sum[1] += f * e1, sum[2] += f * e2, sum[3] += f * e3;
        e0 = e1, e1 = e2, e2 = e3, row += wide;
    };
    if constexpr (SIZE > 0) {
#pragma unroll
        for (int i = 0; i < SIZE; i++) tap(i);
    } else {
#pragma unroll 2
        for (int i = 0; i < size; i++) tap(i);
    }
}

// windows computes outputs, of filters that are mirrored for images.
template <typename T> __device__ __forceinline__ void windows(const T* images, const T* filters, T* out, int planes, const Divide& channels, const Axis& v, const Axis& h, int mirrored, const Band& b, const Divide& strips, const Divide& across) {
    T* const memory = reinterpret_cast<T*>(dynamic);
    const int bands = (v.out + b.rows - 1) / b.rows, first = blockIdx.x / bands * b.each, row0 = blockIdx.x % bands * b.rows, taps = v.size * h.size, count = min(b.each, planes - first);
    T* const filter = memory + b.each * b.high * b.wide;
    copy_filters(filter, filters, first, b.each, planes, channels, taps, mirrored ? taps - 1 : 0);
    b.load(memory, images + (i64)first * v.in * h.in, v.in * h.in, count, v.in, h.in, v.begin(row0), h.begin(0));
    copied();
    const bool sliding = v.stride == 1 && v.dilation == 1;
    for (int at = threadIdx.x; at < count * strips.d * h.out; at += blockDim.x) {
        const int line = across(at), x = at - line * h.out, p = strips(line), y = (line - p * strips.d) * 4;
        const T *column = memory + (p * b.high + y * v.stride) * b.wide + x * h.stride, *w = filter + p * taps;
        T sum[4] = {};
        if (sliding && taps == 9 && h.size == 3) {
#pragma unroll
            for (int j = 0; j < 3; j++) slide<3>(sum, column + j * h.dilation, w + j, b.wide, 3, 3);
        } else if (sliding) {
            for (int j = 0; j < h.size; j++, column += h.dilation) slide<0>(sum, column, w + j, b.wide, h.size, v.size);
        } else {
            const int apart = v.stride * b.wide;
            for (int i = 0; i < v.size; i++, column += v.dilation * b.wide, w += h.size) {
                const T* e = column;
#pragma unroll 3
                for (int j = 0; j < h.size; j++, e += h.dilation) {
                    const T f = w[j];
                    sum[0] += f * e[0], sum[1] += f * e[apart], sum[2] += f * e[2 * apart], sum[3] += f * e[3 * apart];
                }
            }
        }
        T* const to = out + ((i64)(first + p) * v.out + row0 + y) * h.out + x;
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (row0 + y + u < v.out) to[u * h.out] = sum[u];
    }
    admit();
}

// Taps says which taps of an axis meet an element of images: first, first + every, first + 2 every, ... Tap `first` meets output `at`, and each further tap the output `step` before.
struct Taps {
    int first, at;
    __device__ __forceinline__ Taps(const Axis& a, const Divide& stride, int every, int element) {
        int n = element + a.pad;
        for (first = 0; first < every; first++, n -= a.dilation) {
            at = n < 0 ? -(int)stride(-n) : (int)stride(n);
            if (at * a.stride == n) return;
        }
        first = a.size; // no tap meets it
    }
};

// images computes gradients w.r.t. images at a stride: b.rows rows of images, a multiple of four strides, meet rows of outputs from y on.
template <typename T> __device__ __forceinline__ void images(const T* outputs, const T* filters, T* out, int planes, const Divide& channels, const Axis& v, const Axis& h, const Band& b, const Divide& strideY, const Divide& strideX,
                                                             int everyY, int stepY, int everyX, int stepX, const Divide& strips, const Divide& across) {
    T* const memory = reinterpret_cast<T*>(dynamic);
    const int bands = (v.in + b.rows - 1) / b.rows, first = blockIdx.x / bands * b.each, row0 = blockIdx.x % bands * b.rows, taps = v.size * h.size, count = min(b.each, planes - first);
    T* const filter = memory + b.each * b.high * b.wide;
    const auto low = [](const Axis& a, int at) { // the first output that meets an element
        const int n = at + a.pad - (a.size - 1) * a.dilation;
        return n > 0 ? (n + a.stride - 1) / a.stride : -(-n / a.stride);
    };
    const int y0 = low(v, row0), x0 = low(h, 0);
    copy_filters(filter, filters, first, b.each, planes, channels, taps, 0);
    b.load(memory, outputs + (i64)first * v.out * h.out, v.out * h.out, count, v.out, h.out, y0, x0);
    copied();
    for (int at = threadIdx.x; at < count * strips.d * h.in; at += blockDim.x) {
        const int line = across(at), x = at - line * h.in, p = strips(line), strip = line - p * strips.d, turn = strideY(strip), y = row0 + strip + 3 * turn * v.stride;
        if (y >= v.in) continue;
        const Taps down(v, strideY, everyY, y), over(h, strideX, everyX, x);
        const T *row = memory + (p * b.high + down.at - y0) * b.wide + over.at - x0, *w = filter + p * taps + down.first * h.size;
        T sum[4] = {};
        for (int i = down.first; i < v.size; i += everyY, row -= stepY * b.wide, w += everyY * h.size) {
            const T* e = row;
            for (int j = over.first; j < h.size; j += everyX, e -= stepX) {
                const T f = w[j];
                sum[0] += f * e[0], sum[1] += f * e[b.wide], sum[2] += f * e[2 * b.wide], sum[3] += f * e[3 * b.wide];
            }
        }
        T* const to = out + ((i64)(first + p) * v.in + y) * h.in + x;
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (y + u * v.stride < v.in) to[(i64)u * v.stride * h.in] = sum[u];
    }
    admit();
}

// Parts deals the taps and the pixels of a band out to threads. A thread has up to J taps of a row of a filter, one of `taps` parts of the filter, for which it sums each acrossX-th pixel of each acrossY-th row of each acrossP-th plane.
// J is 1 if taps are not side by side. Sums of taps beyond a row's last are of what is in memory there, and not written.
struct Parts {
    int taps, acrossX, acrossY, acrossP;
};

// sum_pixels adds the products of the pixels of a band with J taps side by side to their sums.
template <int J, typename T> __device__ __forceinline__ void sum_pixels(T (&sum)[5], const T* images, const T* outputs, const Axis& v, const Axis& h, const Band& b, int planes, int rows, int x0, int y0, int p0, const Parts& parts) {
    const int down = parts.acrossY * v.stride * b.wide;
    images += p0 * b.high * b.wide, outputs += p0 * b.rows * h.out;
    for (int p = p0; p < planes; p += parts.acrossP, images += parts.acrossP * b.high * b.wide, outputs += parts.acrossP * b.rows * h.out)
        for (int x = x0; x < h.out; x += parts.acrossX) {
            const T *e = images + y0 * v.stride * b.wide + x * h.stride, *d = outputs + y0 * h.out + x;
#pragma unroll 2
            for (int y = y0; y < rows; y += parts.acrossY, e += down, d += parts.acrossY * h.out) {
                const T g = *d;
#pragma unroll
                for (int j = 0; j < J; j++) sum[j] += g * e[j];
            }
        }
}

// filters sums splits of a channel's pixels: `chunk` bands of some images each. A block's sums are [split][channel][tap].
template <typename T> __device__ __forceinline__ void filters(const T* images, const T* outputs, T* out, int count, int channels, int chunk, int side, const Axis& v, const Axis& h, const Band& b, const Band& own, const Parts& parts) {
    const int taps = v.size * h.size, channel = blockIdx.x % channels, split = blockIdx.x / channels, bands = (v.out + b.rows - 1) / b.rows, all = (count + b.each - 1) / b.each * bands;
    T *const memory = reinterpret_cast<T*>(dynamic), *const gradients = memory + b.each * b.high * b.wide;
    const int pixels = parts.acrossX * parts.acrossY * parts.acrossP, part = threadIdx.x / pixels, pixel = threadIdx.x - part * pixels, line = pixel / parts.acrossX, x0 = pixel - line * parts.acrossX, p0 = line / parts.acrossY, y0 = line - p0 * parts.acrossY;
    const int chunks = (h.size + side - 1) / side, i = part / chunks, j0 = (part - i * chunks) * side;
    const T* const window = memory + i * v.dilation * b.wide + j0 * h.dilation;
    T sum[5] = {};
    for (int band = split * chunk; band < min((split + 1) * chunk, all); band++) {
        const int image = band / bands * b.each, row0 = band % bands * b.rows, planes = min(b.each, count - image);
        const i64 plane = (i64)image * channels + channel;
        __syncthreads(); // all have read what was there before
#pragma unroll 1
        for (int k = 0; k < 2; k++) { // of the images, and of the gradients w.r.t. the outputs
            const int down = k ? v.out : v.in, across = k ? h.out : h.in;
            const Band part{b.each, b.rows, k ? own.high : b.high, k ? own.wide : b.wide};
            part.load(k ? gradients : memory, (k ? outputs : images) + plane * down * across, (i64)channels * down * across, planes, down, across, k ? row0 : v.begin(row0), k ? 0 : h.begin(0));
        }
        copied();
        const int rows = min(b.rows, v.out - row0);
        if (part >= parts.taps) continue;
        if (side == 1) sum_pixels<1>(sum, window, gradients, v, h, b, planes, rows, x0, y0, p0, parts);
        else if (side == 3) sum_pixels<3>(sum, window, gradients, v, h, b, planes, rows, x0, y0, p0, parts);
        else sum_pixels<5>(sum, window, gradients, v, h, b, planes, rows, x0, y0, p0, parts);
    }
    __syncthreads();
    if (part < parts.taps) {
#pragma unroll
        for (int j = 0; j < 5; j++)
            if (j < side && j0 + j < h.size) memory[(i * h.size + j0 + j) * pixels + pixel] = sum[j];
    }
    __syncthreads();
    for (int t = threadIdx.x / 32; t < taps; t += 8) {
        T sum = 0;
        for (int u = threadIdx.x % 32; u < pixels; u += 32) sum += memory[t * pixels + u];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        if (threadIdx.x % 32 == 0) out[((i64)split * channels + channel) * taps + t] = sum;
    }
    admit();
}

#define BAND(name) int each##name, int rows##name, int high##name, int wide##name
#define BAND_OF(name) Band{each##name, rows##name, high##name, wide##name}
#define AXIS_Y Axis{ih, oh, kh, sh, dh, ph}
#define AXIS_X Axis{iw, ow, kw, sw, dw, pw}
#define DEPTHWISE(T, suffix)                                                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) conv_depthwise_##suffix(const T* images, const T* filters, T* out, int planes, DIVIDE(channels), AXES, BAND(A), int mirrored, DIVIDE(strips), DIVIDE(across)) { \
        follow();                                                                                                                                                                     \
        windows(images, filters, out, planes, DIVIDE_OF(channels), AXIS_Y, AXIS_X, mirrored, BAND_OF(A), DIVIDE_OF(strips), DIVIDE_OF(across));                                       \
    }                                                                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) conv_depthwise_images_##suffix(const T* outputs, const T* filters, T* out, int planes, DIVIDE(channels), AXES, BAND(A), DIVIDE(strideY), DIVIDE(strideX), int everyY, int stepY, int everyX, \
                                                                                     int stepX, DIVIDE(strips), DIVIDE(across)) {                                                     \
        follow();                                                                                                                                                                     \
        images(outputs, filters, out, planes, DIVIDE_OF(channels), AXIS_Y, AXIS_X, BAND_OF(A), DIVIDE_OF(strideY), DIVIDE_OF(strideX), everyY, stepY, everyX, stepX, DIVIDE_OF(strips), DIVIDE_OF(across)); \
    }                                                                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 4) conv_depthwise_filters_##suffix(const T* images, const T* outputs, T* out, int count, int channels, int chunk, int side, AXES, BAND(A), BAND(B), int taps, int acrossX, int acrossY, int acrossP) { \
        follow();                                                                                                                                                                     \
        filters(images, outputs, out, count, channels, chunk, side, AXIS_Y, AXIS_X, BAND_OF(A), BAND_OF(B), {taps, acrossX, acrossY, acrossP});                                                \
    }
DEPTHWISE(float, f32)
DEPTHWISE(double, f64)
