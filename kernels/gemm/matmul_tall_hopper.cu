// C = op(A) op(B) in float32, batched, on the tensor cores of compute capability 9.0, for a C of few columns, or of any number, few at a time. With transC,
// op(A) op(B) is written transposed.
//
// Operands are split into two TF32 numbers, x = x0 + x1, and three of their products count: a1 b0, a0 b1 and a0 b0. A block splits a part of B, N columns and a chunk of K, to shared memory once.
// Its warpgroups then compute tiles of 64 rows each, and never wait for one another: a warp copies slices of 32 terms of its 16 rows of A to shared memory (cp.async), each while
// the one before is multiplied. Lanes split elements of A in registers, from which wgmma reads them. Tensor cores truncate, so they accumulate 16 terms, low products first; an addition that
// rounds adds these to the sums. Sums of chunks of K are added by another launch, see matmul.cu; batches of few rows and columns are those of matmul_inner.cu.
//
// Below 2^-104 x1 loses bits, up to 2^-136, and an infinite element of A has none. A B with such elements and no large ones is multiplied by 2^45. A warp looks at rows of A whose sums are not
// finite: one with a NaN is NaN, and with an infinite element its sums are those of the infinite terms. If other sums are not finite, or so small that the lost bits count, the warp computes its
// 16 rows again, by FMA.
// An infinite element of B is x1, beside a finite x0 of its sign: so no term of a finite row is 0 times infinity where it should not be.
// The largest finite ones would be infinite as x0: with one in B, rows are computed again.
//
// Bound: the issue of instructions, a half of them for copies, splits and stores.
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "epilogue.cuh"
#include "follow.cuh"
#include "place.cuh"
#include "wgmma.cuh"
typedef long long i64;

extern __shared__ double dynamic[];

