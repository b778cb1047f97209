// The derivative of a maximum pool as in pool.cu, for windows of 3 x 3 by 1, which overlap so much that tiles are bound by
// instructions. A warp walks down neighbouring columns of a plane, or of several narrow ones, a lane a column: it takes the greatest of
// three neighbours in each row, and of three rows in each window, and adds the windows' dy to the rows they reach, which it keeps in
// registers until no later window does. Neighbours' elements, places and dy are exchanged by shuffles. So each is loaded
// once, except the columns next to a warp's columns and the rows next to a strip. Windows are added in their order, as everywhere.
#include "windows.cuh"

constexpr unsigned ALL_LANES = 0xffffffff;
constexpr int NOWHERE = 9; // no place in a window; element (row, column) has place 3 * row + column

// What the lanes of the columns on either side have; lanes go around.
template <typename T> __device__ T leftOf(T e) { return __shfl_sync(ALL_LANES, e, threadIdx.x - 1); }
template <typename T> __device__ T rightOf(T e) { return __shfl_sync(ALL_LANES, e, threadIdx.x + 1); }

// The greatest of three neighbours in a row, and where the first of equal ones is.
template <typename T> struct Three {
    T most;
    int at;
    __device__ Three(T e) : at(0) {
        e = e > least<T>() ? e : least<T>();
        const T right = rightOf(e);
        most = leftOf(e);
        if (e > most) most = e, at = 1;
        if (right > most) most = right, at = 2;
    }
};

// Some rows, from `first` on; none for a lane without their column.
struct Span {
    int first, end;
    bool some;
    __device__ bool has(int y) const { return some && (unsigned)(y - first) < (unsigned)(end - first); }
    __device__ bool has(int begin, int n) const { return begin >= first && begin + n <= end; } // in any column
};

// A warp, which is a block, has planes side by side, of `wide` lanes each, or a group of columns of one; `before` lanes precede the first column. strips
// divides by the strips of `rows` rows of a plane, groups by its groups of columns, of which each begins `columns` after the one before.
template <typename T, int AHEAD>
__device__ void maxDiffWalk(const T* __restrict__ in, const T* __restrict__ grad, T* __restrict__ out, long long planes, Axis v, Axis h, int beside, int wide, int before,
                            int columns, int rows, Divide strips, Divide groups) {
    const int lane = threadIdx.x, line = groups(blockIdx.x), group = blockIdx.x - line * groups.d, several = strips(line), side = lane / wide;
    const int x = group * columns + lane - side * wide - before, y0 = (line - several * strips.d) * rows, y1 = min(y0 + rows, v.in);
    const long long plane = (long long)several * beside + side;
    const int window = x - 1 + h.pad; // that has x in its middle; of rows, y - 1 + v.pad
    const int left = group == 0 ? 0 : group * columns + 2 - before, right = group == groups.d - 1 ? h.in : (group + 1) * columns + 2 - before; // the warp writes columns left to right - 1
    const bool exists = side < beside && plane < planes, inside = exists && h.inside(x);
    const Span reads{0, v.in, inside}, writes{y0, y1, inside && x >= left && x < right};
    const Span adds{max(y0 - 1, 1 - v.pad), min(y1 + 1, v.out + 1 - v.pad), exists && (unsigned)window < (unsigned)h.out};
    int y = adds.first;
    in += (plane * v.in + y - 1) * h.in + x;
    grad += (plane * v.out + y - 1 + v.pad) * h.out + window;
    out += (plane * v.in + y - 1) * h.in + x;

    Three<T> top(reads.has(y - 1) ? *in : least<T>()), middle(reads.has(y) ? in[h.in] : least<T>());
    in += 2 * h.in;
    T above = 0, here = 0; // the sums so far of rows y - 1 and y
    auto step = [&](bool all) { // all rows exist, or some
        T e[AHEAD], dy[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            e[i] = (all ? reads.some : reads.has(y + i + 1)) ? in[i * h.in] : least<T>();
            dy[i] = (all ? adds.some : adds.has(y + i)) ? grad[i * h.out] : 0;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) { // windows with row y + i in their middle
            const Three<T> bottom(e[i]);
            T most = top.most;
            int at = top.at;
            if (middle.most > most) most = middle.most, at = 3 + middle.at;
            if (bottom.most > most) most = bottom.most, at = 6 + bottom.at;
            if (most == least<T>()) at = NOWHERE;
            const int left = leftOf(at), right = rightOf(at);
            const T dyLeft = leftOf(dy[i]), dyRight = rightOf(dy[i]);
            auto add = [&](T sum, int row) {
                if (left == 3 * row + 2) sum += dyLeft;
                if (at == 3 * row + 1) sum += dy[i];
                if (right == 3 * row) sum += dyRight;
                return sum;
            };
            above = add(above, 0);
            if (all ? writes.some : writes.has(y + i - 1)) out[i * h.in] = above;
            above = add(here, 1);
            here = add(0, 2);
            top = middle;
            middle = bottom;
        }
        y += AHEAD;
        in += AHEAD * h.in, grad += AHEAD * h.out, out += AHEAD * h.in;
    };
    while (y < adds.end) {
        if (reads.has(y + 1, AHEAD) && adds.has(y, AHEAD) && writes.has(y - 1, AHEAD)) step(true);
        else step(false);
    }
    if (writes.has(y - 1)) *out = above; // what no window of the next rows reaches
    if (writes.has(y)) out[h.in] = here;
}

#define WALK(NAME, T, AHEAD)                                                                                      \
    extern "C" __global__ void __launch_bounds__(32)                                                              \
        poolwalk_max_diff_##NAME(const T* in, const T* grad, T* out, long long planes, AXES, int beside,          \
                                 int wide, int before, int columns, int rows, DIVIDE(strips), DIVIDE(groups)) {   \
        maxDiffWalk<T, AHEAD>(in, grad, out, planes, AXES_OF, beside, wide, before, columns, rows,                \
                              DIVIDE_OF(strips), DIVIDE_OF(groups));                                              \
    }

WALK(f32, float, 7)
WALK(f64, double, 4)
