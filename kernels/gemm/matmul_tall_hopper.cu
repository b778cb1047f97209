// C = op(A) op(B) in float32 of few columns, batched, on the tensor cores of compute capability 9.0: mostly A is read and C is written. With transC,
// op(A) op(B) is written transposed.
//
// Operands are split into two TF32 numbers, x = x0 + x1, and three of their products count: a1 b0, a0 b1 and a0 b0. A block splits B to shared memory once. Its warpgroups
// then compute tiles of 64 rows each, all columns at a time, and never wait for one another: a warp copies slices of 32 terms of its 16 rows of A to shared memory (cp.async), each while
// the one before is multiplied. Lanes split elements of A in registers, from which wgmma reads them. Tensor cores truncate, so they accumulate 16 terms, low products first; an addition that
// rounds adds these to the sums.
//
// Below 2^-104 x1 loses bits, up to 2^-136, and an infinite element has none. A warp that finds such elements, or sums that are not finite, looks at its 16 rows of A. A row with a NaN is NaN. If
// other sums are not finite, or so small that the lost bits count, it computes the rows again, by FMA in the order of the terms.
//
// Bound: the issue of instructions. With the products of high parts alone a launch takes 0.85 to 0.99 of the time.
//stheno:targets sm_90a ptx
#include "async.cuh"
#include "epilogue.cuh"
#include "follow.cuh"
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

// split splits x. The tensor cores ignore the bits of low that TF32 has not. low is not finite where x is not, or where high is infinite.
__device__ __forceinline__ void split(float x, u32& high, u32& low) {
    high = (__float_as_uint(x) + 0x1000) & 0xffffe000;
    low = __float_as_uint(x - __uint_as_float(high));
}

constexpr float LARGE = 1.7e38f; // larger elements may round to infinity
constexpr u32 LEAST = (127 - 104) << 24; // 2^-104 without its sign
__device__ __forceinline__ u32 size(float x) { return 2 * __float_as_uint(x) - 1; } // 0 gives the largest number

// run computes every parts-th tile of a matrix. A warp has SLOTS slices of A in shared memory: more leave less L1, by way of which rows that are not aligned are copied.
template <int N, int SLOTS>
__device__ __forceinline__ void run(const float* a, const float* b, float* c, int m, int n, int k, i64 lda, i64 ldb, int parts, int part, bool transA, bool transB, bool transC,
                                    const Epilogue<float>& epilogue) {
    constexpr int QUAD = N * 16; // bytes of 4 terms of all columns in shared memory
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, g = lane / 4, q = lane % 4, warps = blockDim.x / 32;
    const int terms = (k + 15) / 16 * 16, plane = terms * N;
    float* const bs = reinterpret_cast<float*>(dynamic);
    const bool pairs = n % 8 == 0 && reinterpret_cast<unsigned long long>(c) % 8 == 0; // lanes write two columns at a time
    const float perTerms = __fdividef(1, terms);
#pragma unroll 1
    for (int i = t; i < plane; i += blockDim.x) { // zeros beyond B
        const int line = transB ? (int)((i + 0.5f) * perTerms) : i / N, j = transB ? line : i - line * N, l = transB ? i - line * terms : line;
        async_copy(bs + plane + (l / 4 * N + j) * 4 + l % 4, b + (transB ? j * ldb + l : l * ldb + j), j < n && l < k);
    }
    commit();

    // A warp copies slices of 32 terms of its 16 rows as they are stored, [row][term] or [term][row], with fours and eights exchanged so that lanes meet in no bank.
    // Beyond A other elements of its last row or term are copied.
    float* const ring = bs + 2 * plane + warp * (SLOTS * 512 + 8 * N + 32);
    float* const stage = ring + SLOTS * 512;
    const bool wide = lda % 4 == 0 && reinterpret_cast<unsigned long long>(a) % 16 == 0 && (transA ? m : k) % 4 == 0;
    const int step = parts * (warps / 4) * 64;
    int row = (warp / 4 * parts + part) * 64 + warp % 4 * 16; // the warp's first
    int row0 = row, l0 = 0, slot = 0;                               // of the slice that is copied next
    const u32 line = (u32)lda * 4;                                  // bytes from line to line of A
    const auto fetch = [&] {
        const auto lines = [&](const float* p, int i) { return reinterpret_cast<const float*>(reinterpret_cast<const char*>(p) + (u64)(u32)i * line); };
        float* const to = ring + slot * 512;
        if (row0 < m) {
            if (wide && transA) {
                const float* const p = a + min(row0 + lane % 4 * 4, m - 4);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int l = i * 8 + lane / 4;
                    async_copy(reinterpret_cast<float4*>(to + l * 16 + (lane % 4 * 4 ^ (l & 2) * 4)), reinterpret_cast<const float4*>(lines(p, min(l0 + l, k - 1))));
                }
            } else if (wide) {
                const float* const p = a + min(l0 + lane % 8 * 4, k - 4);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int x = i * 4 + lane / 8;
                    async_copy(reinterpret_cast<float4*>(to + x * 32 + (lane % 8 ^ x & 7) * 4), reinterpret_cast<const float4*>(lines(p, min(row0 + x, m - 1))));
                }
            } else {
                const float* const p = a + (transA ? min(row0 + lane % 16, m - 1) : min(l0 + lane, k - 1));
                const int half = transA ? lane / 16 : 0, first = transA ? l0 + half : row0, last = (transA ? k : m) - 1;
#pragma unroll
                for (int i = 0; i < 16; i++) {
                    const int at = transA ? i * 32 + half * 16 + (lane % 16 ^ i % 2 * 8) : i * 32 + (lane ^ i % 8 * 4);
                    async_copy(to + at, lines(p, min(first + (transA ? 2 * i : i), last)));
                }
            }
        }
        commit();
        slot = slot == SLOTS - 1 ? 0 : slot + 1;
        if ((l0 += 32) >= k) l0 = 0, row0 += step;
    };