#if __CUDA_ARCH__ == 900
namespace tall {

#define D16(i) D8(i), D8(i + 8)
#define SUMS16 D16(0)
#define SUMS32 D32(0)
#define SUMS48 D32(0), D16(32)
#define SUMS64 D64
#define L16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define L32                                                                   \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define L48                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}"
// product starts d = a b, or d += a b where more is not 0: 64 rows of A in registers by N columns of B, 8 terms. Accumulators are where wgmma has them: see wgmma.cuh.
#define PRODUCT(COUNT, N, a0, a1, a2, a3, descriptor, add)                                                                                                    \
    __device__ __forceinline__ void product(float (&d)[COUNT], const u32 (&a)[4], u64 b, int more) {                                                          \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add ", 0;\n"                                                                                       \
                     "wgmma.mma_async.sync.aligned.m64n" N "k8.f32.tf32.tf32 " L##COUNT ", {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" descriptor ", p, 1, 1;\n}" \
                     : SUMS##COUNT : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));                                                            \
    }
PRODUCT(16, "32", "16", "17", "18", "19", "20", "21")
PRODUCT(32, "64", "32", "33", "34", "35", "36", "37")
PRODUCT(48, "96", "48", "49", "50", "51", "52", "53")
PRODUCT(64, "128", "64", "65", "66", "67", "68", "69")

// split splits x. The tensor cores ignore the bits of low that TF32 has not. low is not finite where x or high is not.
__device__ __forceinline__ void split(float x, u32& high, u32& low) {
    high = (__float_as_uint(x) + 0x1000) & 0xffffe000;
    low = __float_as_uint(x - __uint_as_float(high));
}

constexpr u32 INFINITE = 0x7f800000; // the bits of infinity; those of NaN are larger
constexpr u32 LEAST = (127u - 104) << 24; // 2^-104 without its sign
constexpr u32 MODERATE = (127u + 20) << 24;
constexpr u32 LARGEST = 2u * 0x7f7ff000; // rounds to infinity in TF32
__device__ __forceinline__ u32 twice(float x) { return 2 * __float_as_uint(x); } // the bits without the sign
__device__ __forceinline__ u32 size(float x) { return twice(x) - 1; }              // 0 gives the largest number

// run computes n columns, from column0 on, of every parts-th tile of 64 rows of C, which has `columns`. A warp has SLOTS slices of A in shared memory: more leave less L1, by way of which rows that are not aligned are copied.
template <int N>
__device__ __forceinline__ void run(const float* a, const float* b, float* c, int m, int n, int k, i64 lda, i64 ldb, int columns, int column0, int parts, int part, bool transA,
                                    bool transB, bool transC, const Epilogue<float>& epilogue) {
    constexpr int SLOTS = 2;
    constexpr int QUAD = N * 16 + 16; // bytes of 4 terms of all columns in shared memory, and 16 so that copies meet in few banks
    const int t = threadIdx.x, warp = __shfl_sync(0xffffffff, t / 32, 0), lane = t % 32, g = lane / 4, q = lane % 4, warps = blockDim.x / 32;
    const int terms = (k + 15) / 16 * 16, plane = terms * (QUAD / 16);
    float* const bs = reinterpret_cast<float*>(dynamic);
    const bool pairs = !transC && columns % 8 == 0 && reinterpret_cast<unsigned long long>(c) % 8 == 0; // lanes write two columns at a time
    // Lane q of 4 multiplies terms 4 q to 4 q + 3 of 16, that is q and q + 4 of 8 twice: four terms that lie side by side are those of four lanes.
    const auto placeB = [](int l) { return (l / 16 * 4 + l % 4) * (QUAD / 4) + l / 4 % 4; };
    float* const raw = bs + plane;
    for (int i = t; i < terms / 4; i += blockDim.x) reinterpret_cast<float4*>(raw)[i * (QUAD / 16) + N] = make_float4(0, 0, 0, 0);
    const float* fromB = b + warp * ldb + lane;
    const i64 nextB = warps * ldb;
    if (transB) { // a warp copies columns; zeros beyond B
#pragma unroll 1
        for (int j = warp; j < N; j += warps, fromB += nextB) {
            float* const to = raw + placeB(lane) + j * 4;
#pragma unroll 4
            for (int l = 0; l < terms; l += 32)
                if (l + lane < terms) async_copy(to + l / 16 * QUAD, fromB + l, j < n && l + lane < k);
        }
    } else { // or terms of all columns
#pragma unroll 2
        for (int l = warp; l < terms; l += warps, fromB += nextB) {
            float* const to = raw + placeB(l) + lane * 4;
#pragma unroll
            for (int j = 0; j < N; j += 32) async_copy(to + j * 4, fromB + j, j + lane < n && l < k);
        }
    }
    commit();

    constexpr int STAGE = 8 * N + 32; // elements of C on the way to it, of a warp
    float* const ring = bs + 2 * plane + warp * SLOTS * 512;
    float* const stage = bs + 2 * plane + warps * SLOTS * 512 + warp * STAGE;
    // A warp copies slices of 32 terms of its 16 rows to [row][term], fours of terms exchanged so that lanes meet in no bank.
    // Beyond A other elements of its last row or term are copied.
    const bool wide = !transA && lda % 4 == 0 && reinterpret_cast<unsigned long long>(a) % 16 == 0 && k % 4 == 0;
    const auto placeA = [](int r) { return (r % 2 * 4 + r / 2 % 4) * 4; };
    const int step = parts * (warps / 4) * 64;
    int row = (warp / 4 * parts + part) * 64 + warp % 4 * 16; // the warp's first
    int row0 = row, l0 = 0, slot = 0;                         // of the slice that is copied next
    const u32 line = (u32)lda * 4;                            // bytes from line to line of A
    const auto fetch = [&] {
        const auto lines = [&](const float* p, int i) { return reinterpret_cast<const float*>(reinterpret_cast<const char*>(p) + (u64)(u32)i * line); };
        float* const to = ring + slot * 512;
        if (row0 < m) {
            if (wide) {
                const float* const p = a + min(l0 + lane % 8 * 4, k - 4);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int r = i * 4 + lane / 8;
                    async_copy(reinterpret_cast<float4*>(to + r * 32 + (lane % 8 * 4 ^ placeA(r))), reinterpret_cast<const float4*>(lines(p, min(row0 + r, m - 1))));
                }
            } else if (transA) {
                const float* const p = a + min(row0 + lane % 16, m - 1);
                float* const r = to + lane % 16 * 32 + lane / 16;
#pragma unroll
                for (int i = 0; i < 16; i++) async_copy(r + (2 * i ^ placeA(lane)), lines(p, min(l0 + lane / 16 + 2 * i, k - 1)));
            } else {
                const float* const p = a + min(l0 + lane, k - 1);
#pragma unroll
                for (int i = 0; i < 16; i++) async_copy(to + i * 32 + (lane ^ placeA(i)), lines(p, min(row0 + i, m - 1)));
            }
        }
        commit();
        slot = slot == SLOTS - 1 ? 0 : slot + 1;
        if ((l0 += 32) >= k) l0 = 0, row0 += step;
    };
#pragma unroll 1
    for (int i = 0; i < SLOTS - 1; i++) fetch();

