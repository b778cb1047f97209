// Convolutions in float32, and their gradients w.r.t. images, of groups of at most 8 rows: filters, or channels for images, see conv.cu. A thread computes all rows of eight pixels, so that an
// element that it reads meets as many filters as there are rows, and a tap as many pixels. A block copies what its pixels meet of some channels to shared memory, with zeros around, and the taps
// of these channels beside it, while it multiplies those before.
//
// Sums are by FMA in the order of the terms; the channels are cut into splits where there are few blocks, which matmul_vector.cu's combine adds up.
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "conv_gather.cuh"

// Tile is a block's pixels of a phase: those of `each` images, or a part of one, of width x height; and the elements that they meet: rows of `wide` ones, `size` of an image and a channel.
struct Tile {
    Divide width, plane, wide, across, down; // plane: pixels of an image; across and down: tiles of an image
    int each, size, channels, stages;        // channels: of a stage
};

#if __CUDA_ARCH__ == 900
#define PIXELS_BODY(...) __VA_ARGS__
extern __shared__ __align__(16) float memory[];

// load returns an element of shared memory by its address in bytes.
__device__ __forceinline__ float load(unsigned at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}

// Taps of one term, of all rows.
template <int ROWS> struct alignas(ROWS < 4 ? 4 * ROWS : 16) Taps { float row[ROWS]; };

