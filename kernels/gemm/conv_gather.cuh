// The operand of a convolution that is gathered from images as it is read (implicit GEMM): see conv.cu.
#pragma once
#include "follow.cuh"
#include "windows.cuh"
typedef long long i64;

// Along is how pixels and taps of one axis meet. Pixel o of phase f is at f + o phases, and its tap n is element first + n every of the filter. They meet
// element o stride + base + n step of the images.
struct Along {
    int images, pixels, filter; // extents
    int stride, step, pad, phases, every, dilation;
};
struct Phase {
    int at, first, base;
    __device__ Phase(const Along& a, int at) : at(at), first(0), base(-a.pad) {
        if (a.phases == 1 && a.every == 1 && a.step > 0) return;
        for (; first < a.every && (at + a.pad - first * a.dilation) % a.phases != 0; first++) {}
        base = (at + a.pad - first * a.dilation) / a.phases;
        if (first == a.every) first = a.filter; // no tap meets it
    }
};

// Item is a term, or a column of filters: its offset in the images in elements, rows and columns, and the offset of a term in the matrix (place).
struct __align__(16) Item {
    int place, offset, y, x;
    static constexpr int NONE = (int)0xc0000000; // a row that is outside of the images
};

// load_if returns from[elements], or 0 if `has` is false, by a predicated load. A conditional expression compiles to a branch, and its address to four instructions.
__device__ __forceinline__ float load_if(const float* from, int elements, bool has) {
    float v;
    asm volatile("{.reg .pred p; .reg .u64 at; setp.ne.b32 p, %3, 0; mad.wide.s32 at, %2, 4, %1; mov.b32 %0, 0; @p ld.global.f32 %0, [at];}" : "=f"(v) : "l"(from), "r"(elements), "r"((int)has) : "memory");
    return v;
}
__device__ __forceinline__ double load_if(const double* from, int elements, bool has) {
    double v;
    asm volatile("{.reg .pred p; .reg .u64 at; setp.ne.b32 p, %3, 0; mad.wide.s32 at, %2, 8, %1; mov.b64 %0, 0; @p ld.global.f64 %0, [at];}" : "=d"(v) : "l"(from), "r"(elements), "r"((int)has) : "memory");
    return v;
}

// Gathered is the operand that is read from images.
template <typename T> struct Gathered {
    const T* images;
    i64 image;               // elements between images
    int group, plane, width; // elements between groups, channels, rows
    Along rows, columns;
    Divide pixels, pixelRow, taps, tapRow;
    i64 outerPixel; // elements between images, rows of pixels,
    int widthPixel;
    int outerTap, widthTap; // channels and rows of taps in the operand that has one element for each

    struct Pixel {
        const T* base;
        int y, x;
        i64 place;
        bool inside;
    };
    struct Tap {
        int base, i, j, place;
        bool inside;
    };
    __device__ Pixel pixel(int group, const Phase& down, const Phase& across, int q) const {
        const int b = pixels(q), rest = q - b * pixels.d, y = pixelRow(rest), x = rest - y * pixelRow.d, h = down.at + y * rows.phases, w = across.at + x * columns.phases;
        return {images + b * image + group * this->group, y * rows.stride + down.base, x * columns.stride + across.base, b * outerPixel + h * widthPixel + w,
                h < rows.pixels && w < columns.pixels};
    }
    __device__ Tap tap(const Phase& down, const Phase& across, int t) const {
        const int c = taps(t), rest = t - c * taps.d, i = tapRow(rest), j = rest - i * tapRow.d, h = down.first + i * rows.every, w = across.first + j * columns.every;
        return {c * plane, i * rows.step, j * columns.step, c * outerTap + h * widthTap + w, h < rows.filter && w < columns.filter};
    }
    __device__ __forceinline__ Item item(const Tap& t, bool has) const { return {t.place, t.base + t.i * width + t.j, has && t.inside ? t.i : Item::NONE, t.j}; }
    // meet loads the element at an item's offset from an element of the images, of row y and column x, and returns 0 outside of the images.
    __device__ __forceinline__ T meet(const T* from, int y, int x, const Item& t) const { return load_if(from, t.offset, (unsigned)(y + t.y) < (unsigned)rows.images && (unsigned)(x + t.x) < (unsigned)columns.images); }
    __device__ T at(const Pixel& p, const Tap& t) const {
        const unsigned h = p.y + t.i, w = p.x + t.j;
        return t.inside && h < (unsigned)rows.images && w < (unsigned)columns.images ? p.base[t.base + (int)h * width + (int)w] : T(0);
    }
};

// Rows are the rows of a group in an operand.
struct Rows {
    int group, row; // elements between groups, rows
};

// Parameters of kernels, and what they are put together to.
#define ALONG(name) int name##0, int name##1, int name##2, int name##3, int name##4, int name##5, int name##6, int name##7, int name##8
#define ALONG_OF(name) {name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7, name##8}
#define PARAMETERS(T)                                                                                                                                   \
    const T *images, const T *matrix, T *out, int m, int n, int k, int chunk, int groups, i64 count, int groupA, int rowA, int groupC, int rowC,        \
        i64 image, int group, int plane, int width, ALONG(rows), ALONG(columns), DIVIDE(pixels), DIVIDE(pixelRow), DIVIDE(taps), DIVIDE(tapRow),        \
        i64 outerPixel, int widthPixel, int outerTap, int widthTap, const int *when, int guarded
#define GATHERED(T)                                                                                                                                     \
    Gathered<T> {                                                                                                                                       \
        images, image, group, plane, width, ALONG_OF(rows), ALONG_OF(columns), DIVIDE_OF(pixels), DIVIDE_OF(pixelRow), DIVIDE_OF(taps),                 \
            DIVIDE_OF(tapRow), outerPixel, widthPixel, outerTap, widthTap                                                                               \
    }