    __shared__ u32 extent[2];       // the least and the largest size of B's elements
    __shared__ u32 special[N / 32]; // columns of B with elements that are not finite
    __shared__ float unit;          // of sums
    if (t == 0) extent[0] = 0xffffffff, extent[1] = 0, unit = 1;
    if (t < N / 32) special[t] = 0;
    arrived<SLOTS - 1>(); // B
    __syncthreads();
    float4* const parts0 = reinterpret_cast<float4*>(bs);
    float4* const parts1 = parts0 + plane / 4; // B, before it is split
    u32 least = 0xffffffff, most = 0;
#pragma unroll 2
    for (int i = t; i < plane / 4; i += blockDim.x) {
        const float4 v = parts1[i];
        least = min(min(least, size(v.x)), min(min(size(v.y), size(v.z)), size(v.w)));
        most = max(max(most, twice(v.x)), max(max(twice(v.y), twice(v.z)), twice(v.w)));
    }
    least = __reduce_min_sync(0xffffffff, least), most = __reduce_max_sync(0xffffffff, most);
    if (lane == 0) atomicMin(&extent[0], least), atomicMax(&extent[1], most);
    __syncthreads();
    const bool tiny = extent[0] < LEAST - 1;
    bool inexact = false;
    if (__any_sync(0xffffffff, tiny || extent[1] >= LARGEST)) {
        const bool scaled = tiny && extent[1] < MODERATE;
        const float by = scaled ? 0x1p45f : 1; // then no element is tiny
        if (t == 0 && scaled) unit = 0x1p-45f;
        inexact = tiny && !scaled;
#pragma unroll 1
        for (int i = t; i < plane / 4; i += blockDim.x) {
            const float4 v = parts1[i];
            const float x[4] = {v.x * by, v.y * by, v.z * by, v.w * by}; // before they are split: low may have no more bits than TF32
            float high[4], low[4];                                       // their sum is x
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 bits = __float_as_uint(fabsf(x[e]));
                const bool finite = bits < INFINITE;
                inexact |= finite && 2 * bits >= LARGEST;
                if (!finite) atomicOr(&special[i % (QUAD / 16) / 32], 1u << i % (QUAD / 16) % 32);
                high[e] = copysignf(finite ? __uint_as_float(min((bits + 0x1000) & 0xffffe000, 0x7f7fe000)) : 0x1p-100f, x[e]);
                low[e] = x[e] - high[e];
            }
            parts0[i] = make_float4(high[0], high[1], high[2], high[3]);
            parts1[i] = make_float4(low[0], low[1], low[2], low[3]);
        }
    } else {
#pragma unroll 2
        for (int i = t; i < plane / 4; i += blockDim.x) {
            const float4 v = parts1[i];
            const float x[4] = {v.x, v.y, v.z, v.w};
            u32 high[4], low[4];
#pragma unroll
            for (int e = 0; e < 4; e++) split(x[e], high[e], low[e]);
            reinterpret_cast<uint4*>(parts0)[i] = make_uint4(high[0], high[1], high[2], high[3]);
            reinterpret_cast<uint4*>(parts1)[i] = make_uint4(low[0], low[1], low[2], low[3]);
        }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    inexact = __syncthreads_or(inexact);
    const u64 high = (u64)((shared_address(bs) & 0x3ffff) >> 4) | (u64)(QUAD >> 4) << 16 | (u64)(128 >> 4) << 32; // wgmma's descriptor of the first 8 terms
    const u64 low = high + (plane >> 2);
    const int from = g * 32 + (q * 4 ^ placeA(g)); // of rows g and g + 8, four terms of 16
    int now = 0;
#pragma unroll 1
    for (; row - warp % 4 * 16 < m; row += step) {
        float sum[N / 2];
        u32 least[2] = {0xffffffff, 0xffffffff}; // of rows row + g and row + g + 8
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
        u64 by = 0;
#pragma unroll 1
        for (int l = 0; l < k; l += 32) {
            arrived<SLOTS - 2>();
            __syncwarp(); // all lanes' copies of this slice; and all have multiplied the slice before
            fetch();
            const float* const p = ring + now * 512;
            now = now == SLOTS - 1 ? 0 : now + 1;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (l + 16 * h >= k) break;
                u32 x[2][2][4]; // by part and 8 terms
                float v[2][4];          // by row
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float4 u = *reinterpret_cast<const float4*>(p + (from ^ h * 16) + r * 256);
                    v[r][0] = u.x, v[r][1] = u.y, v[r][2] = u.z, v[r][3] = u.w;
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    split(v[i % 2][i / 2], x[0][i / 4][i % 4], x[1][i / 4][i % 4]);
                    least[i % 2] = min(least[i % 2], size(v[i % 2][i / 2]));
                }
                float some[N / 2];
                pin(some);
                wgmma_fence();
                product(some, x[1][0], high + by, 0);
                product(some, x[1][1], high + by + (2 * QUAD >> 4), 1);
                product(some, x[0][0], low + by, 1);
                product(some, x[0][1], low + by + (2 * QUAD >> 4), 1);
                product(some, x[0][0], high + by, 1);
                product(some, x[0][1], high + by + (2 * QUAD >> 4), 1);
                wgmma_commit();
                wgmma_wait<0>();
                pin(some);
#pragma unroll
                for (int i = 0; i < N / 2; i++) sum[i] += some[i];
                by += 4 * QUAD >> 4;
            }
        }
        if (const float u = unit; u != 1)
