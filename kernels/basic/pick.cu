// pick: out[o][k][c] = x[o][indices[o][k][c]][c], or 0 if x has no such row. x is outer x rows x inner, indices and out are outer x count x inner.
// A thread moves four elements, a block apart. Bound by memory.
//
// pick_adjoint: out[o][v][c] = the sum of g[o][k][c] over the k with indices[o][k][c] = v, in the order of k, each sum rounded. Each warp owns a tile
// of out, some rows of up to 32 columns for one o, in shared memory: it goes through the indices of these columns, in order, adds what belongs to the tile, and writes it once,
// zeros included. Where fewer than 32 columns make a row, lanes stand for neighbouring k, and the first lane of those that add to one element adds for all, in their order.
#include "follow.cuh"
#include "indices.cuh"

__device__ __forceinline__ long long quotient(long long n, long long magic, int shift) { return (long long)(__umul64hi(n, magic) >> shift); }

template <typename W>
__device__ void pick(const W* __restrict__ x, Indices indices, W* __restrict__ out, long long elements, long long rows, long long inner,
                     long long innerMagic, int innerShift, long long slice, long long sliceMagic, int sliceShift) {
    constexpr int each = 4;
    const long long first = (long long)blockIdx.x * (blockDim.x * each) + threadIdx.x;
    long long index[each];
    W word[each];
    follow();
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = first + j * (int)blockDim.x;
        index[j] = at < elements ? indices[at] : -1;
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = first + j * (int)blockDim.x;
        const long long o = slice == 1 ? at : quotient(at, sliceMagic, sliceShift);
        const long long c = inner == 1 ? 0 : at - quotient(at, innerMagic, innerShift) * inner;
        word[j] = W{};
        if (index[j] >= 0 && index[j] < rows) word[j] = x[(o * rows + index[j]) * inner + c];
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long at = first + j * (int)blockDim.x;
        if (at < elements) out[at] = word[j];
    }
}

extern __shared__ __align__(16) unsigned char shared[];

// Warps are numbered by (tile of columns, tile of rows, o). Every lane of a warp has ahead indices in flight.
template <typename T>
__device__ void pick_adjoint(const T* __restrict__ g, Indices indices, T* __restrict__ out, long long warps, long long rows, long long count, long long inner,
                             int tileRows, long long tilesDown, long long tilesAcross) {
    constexpr int ahead = 8;
    const int lane = threadIdx.x & 31, inBlock = threadIdx.x >> 5;
    const long long warp = (long long)blockIdx.x * (blockDim.x >> 5) + inBlock;
    if (warp < warps) {
        const long long c0 = warp % tilesAcross * 32, rest = warp / tilesAcross, v0 = rest % tilesDown * tileRows, o = rest / tilesDown;
        const int width = (int)min(32ll, inner - c0), height = (int)min((long long)tileRows, rows - v0), own = height * width;
        const bool whole = inner <= 32; // lanes stand for neighbouring k, too
        T* tile = reinterpret_cast<T*>(shared) + inBlock * tileRows * (int)min(32ll, inner);
        for (int i = lane; i < own; i += 32) tile[i] = 0;
        __syncwarp();
        follow();
        // Of the elements of this o, [count][width]: element i is at (i / width) * inner + c0 + i % width, which is i where the tile is as wide as a row.
        const long long elements = whole ? count * width : count * 32;
        const long long base = o * count * inner + c0;
        for (long long i0 = 0; i0 < elements; i0 += 32 * ahead) {
            long long index[ahead];
            bool some = false;
#pragma unroll
            for (int j = 0; j < ahead; j++) {
                const long long i = i0 + j * 32 + lane;
                const bool exists = i < elements && (whole || lane < width);
                index[j] = exists ? indices[whole ? base + i : base + (i >> 5) * inner + lane] - v0 : -1;
                if (index[j] < 0 || index[j] >= height) index[j] = -1;
                some = some || index[j] >= 0;
            }
            if (!__any_sync(~0u, some)) continue;
            int key[ahead];
            T x[ahead];
#pragma unroll
            for (int j = 0; j < ahead; j++) {
                const long long i = i0 + j * 32 + lane;
                key[j] = index[j] < 0 ? -1 : (int)index[j] * width + (whole ? (int)(i % width) : lane);
                x[j] = key[j] < 0 ? T(0) : g[whole ? base + i : base + (i >> 5) * inner + lane];
            }
#pragma unroll
            for (int j = 0; j < ahead; j++) {
                if (!whole) {
                    if (key[j] >= 0) tile[key[j]] += x[j];
                    continue;
                }
                if (!__any_sync(~0u, key[j] >= 0)) continue;
                const unsigned same = __match_any_sync(~0u, key[j]);
                const bool leads = key[j] >= 0 && (same & ((1u << lane) - 1)) == 0;
                T sum = leads ? tile[key[j]] + x[j] : T(0);
                unsigned others = leads ? same & (same - 1) : 0;
                while (__any_sync(~0u, others != 0)) { // as often as the largest group has others
                    const T y = __shfl_sync(~0u, x[j], others ? __ffs(others) - 1 : lane);
                    if (others) sum += y;
                    others &= others - 1;
                }
                if (leads) tile[key[j]] = sum;
                __syncwarp();
            }
        }
        __syncwarp();
        T* to = out + (o * rows + v0) * inner + c0;
        if (whole) {
#pragma unroll 8
            for (int i = lane; i < own; i += 32) to[i] = tile[i];
        } else if (lane < width) {
#pragma unroll 8
            for (int r = 0; r < height; r++) to[r * inner + lane] = tile[r * width + lane];
        }
    } else {
        follow();
    }
}

#define PICK(name, W)                                                                                                                        \
    extern "C" __global__ void pick_##name(const W* x, const unsigned char* indices, int bytes, W* out, long long elements, long long rows,  \
                                           long long inner, long long innerMagic, int innerShift, long long slice, long long sliceMagic,     \
                                           int sliceShift) {                                                                                 \
        pick(x, Indices{indices, bytes}, out, elements, rows, inner, innerMagic, innerShift, slice, sliceMagic, sliceShift);                 \
    }

PICK(b8, unsigned char)
PICK(b16, unsigned short)
PICK(b32, unsigned int)
PICK(b64, uint2)

#define PICK_ADJOINT(name, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) pick_adjoint_##name(const T* g, const unsigned char* indices, int bytes, T* out,       \
                                                                          long long warps, long long rows, long long count, long long inner, \
                                                                          int tileRows, long long tilesDown, long long tilesAcross) {        \
        pick_adjoint(g, Indices{indices, bytes}, out, warps, rows, count, inner, tileRows, tilesDown, tilesAcross);                          \
    }

PICK_ADJOINT(f32, float)
PICK_ADJOINT(f64, double)
