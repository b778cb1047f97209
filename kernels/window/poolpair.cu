// Max-pooling of windows of 2 x 2 elements, 2 apart, without padding, and its gradient, of x or of ReLU(x):
//
//	y[o] = max of the window, as in pool.cu        dx[i] = dy[o] where i is the first maximum of window o, else 0; with a ReLU, times x[i] >= 0
//
// No element is in two windows, so a thread loads a window once and writes its gradient w.r.t. all four elements: x is
// read once, and neither ReLU(x) nor the gradient w.r.t. it is stored. ReLU(x) is -0 for negative x, as compiled graphs have it.
//
// Images are planes of float32, or have their channels last, in float32, BF16 or F16; then a thread computes four channels. Outputs
// of these are stored either way. Bound by memory. Kernels of planes do not admit the next ones early: the convnet's step of 100 images takes
// 321 us in float32 on an H200, 341 if both do, 325 and 337 if one does.
#include "follow.cuh"
#include "windows.cuh"

typedef long long i64;
typedef unsigned short u16;
typedef unsigned int u32;

constexpr int THREADS = 256;
constexpr int PAIR_ROUNDS = 2; // windows of a thread, of planes: as in poolpair.go

__device__ __forceinline__ float activated(float x, int relu) { return relu ? (x < 0 ? -0.f : x + 0.f) : x; }

// The maximum of a window and the first element that has it, -1 for none.
struct Maximum {
    float e;
    int at;
    __device__ __forceinline__ Maximum(const float (&x)[4], int relu) : e(least<float>()), at(-1) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (const float v = activated(x[i], relu); v > e) e = v, at = i;
    }
};

// The gradient w.r.t. element i of a window.
__device__ __forceinline__ float slope(const Maximum& most, int i, float x, float dy, int relu) {
    const float s = most.at == i ? 0.f + dy : 0.f;
    return relu ? s * (x >= 0 ? 1.f : 0.f) : s;
}

// A window of a plane: the number of its first element, its number, and what of it is inside.
struct Window {
    i64 at, number;
    bool exists, right, below;
};

// down and across divide by the windows of a column and of a row, with those that are partly inside. Only whole windows have a number.
__device__ __forceinline__ Window window(int n, int total, int rows, int columns, Divide down, Divide across) {
    const int line = across(n), column = n - line * across.d, plane = down(line), row = line - plane * down.d;
    const bool right = 2 * column + 1 < columns, below = 2 * row + 1 < rows;
    return {((i64)plane * rows + 2 * row) * columns + 2 * column, ((i64)plane * (rows / 2) + row) * (columns / 2) + column, n < total, right, below};
}

// With pairs rows begin at multiples of 8 bytes and have an even number of elements.
__device__ __forceinline__ void load(float (&e)[4], const float* x, const Window& w, int columns, bool pairs) {
    const float* const p = x + w.at;
    if (pairs) {
        const float2 a = *reinterpret_cast<const float2*>(p), b = w.below ? *reinterpret_cast<const float2*>(p + columns) : float2{};
        e[0] = a.x, e[1] = a.y, e[2] = b.x, e[3] = b.y;
    } else {
        e[0] = p[0], e[1] = w.right ? p[1] : 0, e[2] = w.below ? p[columns] : 0, e[3] = w.right && w.below ? p[columns + 1] : 0;
    }
}

__device__ __forceinline__ void maxima(const float* __restrict__ x, float* __restrict__ y, int total, int rows, int columns, int relu, Divide down, Divide across) {
    const bool pairs = columns % 2 == 0 && reinterpret_cast<i64>(x) % 8 == 0;
    const int first = blockIdx.x * (THREADS * PAIR_ROUNDS) + threadIdx.x;
    float e[PAIR_ROUNDS][4];
#pragma unroll
    for (int r = 0; r < PAIR_ROUNDS; r++)
        if (const Window w = window(first + r * THREADS, total, rows, columns, down, across); w.exists) load(e[r], x, w, columns, pairs);
#pragma unroll
    for (int r = 0; r < PAIR_ROUNDS; r++)
        if (const int n = first + r * THREADS; n < total) y[n] = Maximum(e[r], relu).e;
}