template <int ROWS>
__device__ __forceinline__ void pixels(const Gathered<float>& g, const float* __restrict__ matrix, float* __restrict__ out, int m, int n, int k, int chunk, int groups, i64 count, Rows a, Rows c, const Tile& tile) {
    constexpr int THREADS = 256, EACH = 8;
    const int thread = threadIdx.x, images = n / g.pixels.d, parts = (images + tile.each - 1) / tile.each, height = tile.plane.d / tile.width.d, pixelsY = g.pixels.d / g.pixelRow.d;
    unsigned id = blockIdx.x;
    int q = tile.across(id);
    const int x0 = (id - q * tile.across.d) * tile.width.d;
    id = q, q = tile.down(id);
    const int y0 = (id - q * tile.down.d) * height;
    id = q;
    const int image0 = id % parts * tile.each, group = (id /= parts) % groups, splits = (k + chunk - 1) / chunk, split = (id /= groups) % splits; // blocks of a phase begin together
    const Phase h(g.columns, (id /= splits) % g.columns.phases), v(g.rows, id / g.columns.phases);
    const int down = v.first < g.rows.filter ? (g.rows.filter - v.first + g.rows.every - 1) / g.rows.every : 0, over = h.first < g.columns.filter ? (g.columns.filter - h.first + g.columns.every - 1) / g.columns.every : 0;
    const int c0 = split * (chunk / g.taps.d), c1 = min(k / g.taps.d, c0 + chunk / g.taps.d);
    const int lowY = min((down - 1) * g.rows.step, 0), lowX = min((over - 1) * g.columns.step, 0); // of the first element that a pixel reads
    const int high = (height - 1) * g.rows.stride + (down - 1) * abs(g.rows.step) + 1, top = y0 * g.rows.stride + v.base + lowY, left = x0 * g.columns.stride + h.base + lowX;
    const int planes = tile.each * tile.size, elements = tile.channels * (planes + g.taps.d * ROWS);
    const float* const base = g.images + (i64)image0 * g.image + (i64)group * g.group;
    matrix += (i64)group * a.group;
    const int some = min(tile.each, images - image0);
    // fetch copies the elements and taps of the channels from `from` on.
    const auto fetch = [&](int from, int stage) {
        float* to = memory + stage;
        const int channels = min(tile.channels, c1 - from);
#pragma unroll 1
        for (int i = thread; i < high * tile.wide.d; i += THREADS) {
            const int row = tile.wide(i), y = top + row, x = left + i - row * tile.wide.d;
            const bool has = (unsigned)y < (unsigned)g.rows.images && (unsigned)x < (unsigned)g.columns.images;
            const float* p = base + (i64)from * g.plane + (has ? y * g.width + x : 0);
#pragma unroll 1
            for (int e = 0; e < some; e++, p += g.image) {
                const float* at = p;
#pragma unroll 1
                for (int c = 0; c < channels; c++, at += g.plane) async_copy(to + c * planes + e * tile.size + i, at, has);
            }
        }
        to += tile.channels * planes;
        const int row = thread % ROWS;
        for (int t = thread / ROWS; t < channels * g.taps.d; t += THREADS / ROWS) {
            const auto tap = g.tap(v, h, from * g.taps.d + t);
            const bool has = tap.inside && row < m;
            async_copy(to + t * ROWS + row, matrix + (has ? (i64)row * a.row + tap.place : 0), has);
        }
    };
    unsigned first[EACH]; // what a pixel's first tap meets in shared memory, in bytes
    int place[EACH]; // of a pixel in the result of the block's images and group, -1 without one
#pragma unroll
    for (int p = 0; p < EACH; p++) {
        const int s = thread + p * THREADS, e = tile.plane(s), rest = s - e * tile.plane.d, y = tile.width(rest), x = rest - y * tile.width.d;
        const int row = v.at + (y0 + y) * g.rows.phases, column = h.at + (x0 + x) * g.columns.phases;
        const bool inside = e < some && y0 + y < pixelsY && x0 + x < g.pixelRow.d && row < g.rows.pixels && column < g.columns.pixels;
        first[p] = 4 * (inside ? e * tile.size + (y * g.rows.stride - lowY) * tile.wide.d + x * g.columns.stride - lowX : -lowY * tile.wide.d - lowX);
        place[p] = inside ? e * (int)g.outerPixel + row * g.widthPixel + column : -1;
    }
    float sum[ROWS][EACH] = {};
    const unsigned shared = (unsigned)__cvta_generic_to_shared(memory);
    const int next = 4 * g.columns.step, line = g.rows.step * tile.wide.d;
    int stage = 0;
#pragma unroll 1
    for (int from = c0 - tile.channels; from < c1 && down > 0 && over > 0; from += tile.channels) {
        const int now = stage;
        if (tile.stages > 1) stage ^= elements;
        if (from + tile.channels < c1) fetch(from + tile.channels, stage);
        commit();
        if (from < c0) continue;
        arrived<1>();
        __syncthreads();
        const unsigned plane = shared + 4 * now;
        const Taps<ROWS>* const taps = reinterpret_cast<const Taps<ROWS>*>(memory + now + tile.channels * planes);
        const int channels = min(tile.channels, c1 - from);
#pragma unroll 1
        for (int c = 0; c < channels; c++)
#pragma unroll 1
            for (int i = 0; i < down; i++) {
                const Taps<ROWS>* w = taps + c * g.taps.d + i * g.tapRow.d;
                unsigned e = plane + 4 * (c * planes + i * line);
                const auto tap = [&](int j) {
                    const Taps<ROWS> f = w[j];
                    float x[EACH];
#pragma unroll
                    for (int p = 0; p < EACH; p++) x[p] = load(first[p] + e + j * next);
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
#pragma unroll
                        for (int p = 0; p < EACH; p++) sum[r][p] += f.row[r] * x[p];
                };
                int j = 0;
#pragma unroll 1
                for (; j + 3 <= over; j += 3, w += 3, e += 3 * next) tap(0), tap(1), tap(2);
#pragma unroll 1
                for (; j < over; j++, w++, e += next) tap(0);
            }
        __syncthreads(); // all have read the stage
    }
    admit();
    out += split * count + (i64)image0 * g.outerPixel + (i64)group * c.group;
#pragma unroll
    for (int p = 0; p < EACH; p++)
        if (place[p] >= 0) {
            float* to = out + place[p];
#pragma unroll
            for (int r = 0; r < ROWS; r++, to += c.row)
                if (r < m) *to = sum[r][p];
        }
}

#else
#define PIXELS_BODY(...)
#endif

#define PIXELS(ROWS, BLOCKS)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) conv_pixels_##ROWS##_f32(PARAMETERS(float), DIVIDE(across_), DIVIDE(down_), DIVIDE(plane_), DIVIDE(width_), DIVIDE(wide_), int each_, int size_, int channels_, int stages_) { \
        follow();                                                                                                                                       \
        PIXELS_BODY(pixels<ROWS>(GATHERED(float), matrix, out, m, n, k, chunk, groups, count, {groupA, rowA}, {groupC, rowC},                           \
                                 {DIVIDE_OF(width_), DIVIDE_OF(plane_), DIVIDE_OF(wide_), DIVIDE_OF(across_), DIVIDE_OF(down_), each_, size_, channels_, stages_});) \
    }
PIXELS(2, 3)
PIXELS(4, 3)
PIXELS(8, 2)