#pragma unroll 1
    for (int i = 0; i < SLOTS - 1; i++) fetch();

    __shared__ int largest; // of B
    if (t == 0) largest = 0;
    arrived<SLOTS - 1>(); // B
    __syncthreads();
    bool tiny = false;
    int most = 0;
#pragma unroll 2
    for (int i = t; i < plane; i += blockDim.x) {
        const float x = bs[plane + i];
        const bool splits = fabsf(x) <= LARGE;
        tiny |= size(x) < LEAST - 1;
        most = max(most, splits ? __float_as_int(fabsf(x)) : 0x7f800000);
        u32 high, low;
        split(x, high, low);
        bs[i] = splits ? __uint_as_float(high) : x; // their sum is x
        bs[plane + i] = splits ? __uint_as_float(low) : 0;
    }
    most = __reduce_max_sync(0xffffffff, most);
    if (lane == 0) atomicMax(&largest, most);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const bool inexact = __syncthreads_or(tiny || most == 0x7f800000);
    const u64 high = (u64)((shared_address(bs) & 0x3ffff) >> 4) | (u64)(QUAD >> 4) << 16 | (u64)(128 >> 4) << 32; // wgmma's descriptor of the first 8 terms
    const u64 low = high + (plane >> 2);
    // A lane multiplies rows g and g + 8 by terms q and q + 4 of 8.
    const int from = transA ? q * 16 + (g ^ q / 2 * 8) : g * 32 + q, next = transA ? (g ^ q / 2 * 8 ^ 8) - (g ^ q / 2 * 8) : 256;
    int now = 0;
