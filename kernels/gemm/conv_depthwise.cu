// Convolution of each channel with a filter of its own (depthwise), in the unit of the element type. Memory is the bound: each element of images and outputs is moved once.
//
//	outputs  y[p][q] = sum over i of w[c][i] x[p][q stride - pad + i dilation], of plane p of all images, channel c = p % channels; 0 outside of x
//	images   x[p][e] = sum over i of w[c][i] y[p][q], q stride - pad + i dilation = e
//	filters  w[c][i] = sum over (b, q) of y[b][c][q] x[b][c][q stride - pad + i dilation]
//
// A block copies what `each` planes meet of a band of rows to shared memory, with zeros around. A thread computes four results, one below the other: they share what they meet where the
// stride and the dilation are 1. Gradients w.r.t. images at stride 1 are outputs of mirrored filters. For the filters a thread sums a part of the pixels for every tap, and splits of the
// images are added up by matmul_vector.cu's combine.
#include "follow.cuh"
#include "windows.cuh"
typedef long long i64;

// Band is what a block has in shared memory: high rows of wide elements of each plane, from element y, x on.
struct Band {
    int each, rows; // planes and rows of pixels of a block
    Divide high, wide;
    // load copies planes from `plane` on, `next` apart, of which there are `planes`, of images of in rows.
    template <typename T> __device__ __forceinline__ void load(T* to, const T* from, i64 plane, i64 next, int planes, int rows, int columns, int y, int x) const {
        constexpr int AHEAD = 8;
        const int area = high.d * wide.d, all = min(each, planes) * area;
        for (int first = threadIdx.x; first < all; first += AHEAD * blockDim.x) {
            T v[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int at = first + u * blockDim.x, line = wide(at), p = high(line), h = y + line - p * high.d, w = x + at - line * wide.d;
                v[u] = at < all && (unsigned)h < (unsigned)rows && (unsigned)w < (unsigned)columns ? from[(plane + p * next) * rows * columns + h * columns + w] : T(0);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (first + u * blockDim.x < all) to[first + u * blockDim.x] = v[u];
        }
    }
};

extern __shared__ unsigned char dynamic[];

// windows computes outputs, of filters that are mirrored for images.
template <typename T> __device__ __forceinline__ void windows(const T* images, const T* filters, T* out, int planes, const Divide& channels, const Axis& v, const Axis& h, int mirrored, const Band& b, const Divide& strips, const Divide& across) {
    T* const memory = reinterpret_cast<T*>(dynamic);
    const int bands = (v.out + b.rows - 1) / b.rows, first = blockIdx.x / bands * b.each, row0 = blockIdx.x % bands * b.rows, taps = v.size * h.size;
    T* const filter = memory + b.each * b.high.d * b.wide.d;
    b.load(memory, images, first, 1, planes - first, v.in, h.in, v.begin(row0), h.begin(0));
    for (int at = threadIdx.x; at < b.each * taps; at += blockDim.x) {
        const int p = at / taps, tap = at - p * taps, plane = min(first + p, planes - 1);
        filter[at] = filters[(plane - channels(plane) * channels.d) * taps + (mirrored ? taps - 1 - tap : tap)];
    }
    __syncthreads();
    const bool sliding = v.stride == 1 && v.dilation == 1;
    for (int at = threadIdx.x; at < min(b.each, planes - first) * strips.d * h.out; at += blockDim.x) {
        const int line = across(at), x = at - line * h.out, p = strips(line), y = (line - p * strips.d) * 4;
        const T *column = memory + (p * b.high.d + y * v.stride) * b.wide.d + x * h.stride, *w = filter + p * taps;
        T sum[4] = {};
        for (int j = 0; j < h.size; j++, column += h.dilation) {
            if (sliding) {
                T e0 = column[0], e1 = column[b.wide.d], e2 = column[2 * b.wide.d];
                const T* next = column + 3 * b.wide.d;
#pragma unroll 3
                for (int i = 0; i < v.size; i++, next += b.wide.d) {
                    const T e3 = *next, f = w[i * h.size + j];
                    sum[0] += f * e0, sum[1] += f * e1, sum[2] += f * e2, sum[3] += f * e3;
                    e0 = e1, e1 = e2, e2 = e3;
                }
            } else {
#pragma unroll 3
                for (int i = 0; i < v.size; i++) {
                    const T f = w[i * h.size + j];
#pragma unroll
                    for (int u = 0; u < 4; u++) sum[u] += f * column[(u * v.stride + i * v.dilation) * b.wide.d];
                }
            }
        }
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (row0 + y + u < v.out) out[(i64)(first + p) * v.out * h.out + (row0 + y + u) * h.out + x] = sum[u];
    }
    admit();
}

// images computes gradients w.r.t. images at a stride: b.rows rows of images meet rows of outputs from y on.
template <typename T> __device__ __forceinline__ void images(const T* outputs, const T* filters, T* out, int planes, const Divide& channels, const Axis& v, const Axis& h, const Band& b, const Divide& strideY, const Divide& strideX,
                                                             const Divide& across) {
    T* const memory = reinterpret_cast<T*>(dynamic);
    const int bands = (v.in + b.rows - 1) / b.rows, first = blockIdx.x / bands * b.each, row0 = blockIdx.x % bands * b.rows, taps = v.size * h.size;
    T* const filter = memory + b.each * b.high.d * b.wide.d;
    const auto low = [](const Axis& a, int at) { // the first output that meets an element
        const int n = at + a.pad - (a.size - 1) * a.dilation;
        return n > 0 ? (n + a.stride - 1) / a.stride : -(-n / a.stride);
    };
    const int y0 = low(v, row0), x0 = low(h, 0);
    b.load(memory, outputs, first, 1, planes - first, v.out, h.out, y0, x0);
    for (int at = threadIdx.x; at < b.each * taps; at += blockDim.x) {
        const int p = at / taps, plane = min(first + p, planes - 1);
        filter[at] = filters[(plane - channels(plane) * channels.d) * taps + at - p * taps];
    }
    __syncthreads();
    const auto toward = [](const Divide& by, int n) { return n < 0 ? -(int)by(-n) : (int)by(n); };
    const int rows = min(b.rows, v.in - row0);
    for (int at = threadIdx.x; at < min(b.each, planes - first) * rows * h.in; at += blockDim.x) {
        const int line = across(at), x = at - line * h.in, p = line / rows, y = line - p * rows;
        const T *from = memory + p * b.high.d * b.wide.d, *w = filter + p * taps;
        T sum = 0;
        for (int i = 0; i < v.size; i++) {
            const int n = row0 + y + v.pad - i * v.dilation, q = toward(strideY, n);
            if (q * v.stride != n) continue;
            for (int j = 0; j < h.size; j++) {
                const int m = x + h.pad - j * h.dilation, r = toward(strideX, m);
                if (r * h.stride == m) sum += w[i * h.size + j] * from[(q - y0) * b.wide.d + r - x0];
            }
        }
        out[(i64)(first + p) * v.in * h.in + (row0 + y) * h.in + x] = sum;
    }
    admit();
}

// filters sums splits of the images of a channel: each block's sums are [split][channel][tap].
template <typename T> __device__ __forceinline__ void filters(const T* images, const T* outputs, T* out, int count, int channels, int chunk, const Axis& v, const Axis& h, const Band& b, const Divide& pixels, const Divide& across) {
    constexpr int AHEAD = 8;
    const int taps = v.size * h.size, channel = blockIdx.x % channels, split = blockIdx.x / channels, last = min((split + 1) * chunk, count), thread = threadIdx.x;
    T *const memory = reinterpret_cast<T*>(dynamic), *const sums = memory + b.each * b.high.d * b.wide.d;
    for (int t = 0; t < taps; t++) sums[t * 256 + thread] = 0;
    for (int image = split * chunk; image < last; image += b.each)
        for (int row0 = 0; row0 < v.out; row0 += b.rows) {
            const i64 plane = (i64)image * channels + channel;
            const int planes = min(b.each, last - image);
            __syncthreads(); // all have read what was there before
            b.load(memory, images, plane, channels, planes, v.in, h.in, v.begin(row0), h.begin(0));
            __syncthreads();
            for (int from = thread; from < planes * pixels.d; from += AHEAD * 256) {
                T dy[AHEAD];
                int place[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    const int at = from + u * 256, p = pixels(at), rest = at - p * pixels.d, y = across(rest), x = rest - y * h.out;
                    const bool inside = at < planes * pixels.d && row0 + y < v.out;
                    place[u] = inside ? (p * b.high.d + y * v.stride) * b.wide.d + x * h.stride : -1;
                    dy[u] = inside ? outputs[(plane + p * channels) * v.out * h.out + (row0 + y) * h.out + x] : T(0);
                }
                for (int i = 0, t = thread; i < v.size; i++)
                    for (int j = 0; j < h.size; j++, t += 256) {
                        const T* const window = memory + i * v.dilation * b.wide.d + j * h.dilation;
                        T sum = sums[t];
#pragma unroll
                        for (int u = 0; u < AHEAD; u++)
                            if (place[u] >= 0) sum += dy[u] * window[place[u]]; // an infinity times the zero of no output would be NaN
                        sums[t] = sum;
                    }
            }
        }
    __syncthreads();
    for (int t = thread / 32; t < taps; t += 8) {
        T sum = 0;
#pragma unroll
        for (int u = 0; u < 8; u++) sum += sums[t * 256 + u * 32 + thread % 32];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (thread % 32 == 0) out[((i64)split * channels + channel) * taps + t] = sum;
    }
    admit();
}

#define BAND int each, int rows, DIVIDE(high), DIVIDE(wide)
#define BAND_OF {each, rows, DIVIDE_OF(high), DIVIDE_OF(wide)}
#define AXIS_Y Axis{ih, oh, kh, sh, dh, ph}
#define AXIS_X Axis{iw, ow, kw, sw, dw, pw}
#define DEPTHWISE(T, suffix)                                                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) conv_depthwise_##suffix(const T* images, const T* filters, T* out, int planes, DIVIDE(channels), AXES, BAND, int mirrored, DIVIDE(strips), DIVIDE(across)) { \
        follow();                                                                                                                                                                     \
        windows(images, filters, out, planes, DIVIDE_OF(channels), AXIS_Y, AXIS_X, mirrored, BAND_OF, DIVIDE_OF(strips), DIVIDE_OF(across));                                          \
    }                                                                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) conv_depthwise_images_##suffix(const T* outputs, const T* filters, T* out, int planes, DIVIDE(channels), AXES, BAND, DIVIDE(strideY), DIVIDE(strideX), DIVIDE(across)) { \
        follow();                                                                                                                                                                     \
        images(outputs, filters, out, planes, DIVIDE_OF(channels), AXIS_Y, AXIS_X, BAND_OF, DIVIDE_OF(strideY), DIVIDE_OF(strideX), DIVIDE_OF(across));                                \
    }                                                                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) conv_depthwise_filters_##suffix(const T* images, const T* outputs, T* out, int count, int channels, int chunk, AXES, BAND, DIVIDE(pixels), DIVIDE(across)) { \
        follow();                                                                                                                                                                     \
        filters(images, outputs, out, count, channels, chunk, AXIS_Y, AXIS_X, BAND_OF, DIVIDE_OF(pixels), DIVIDE_OF(across));                                                          \
    }
DEPTHWISE(float, f32)
DEPTHWISE(double, f64)