#pragma unroll
            for (int i = 0; i < N / 2; i++) sum[i] *= u;
        float check = 0; // or NaN
#pragma unroll
        for (int i = 0; i < N / 2; i++) check = fmaf(sum[i], 0, check);
        if (row < m && __any_sync(0xffffffff, check != 0 || inexact || min(least[0], least[1]) < LEAST - 1)) { // what a warp without rows has in shared memory does not count
            const float inf = __uint_as_float(INFINITE), largest = extent[1] < LARGEST ? __uint_as_float(extent[1] / 2) : inf;
            const i64 line = transA ? 1 : lda, down = transA ? lda : 1;
            float smallest[2] = {inf, inf}; // sum of the row, -1 if one is not finite
            u32 specials = 0;
#pragma unroll
            for (int j = 0; j < N; j += 32) {
                const u32 skip = (special[j / 32] | (j + 32 <= n ? 0 : ~0u << max(n - j, 0) % 32)) >> q * 2; // columns, by bit
                specials |= special[j / 32];
#pragma unroll
                for (int i = 0; i < 16; i++) {
                    const float x = fabsf(sum[j / 2 + i]);
                    if (!(skip >> (i / 4 * 8 + i % 2) & 1)) smallest[i / 2 % 2] = fminf(smallest[i / 2 % 2], x < inf ? x : -1);
                }
            }
            bool again = false;
            u32 rows = 0; // to be looked at: bit 4 g + r for row + g + 8 r
#pragma unroll
            for (int r = 0; r < 2; r++) {
                for (int d = 1; d < 4; d *= 2) smallest[r] = fminf(smallest[r], __shfl_xor_sync(0xffffffff, smallest[r], d)), least[r] = min(least[r], __shfl_xor_sync(0xffffffff, least[r], d));
                const bool inside = row + g + 8 * r < m, tiny = least[r] < LEAST - 1;
                if (specials != 0 && tiny) smallest[r] = -1; // x0 may be 0 there, and 0 times infinity is NaN
                again |= inside && tiny && smallest[r] >= 0 && smallest[r] < k * 0x1p-110f * largest; // 2^26 times what the sum may have lost
                rows |= (__ballot_sync(0xffffffff, inside && (!(smallest[r] >= 0 && smallest[r] < inf) || inexact)) & 0x11111111) << r;
            }
            u32 slices = 0; // by bit as in rows: slices of 32 terms with an infinite element
#pragma unroll 1
            while (rows != 0) { // four at a time, each by 8 lanes
                u32 mine = rows, rank = __popc(rows & ((1u << lane) - 1)), where = 0, most = 0;
                const bool is = rows >> lane & 1 && rank < 4;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (i < lane / 8) mine &= mine - 1;
                    rows &= rows - 1;
                }
                const int bit = __ffs(mine) - 1;
                const float* const x = a + (row + bit / 4 + bit % 4 * 8) * line;
                if constexpr (N < 128) {
                    constexpr int SLICES = 4; // in flight
                    const float* p = x + lane % 8 * (wide ? 4 : down);
#pragma unroll 1
                    for (int l0 = 0; l0 < k; l0 += 32 * SLICES, p += 32 * SLICES * down) {
                        float v[SLICES][4];
#pragma unroll
                        for (int s = 0; s < SLICES; s++) {
                            const int l = l0 + 32 * s + (wide ? lane % 8 * 4 : lane % 8);
                            if (wide) {
                                const float4 u = mine != 0 && l < k ? *reinterpret_cast<const float4*>(p + 32 * s) : make_float4(0, 0, 0, 0);
                                v[s][0] = u.x, v[s][1] = u.y, v[s][2] = u.z, v[s][3] = u.w;
                            } else {
#pragma unroll
                                for (int i = 0; i < 4; i++) v[s][i] = mine != 0 && l + 8 * i < k ? p[(32 * s + 8 * i) * down] : 0;
                            }
                        }
#pragma unroll
                        for (int s = 0; s < SLICES; s++) {
                            const u32 size = max(max(twice(v[s][0]), twice(v[s][1])), max(twice(v[s][2]), twice(v[s][3])));
                            most = max(most, size);
                            if (size == 2 * INFINITE) where |= 1u << l0 / 32 + s;
                        }
                    }
                } else { // no registers are left for more
#pragma unroll 8
                    for (int l = lane % 8; l < k; l += 8) {
                        const u32 size = mine != 0 ? twice(x[l * down]) : 0;
                        most = max(most, size);
                        if (size == 2 * INFINITE) where |= 1u << l / 32;
                    }
                }
                most /= 2;
#pragma unroll
                for (int d = 1; d < 8; d *= 2) most = max(most, __shfl_xor_sync(0xffffffff, most, d)), where |= __shfl_xor_sync(0xffffffff, where, d);
                const float sums0 = __shfl_sync(0xffffffff, smallest[0], bit & 28), sums1 = __shfl_sync(0xffffffff, smallest[1], bit & 28);
                const float enough = k * (0x1p-110f * __uint_as_float(most) + 0x1p-110f * largest);
                again |= most == INFINITE ? specials != 0 : most != 0 && most < INFINITE && (2 * most >= LARGEST || (bit % 2 ? sums1 : sums0) < enough);
                where = __shfl_sync(0xffffffff, most == INFINITE ? where : 0, rank * 8);
                if (is) slices = where;
            }
            float to[N / 32] = {}; // columns lane, lane + 32, ... of a row with infinite elements: the sums of its infinite terms
            u32 done = 0;