__device__ __forceinline__ void gradients(const float* __restrict__ x, const float* __restrict__ dy, float* __restrict__ dx, int total, int rows, int columns, int relu, Divide down, Divide across) {
    const bool pairs = columns % 2 == 0 && (reinterpret_cast<i64>(x) | reinterpret_cast<i64>(dx)) % 8 == 0;
    const int first = blockIdx.x * (THREADS * PAIR_ROUNDS) + threadIdx.x;
    float e[PAIR_ROUNDS][4], d[PAIR_ROUNDS];
    Window w[PAIR_ROUNDS];
#pragma unroll
    for (int r = 0; r < PAIR_ROUNDS; r++) {
        w[r] = window(first + r * THREADS, total, rows, columns, down, across);
        if (!w[r].exists) continue;
        load(e[r], x, w[r], columns, pairs);
        d[r] = w[r].right && w[r].below ? dy[w[r].number] : 0;
    }
#pragma unroll
    for (int r = 0; r < PAIR_ROUNDS; r++) {
        if (!w[r].exists) continue;
        const Maximum most(e[r], relu);
        float s[4];
#pragma unroll
        for (int i = 0; i < 4; i++) s[i] = slope(most, i, e[r][i], d[r], relu);
        float* const p = dx + w[r].at;
        if (pairs) {
            *reinterpret_cast<float2*>(p) = {s[0], s[1]};
            if (w[r].below) *reinterpret_cast<float2*>(p + columns) = {s[2], s[3]};
        } else {
            p[0] = s[0];
            if (w[r].right) p[1] = s[1];
            if (w[r].below) p[columns] = s[2];
            if (w[r].right && w[r].below) p[columns + 1] = s[3];
        }
    }
}

// The type of images with their channels last, and of their outputs, as in poolpair.go: 0 is float32, 1 BF16.
constexpr int F16 = 2;
constexpr int CHUNK = 4; // channels of a thread

__device__ __forceinline__ float from_half(u32 bits, bool f16) {
    float x;
    asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(x) : "r"(bits));
    return f16 ? x : __uint_as_float(bits << 16);
}
__device__ __forceinline__ u32 to_halves(float low, float high, bool f16) { // to nearest, ties to even
    u32 v = 0;
#if __CUDA_ARCH__ >= 800
    if (f16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
#endif
    return v;
}

// Four neighbours from element `at` on, step elements apart; contiguous ones are aligned to their size.
__device__ __forceinline__ uint4 read(const void* x, i64 at, i64 step, int type) {
    if (!type && step == 1) return *reinterpret_cast<const uint4*>(static_cast<const float*>(x) + at);
    if (!type) {
        const u32* const p = static_cast<const u32*>(x) + at;
        return {p[0], p[step], p[2 * step], p[3 * step]};
    }
    const u16* const p = static_cast<const u16*>(x) + at;
    if (step == 1) {
        const uint2 v = *reinterpret_cast<const uint2*>(p);
        return {v.x & 0xffff, v.x >> 16, v.y & 0xffff, v.y >> 16};
    }
    return {p[0], p[step], p[2 * step], p[3 * step]};
}
__device__ __forceinline__ void convert(float (&e)[CHUNK], uint4 v, int type) {
    const u32 bits[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < CHUNK; k++) e[k] = type ? from_half(bits[k], type == F16) : __uint_as_float(bits[k]);
}
__device__ __forceinline__ void write(void* y, i64 at, i64 step, const float (&e)[CHUNK], int type) {
    if (!type) {
        float* const p = static_cast<float*>(y) + at;
        if (step == 1) *reinterpret_cast<float4*>(p) = {e[0], e[1], e[2], e[3]};
        else p[0] = e[0], p[step] = e[1], p[2 * step] = e[2], p[3 * step] = e[3];
        return;
    }
    const uint2 v = {to_halves(e[0], e[1], type == F16), to_halves(e[2], e[3], type == F16)};
    u16* const p = static_cast<u16*>(y) + at;
    if (step == 1) *reinterpret_cast<uint2*>(p) = v;
    else p[0] = v.x, p[step] = v.x >> 16, p[2 * step] = v.y, p[3 * step] = v.y >> 16;
}

// A thread's window and channels, of images with their channels last. chunks divides by the parts of CHUNK of the channels.
struct Place {
    i64 at, to, step; // the first element; that of the output, and from one of its channels to the next
    bool exists, right, below;
    __device__ __forceinline__ Place(int total, int rows, int columns, int channels, bool last, Divide chunks, Divide down, Divide across) {
        const int n = blockIdx.x * THREADS + threadIdx.x, cell = chunks(n), channel = (n - cell * chunks.d) * CHUNK;
        const int line = across(cell), column = cell - line * across.d, image = down(line), row = line - image * down.d;
        const int place = row * (columns / 2) + column, windows = (rows / 2) * (columns / 2);
        exists = n < total, right = 2 * column + 1 < columns, below = 2 * row + 1 < rows;
        at = (((i64)image * rows + 2 * row) * columns + 2 * column) * channels + channel;
        step = last ? 1 : windows;
        to = last ? ((i64)image * windows + place) * channels + channel : ((i64)image * channels + channel) * windows + place;
    }
    __device__ __forceinline__ bool inside(int i) const { return (i % 2 == 0 || right) && (i < 2 || below); } // of the four elements
};

// The four elements of a window, of CHUNK channels.
__device__ __forceinline__ void load_last(uint4 (&v)[4], const void* x, const Place& p, int columns, int channels, int type) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = p.inside(i) ? read(x, p.at + (i64)(i / 2 * columns + i % 2) * channels, 1, type) : uint4{};
}

