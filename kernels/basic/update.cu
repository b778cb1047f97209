// Rows of x at a position along an axis. Tensors are outer x extent x inner, in words of 1 to 16 bytes; rows have count rows along
// the axis, from position[o / each] on. A position from which rows do not fit is ignored.
//
//   update_rows:  x[o][p + k][c] = rows[o][k][c], over x
//   update:       out = x, but for these rows
//   rows_at:      out[o][k][c] = x[o][p + k][c], 0 where they do not fit
//
// A thread moves four words, a block apart, so that four loads are in flight. Bound by memory.
#include "follow.cuh"

// A divisor with the magic number of arith.Divisor.
struct Divide {
    long long d, magic;
    int shift;
    __device__ long long of(long long n) const { return d == 1 ? n : (long long)(__umul64hi(n, magic) >> shift); }
};

enum Mode { WRITE, REPLACE, READ };

// lines is the extent of the axis that threads go through: count for WRITE and READ, extent for REPLACE.
template <Mode mode, typename W>
__device__ void update(const W* x, const W* rows, const long long* __restrict__ position, W* out, long long words, Divide lines, Divide inner,
                       Divide each, long long extent, long long count) {
    constexpr int UNROLL = 4;
    admit();
    follow();
    const long long first = (long long)blockIdx.x * (blockDim.x * UNROLL) + threadIdx.x;
    W word[UNROLL];
    long long to[UNROLL];
#pragma unroll
    for (int j = 0; j < UNROLL; j++) {
        const long long at = first + j * (int)blockDim.x;
        to[j] = -1;
        if (at >= words) continue;
        const long long row = inner.of(at), c = at - row * inner.d, o = lines.of(row), line = row - o * lines.d;
        const long long p = position[each.of(o)];
        const bool fits = p >= 0 && p <= extent - count;
        const long long other = (o * extent + p + line) * inner.d + c; // of WRITE and READ, in x
        if (mode == WRITE) {
            to[j] = fits ? other : -1;
            if (fits) word[j] = rows[at];
        } else if (mode == READ) {
            to[j] = at;
            word[j] = W{};
            if (fits) word[j] = x[other];
        } else {
            const long long k = line - p;
            to[j] = at;
            word[j] = fits && k >= 0 && k < count ? rows[(o * count + k) * inner.d + c] : x[at];
        }
    }
#pragma unroll
    for (int j = 0; j < UNROLL; j++)
        if (to[j] >= 0) out[to[j]] = word[j];
}

#define UPDATE(NAME, MODE, W)                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                                         \
        NAME(const W* x, const W* rows, const long long* position, W* out, long long words, long long lines, long long linesMagic,            \
             int linesShift, long long inner, long long innerMagic, int innerShift, long long each, long long eachMagic, int eachShift,       \
             long long extent, long long count) {                                                                                             \
        update<MODE, W>(x, rows, position, out, words, {lines, linesMagic, linesShift}, {inner, innerMagic, innerShift},                      \
                        {each, eachMagic, eachShift}, extent, count);                                                                         \
    }
#define UPDATES(BITS, W)                 \
    UPDATE(update_rows_##BITS, WRITE, W) \
    UPDATE(update_##BITS, REPLACE, W)    \
    UPDATE(rows_at_##BITS, READ, W)

UPDATES(b8, unsigned char)
UPDATES(b32, unsigned int)
UPDATES(b64, uint2)
UPDATES(b128, uint4)