#pragma unroll 1
            for (u32 infinite = __ballot_sync(0xffffffff, slices != 0); infinite != 0;) {
                const int bit = __ffs(infinite) - 1, r = bit / 4 + bit % 4 * 8;
                const u32 left = __shfl_sync(0xffffffff, slices, bit);
                const int l0 = (__ffs(left) - 1) * 32;
                const float v = l0 + lane < k ? a[(row + r) * line + (l0 + lane) * down] : 0;
                const u32 next = __ballot_sync(0xffffffff, fabsf(v) == inf) & ~done;
                const int l = __ffs(next) - 1;
                const float u = __shfl_sync(0xffffffff, v, l), *const y = bs + placeB(l0 + l) + lane * 4;
#pragma unroll
                for (int i = 0; i < N / 32; i++) to[i] = fmaf(u, y[i * 128] + y[i * 128 + plane], to[i]);
                done = (2u << l) - 1;
                if ((next & ~done) != 0) continue;
                done = 0;
                if (lane == bit) slices &= slices - 1;
                if ((left & left - 1) != 0) continue;
                infinite &= infinite - 1;
#pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    const float u = __shfl_sync(0xffffffff, to[i / 16], i / 4 % 4 * 8 + i % 2 + q * 2);
                    if (r == g + i / 2 % 2 * 8) sum[i] = u;
                }
