// The derivative of a maximum pool as in pool.cu, for windows of 3 x 3 by 1, which overlap so much that tiles are bound by
// instructions. A warp walks down neighbouring columns of a plane, or of several narrow ones, a lane a column: it takes the greatest of
// three neighbours in each row, and of three rows in each window, and adds the windows' dy to the rows they reach, which it keeps in
// registers until no later window does. Neighbours' elements, places and dy come by shuffles: each is read once, but for
// the columns around a warp's and the rows around a strip's. Windows are added in their order, as everywhere.
#include "windows.cuh"

constexpr unsigned ALL_LANES = 0xffffffff;
constexpr int NOWHERE = 9; // the place of no element; that of an element is 3 * its row in the window + its column

// The greatest of three neighbours in a row, and where the first of equal ones is.
template <typename T> struct Three {
    T most;
    int at;
    __device__ Three(T e) : at(0) {
        e = e > least<T>() ? e : least<T>();
        const T right = __shfl_down_sync(ALL_LANES, e, 1);
        most = __shfl_up_sync(ALL_LANES, e, 1);
        if (e > most) most = e, at = 1;
        if (right > most) most = right, at = 2;
    }
};

// Some rows, from `first` on; none for a lane without their column.
struct Span {
    int first;
    unsigned count;
    __device__ Span(int begin, int end, bool some) : first(begin), count(some ? end - begin : 0) {}
    __device__ bool has(int y) const { return (unsigned)(y - first) < count; }
};

// A warp has planes side by side, of `wide` lanes each, of which `before` precede the first of its columns. strips divides by the
// strips of `rows` rows of a plane, groups by its groups of columns.
template <typename T, int AHEAD>
__device__ void maxDiffWalk(const T* __restrict__ in, const T* __restrict__ grad, T* __restrict__ out, long long planes, Axis v, Axis h, int beside, int wide, int before,
                            int columns, int rows, int warps, Divide strips, Divide groups) {
    const int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= warps) return;
    const int line = groups(warp), group = warp - line * groups.d, several = strips(line), side = lane / wide;
    const int x = group * columns + lane - side * wide - before, y0 = (line - several * strips.d) * rows, y1 = min(y0 + rows, v.in);
    const long long plane = (long long)several * beside + side;
    const int window = x - 1 + h.pad; // that has x in its middle; of rows, y - 1 + v.pad
    const bool exists = side < beside && plane < planes, inside = exists && h.inside(x);
    const Span reads(max(y0 - 2, 0), min(y1 + 2, v.in), inside);
    const Span adds(max(y0 - 1, 1 - v.pad), min(y1 + 1, v.out + 1 - v.pad), exists && (unsigned)window < (unsigned)h.out);
    const Span writes(y0, y1, inside && (unsigned)(x - group * columns) < (unsigned)columns);
    const long long first = plane * v.in + y0;
    out += (first - 2) * h.in + x;
    in += (first - 2) * h.in + x;
    grad += (plane * v.out + y0 - 2 + v.pad) * h.out + window;
    auto next = [&](int y) {
        const T e = reads.has(y) ? *in : least<T>();
        in += h.in;
        return e;
    };

    Three<T> top(next(y0 - 2)), middle(next(y0 - 1));
    T above = 0, here = 0; // the sums so far of rows y - 1 and y
    for (int y = y0 - 1; y <= y1;) {
        T e[AHEAD], dy[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            e[i] = next(y + i + 1);
            dy[i] = adds.has(y + i) ? *grad : 0;
            grad += h.out;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++, y++) { // windows with row y in their middle
            const Three<T> bottom(e[i]);
            T most = top.most;
            int at = top.at;
            if (middle.most > most) most = middle.most, at = 3 + middle.at;
            if (bottom.most > most) most = bottom.most, at = 6 + bottom.at;
            if (most == least<T>()) at = NOWHERE;
            const int left = __shfl_up_sync(ALL_LANES, at, 1), right = __shfl_down_sync(ALL_LANES, at, 1);
            const T dyLeft = __shfl_up_sync(ALL_LANES, dy[i], 1), dyRight = __shfl_down_sync(ALL_LANES, dy[i], 1);
            auto add = [&](T sum, int row) {
                if (left == 3 * row + 2) sum += dyLeft;
                if (at == 3 * row + 1) sum += dy[i];
                if (right == 3 * row) sum += dyRight;
                return sum;
            };
            above = add(above, 0);
            if (writes.has(y - 1)) *out = above;
            out += h.in;
            above = add(here, 1);
            here = add(0, 2);
            top = middle;
            middle = bottom;
        }
    }
}

#define WALK(NAME, T, AHEAD)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        poolwalk_max_diff_##NAME(const T* in, const T* grad, T* out, long long planes, AXES, int beside,          \
                                 int wide, int before, int columns, int rows, int warps, DIVIDE(strips),          \
                                 DIVIDE(groups)) {                                                                \
        maxDiffWalk<T, AHEAD>(in, grad, out, planes, AXES_OF, beside, wide, before, columns, rows, warps,         \
                              DIVIDE_OF(strips), DIVIDE_OF(groups));                                              \
    }

WALK(f32, float, 4)
WALK(f64, double, 4)