#pragma unroll 1
    for (; row - warp % 4 * 16 < m; row += step) {
        float sum[N / 2];
        u32 least = 0xffffffff;
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
        u64 by = 0;
#pragma unroll 1
        for (int l = 0; l < k; l += 32) {
            arrived<SLOTS - 2>();
            __syncwarp(); // all lanes' copies of this slice; and all have multiplied the slice before
            fetch();
            const float* const p = ring + now * 512 + from;
            now = now == SLOTS - 1 ? 0 : now + 1;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (l + 16 * h >= k) break;
                u32 x[2][2][4]; // by part and 8 terms
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const int four = h * 4 + i / 2;
                    const float v = p[(transA ? four * 64 : (four ^ g) * 4) + i % 2 * next];
                    split(v, x[0][i / 4][i % 4], x[1][i / 4][i % 4]);
                    least = min(least, size(v));
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
        float check = 0; // or NaN
#pragma unroll
        for (int i = 0; i < N / 2; i++) check = fmaf(sum[i], 0, check);
        if (__any_sync(0xffffffff, check != 0 || inexact || least < LEAST - 1)) {
            const float* const p[2] = {a + min(row + g, m - 1) * (transA ? 1 : lda), a + min(row + g + 8, m - 1) * (transA ? 1 : lda)};
            const i64 down = transA ? lda : 1;
            const float mostB = __int_as_float(largest);
            bool again = mostB > LARGE;
#pragma unroll 1
            for (int r = again ? 2 : 0; r < 2; r++) {
                const float* const from = r == 0 ? p[0] : p[1];
                float mostA = 0;
                bool none = false; // NaN
#pragma unroll 4
                for (int l = q; l < k; l += 4) {
                    const float x = from[l * down];
                    mostA = fmaxf(mostA, fabsf(x)), none |= x != x;
                }
                for (int d = 1; d < 4; d *= 2) mostA = fmaxf(mostA, __shfl_xor_sync(0xffffffff, mostA, d)), none |= __shfl_xor_sync(0xffffffff, (int)none, d);
                const float enough = k * (0x1p-110f * mostA + 0x1p-110f * mostB); // 2^26 times what the sum may have lost
                if (none || mostA == 0) continue;
#pragma unroll
                for (int i = 0; i < N / 4; i++) {
                    const float x = fabsf(r == 0 ? sum[i / 2 * 4 + i % 2] : sum[i / 2 * 4 + i % 2 + 2]);
                    again |= i / 2 * 8 + i % 2 + q * 2 < n && !(x >= enough && x <= 0x1.fffffep127f);
                }
            }
            if (__any_sync(0xffffffff, again)) {
#pragma unroll
                for (int i = 0; i < N / 2; i++) sum[i] = 0;
                const float4* const y = reinterpret_cast<const float4*>(bs) + q * 2;
#pragma unroll 1
                for (int l = 0; l < k; l += 4) {
                    float x[2][4];
#pragma unroll
                    for (int e = 0; e < 8; e++) x[e / 4][e % 4] = l + e % 4 < k ? p[e / 4][(l + e % 4) * down] : 0;
#pragma unroll
                    for (int i = 0; i < N / 4; i++) {
                        const int at = l / 4 * N + i / 2 * 8 + i % 2;
                        const float4 high = y[at], low = y[at + plane / 4];
                        const float v[4] = {high.x + low.x, high.y + low.y, high.z + low.z, high.w + low.w};
#pragma unroll
                        for (int e = 0; e < 8; e++) {
                            float& to = sum[i / 2 * 4 + i % 2 + e / 4 * 2];
                            to = fmaf(x[e / 4][e % 4], v[e % 4], to);
                        }
                    }
                }
            }
        }
#pragma unroll 1
        for (int r = 0; r < 2; r++) {
            const int first = row + 8 * r, rows = min(m - first, 8);
            if (rows <= 0) break; // in all lanes
            float* const to = c + (transC ? (i64)first : (i64)first * n);
            const auto value = [&](int i) { return r == 0 ? sum[i] : sum[i + 2]; };
            if (epilogue.steps == 0 && (transC || pairs)) {
                if (g >= rows) continue;
                float* p = to + (transC ? g + q * 2 * (i64)m : g * n + q * 2);
                const i64 down = transC ? 8 * (i64)m : 8;
#pragma unroll
                for (int j = 0; j < N / 8; j++, p += down) {
                    const float2 v = make_float2(value(4 * j), value(4 * j + 1));
                    const int col = j * 8 + q * 2;
                    if (!transC) {
                        if (col < n) *reinterpret_cast<float2*>(p) = v;
                    } else {
                        if (col < n) p[0] = v.x;
                        if (col + 1 < n) p[m] = v.y;
                    }
                }
                continue;
            }
            // By way of shared memory: without an epilogue rows are one array.
            const int shift = (int)(reinterpret_cast<unsigned long long>(to) / 4 % 4), pitch = n % 8 == 0 ? n + 4 : n;
            float* const s = stage + shift;
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                const int j = i / 2 * 8 + i % 2 + q * 2;
                if (j < n) s[g * pitch + j] = value(i / 2 * 4 + i % 2);
            }
            __syncwarp();
            if (epilogue.steps == 0 && pitch == n) {
                const int count = rows * n, head = min((4 - shift) % 4, count), body = (count - head) / 4 * 4;
#pragma unroll 2
                for (int i = head + lane * 4; i < head + body; i += 128) *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(s + i);
                if (lane < count - body) {
                    const int i = lane < head ? lane : lane + body;
                    to[i] = s[i];
                }
            } else {
                const Target<float> target = {to, transC ? m : 1, transC ? 1 : n, rows, n, !transC && n % 4 == 0 && shift == 0, epilogue.from(0, first, 0)};
                const int vectors = (n + 3) / 4;
                const float per = __fdividef(1, vectors);
#pragma unroll 1
                for (int i = lane; i < 8 * vectors; i += 32) {
                    const int x = transC ? i % 8 : (int)((i + 0.5f) * per), col = (transC ? i / 8 : i - x * vectors) * 4;
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
        const int matrix = blockIdx.x / each;                                                                                                           \
        tall::run<N, 2>(a + matrix * strideA, b + matrix * strideB, c + (i64)matrix * m * n, (int)m, (int)n, (int)k, lda, ldb, each, blockIdx.x - matrix * each, \
                        transA, transB, transC, EPILOGUE(float).from(matrix, 0, 0));                                                                    \
    }
#else
#define KERNEL(N, THREADS) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) matmul_tall_hopper##N##_f32(ARGUMENTS) {}
#endif
KERNEL(32, 512)
KERNEL(64, 384)
KERNEL(96, 384)
KERNEL(128, 256)