#pragma unroll
                for (int i = 0; i < N / 32; i++) to[i] = 0;
            }
            again = __any_sync(0xffffffff, again);
            if (again) {
                const float* const p[2] = {a + min(row + g, m - 1) * line, a + min(row + g + 8, m - 1) * line};
#pragma unroll
                for (int i = 0; i < N / 2; i++) sum[i] = 0;
                const float4* const y = reinterpret_cast<const float4*>(bs) + q * 2;
#pragma unroll 1
                for (int l = 0; l < terms; l += 4) {
                    float x[2][4];
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        const int term = l / 16 * 16 + l / 4 % 4 + e % 4 * 4;
                        x[e / 4][e % 4] = term < k ? p[e / 4][term * down] : 0;
                    }
#pragma unroll
                    for (int i = 0; i < N / 4; i++) {
                        const int at = l / 4 * (QUAD / 16) + i / 2 * 8 + i % 2;
                        const float4 high = y[at], low = y[at + plane / 4];
                        const float v[4] = {(high.x + low.x) * unit, (high.y + low.y) * unit, (high.z + low.z) * unit, (high.w + low.w) * unit};
#pragma unroll
                        for (int e = 0; e < 8; e++) {
                            float& to = sum[i / 2 * 4 + i % 2 + e / 4 * 2];
                            to = fmaf(x[e / 4][e % 4], v[e % 4], to);
                        }
                    }
                }
            }
        }
        if (epilogue.steps == 0 && transC) { // a warpgroup writes 64 rows of a column at a time: parts of a sector are slow
            constexpr int HALF = N / 2, PITCH = 65;
            float* const s = stage - warp % 4 * STAGE;
            const auto meet = [&] { asm volatile("bar.sync %0, 128;" ::"r"(warp / 4 + 1) : "memory"); };
#pragma unroll
            for (int half = 0; half < 2; half++) {
                meet();
#pragma unroll
                for (int i = 0; i < N / 4; i++) s[(i / 4 * 8 + i % 2 + q * 2) * PITCH + warp % 4 * 16 + g + i / 2 % 2 * 8] = sum[half * N / 4 + i];
                meet();
#pragma unroll 4
                for (int j = warp % 4; j < HALF && half * HALF + j < n; j += 4) {
                    const int first = row - warp % 4 * 16 + lane;
                    float* const to = c + (half * HALF + j) * (i64)m + first;
                    if (first < m) to[0] = s[j * PITCH + lane];
                    if (first + 32 < m) to[32] = s[j * PITCH + lane + 32];
                }
            }
            continue;
        }