#define PAIRS int total, int rows, int columns, int channels, int relu, int last, int type, int outType, DIVIDE(chunks), DIVIDE(down), DIVIDE(across)

extern "C" __global__ void __launch_bounds__(THREADS) poolpair_max_f32(const float* x, float* y, PAIRS) {
    follow();
    maxima(x, y, total, rows, columns, relu, DIVIDE_OF(down), DIVIDE_OF(across));
}

extern "C" __global__ void __launch_bounds__(THREADS) poolpair_max_diff_f32(const float* x, const float* dy, float* dx, PAIRS) {
    follow();
    gradients(x, dy, dx, total, rows, columns, relu, DIVIDE_OF(down), DIVIDE_OF(across));
}

extern "C" __global__ void __launch_bounds__(THREADS) poolpair_max_last(const void* x, void* y, PAIRS) {
    follow();
    const Place p(total, rows, columns, channels, last, DIVIDE_OF(chunks), DIVIDE_OF(down), DIVIDE_OF(across));
    if (!p.exists) return;
    uint4 v[4];
    float e[4][CHUNK], most[CHUNK];
    load_last(v, x, p, columns, channels, type);
    admit();
#pragma unroll
    for (int i = 0; i < 4; i++) convert(e[i], v[i], type);
#pragma unroll
    for (int k = 0; k < CHUNK; k++) most[k] = Maximum({e[0][k], e[1][k], e[2][k], e[3][k]}, relu).e;
    write(y, p.to, p.step, most, outType);
}

extern "C" __global__ void __launch_bounds__(THREADS) poolpair_max_diff_last(const void* x, const void* dy, void* dx, PAIRS) {
    follow();
    const Place p(total, rows, columns, channels, last, DIVIDE_OF(chunks), DIVIDE_OF(down), DIVIDE_OF(across));
    if (!p.exists) return;
    uint4 v[4], g = {};
    float e[4][CHUNK], d[CHUNK];
    load_last(v, x, p, columns, channels, type);
    if (p.right && p.below) g = read(dy, p.to, p.step, outType);
    admit();
#pragma unroll
    for (int i = 0; i < 4; i++) convert(e[i], v[i], type);
    convert(d, g, outType);
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
        const float x[] = {e[0][k], e[1][k], e[2][k], e[3][k]};
        const Maximum most(x, relu);
#pragma unroll
        for (int i = 0; i < 4; i++) e[i][k] = slope(most, i, x[i], d[k], relu);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (p.inside(i)) write(dx, p.at + (i64)(i / 2 * columns + i % 2) * channels, 1, e[i], type);
}