#pragma unroll 1
        for (int r = 0; r < 2; r++) {
            const int first = row + 8 * r, rows = min(m - first, 8);
            if (rows <= 0) break; // in all lanes
            float* const to = c + (transC ? (i64)first : (i64)first * columns);
            const auto value = [&](int i) { return r == 0 ? sum[i] : sum[i + 2]; };
            if (epilogue.steps == 0 && pairs) {
                if (g >= rows) continue;
                float* p = to + g * (i64)columns + q * 2;
#pragma unroll
                for (int j = 0; j < N / 8; j++, p += 8)
                    if (j * 8 + q * 2 < n) *reinterpret_cast<float2*>(p) = make_float2(value(4 * j), value(4 * j + 1));
                continue;
            }
            // By way of shared memory: without an epilogue rows of all columns are one array.
            const int shift = place(to), pitch = n % 8 == 0 ? n + 4 : n;
            float* const s = stage + shift;
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                const int j = i / 2 * 8 + i % 2 + q * 2;
                if (j < n) s[g * pitch + j] = value(i / 2 * 4 + i % 2);
            }
            __syncwarp();
            if (epilogue.steps == 0 && n == columns && pitch == n) {
                vectors(to, rows * n, lane, 32, [&](int i) { *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(s + i); }, [&](int i) { to[i] = s[i]; });
            } else if (epilogue.steps == 0) {
#pragma unroll
                for (int x = 0; x < 8; x++) {
                    if (x >= rows) break;
#pragma unroll
                    for (int j = lane; j < N; j += 32)
                        if (j < n) to[x * (i64)columns + j] = s[x * pitch + j];
                }
            } else {
                const Target<float> target = {to, transC ? m : 1, transC ? 1 : columns, rows, n, !transC && columns % 4 == 0 && shift == 0, epilogue.from(0, first, column0)};
                const int fours = (n + 3) / 4;
                const float per = __fdividef(1, fours);
#pragma unroll 1
                for (int i = lane; i < 8 * fours; i += 32) {
                    const int x = transC ? i % 8 : (int)((i + 0.5f) * per), col = (transC ? i / 8 : i - x * fours) * 4;
                    Pack<float> v[1];
#pragma unroll
                    for (int e = 0; e < 4; e++) v[0].s[e] = s[x * pitch + col + e];
                    target.finish<1>({x}, {col}, v);
                }
            }
            __syncwarp();
        }
    }
}
} // namespace tall
#endif

#define ARGUMENTS                                                                                                                                     \
    const float *a, const float *b, float *c, i64 m, i64 n, i64 k, i64 lda, i64 ldb, i64 strideA, i64 strideB, i64 batch, i64 chunk, int each, int transA, \
        int transB, int transC, EPILOGUE_ARGUMENTS(float)
#if __CUDA_ARCH__ == 900
#define KERNEL(N, THREADS)                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) matmul_tall_hopper##N##_f32(ARGUMENTS) {                                                   \
        follow();                                                                                                                                       \
        const u32 splits = ((u32)k + (u32)chunk - 1) / (u32)chunk, tiles = ((u32)n + N - 1) / N, width = (((u32)n + tiles - 1) / tiles + 7) / 8 * 8;               \
        u32 i = blockIdx.x;                                                                                                                             \
        const u32 column0 = i % tiles * width, part = i / tiles % each;                                                                                  \
        i = i / tiles / each;                                                                                                                           \
        const i64 split = i % splits, matrix = i / splits;                                                                                               \
        const i64 l0 = split * chunk;                                                                                                                   \
        tall::run<N>(a + matrix * strideA + l0 * (transA ? lda : 1), b + matrix * strideB + l0 * (transB ? 1 : ldb) + column0 * (transB ? ldb : 1),        \
                        c + (split * batch + matrix) * m * n + column0 * (transC ? m : 1), (int)m, (int)min(n - column0, (i64)width), (int)min(k - l0, chunk), \
                        lda, ldb, (int)n, column0, each, part, transA, transB, transC, EPILOGUE(float).from(matrix, 0, 0));                                  \
    }
#else
#define KERNEL(N, THREADS) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) matmul_tall_hopper##N##_f32(ARGUMENTS) {}
#endif
KERNEL(32, 512)
KERNEL(64, 384)
KERNEL(96, 384)
KERNEL(128, 384)
