// C = op(A) op(B) on the tensor cores:
//
//	c[i][j] = sum over l of opA[i][l] * opB[l][j],  i in [0, m), j in [0, n), l in [0, k)
//
// batched, row-major; op is the matrix or its transpose: version 7 of MatMul on every device and in both
// types, the first step of ../matmul_double.cu, where large float64 products run, and of ../matmul_hopper.cu.
//
// A block of 4 warps computes a tile of 128 x 64 elements of C, a warp a quarter of
// it in pieces of 16 x 8, the shape of one instruction. The factors come in pieces S
// deep, STAGES - 1 of them on their way (cp.async) while the warps multiply another,
// and lie in shared memory in the order that they have in global memory. So each
// element is loaded once for 64 or 128 multiply-adds.
//
// float64 elements are multiplied directly. A float32 element is split into two TF32
// numbers, and a float32 product is the sum of three TF32 products: see Fragment and
// accumulate.
// Devices before sm_80 have no tensor cores for these types and sum by FMA.
#include "matmul_tiles.cuh"
#include "vector.cuh"

#if __CUDA_ARCH__ >= 800
// mma is c += a b on the tensor cores for 16 x 8 and 8 x 8 elements spread over a
// warp. With g = lane / 4 and q = lane % 4 a lane holds
//
//	a[r + 2 h] = a(g + 8 r, q + 4 h)    b[h] = b(q + 4 h, g)    c[2 r + e] = c(g + 8 r, 2 q + e)
//
// float32 numbers enter with 11 significant bits (TF32); float64 ones as they are.
__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 4; i++) // r = i % 2, h = i / 2
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c[i % 2 * 2]), "+d"(c[i % 2 * 2 + 1]) : "d"(a[i]), "d"(b[i / 2]));
#endif
}

// Fragment is one operand of an mma, N numbers of a lane. A float x is split into two
// TF32 numbers of 11 significant bits, high + low. They keep 22 of the 24 bits of x if
// |x| >= 2^-114. mma ignores the last 13 bits of a float.
//
// high is x rounded to 11 bits, halves away from zero. The rest, x - high, is exact and
// at most 4096 units of x's last bit, so only from 2048 units on has it a 12th bit. A
// product with 1 + 2^-11 rounds that bit in the same way: there it adds 1 unit or more,
// but less than 2, and elsewhere less than mma ignores. An addition to the bits, as for
// high, would do so too, but it turns a NaN whose bits are all set, as GPUs make it,
// into zero. The product leaves NaN in low for a NaN of any payload, whatever high has
// become, and for Inf, whose sums settle computes again.
template <typename T, int N> struct Fragment;
template <int N> struct Fragment<float, N> {
    unsigned high[N], low[N];
    __device__ __forceinline__ void set(int i, float x) {
        high[i] = (__float_as_uint(x) + 0x1000) & 0xffffe000;
        low[i] = __float_as_uint((x - __uint_as_float(high[i])) * (1 + 0x1p-11f));
    }
};
template <int N> struct Fragment<double, N> {
    double x[N];
    __device__ __forceinline__ void set(int i, double v) { x[i] = v; }
};

// accumulate is c += a b for H steps of 8 l. For float: three products, the small
// ones first; low times low is below the last bit. Tensor cores cut off where FMA
// rounds, so they sum H steps only, and an addition that rounds does the rest.
template <int H>
__device__ __forceinline__ void accumulate(float (&c)[4], const Fragment<float, 4> (&a)[H], const Fragment<float, 2> (&b)[H]) {
    float sum[4] = {};
#pragma unroll
    for (int h = 0; h < H; h++) mma(sum, a[h].low, b[h].high);
#pragma unroll
    for (int h = 0; h < H; h++) mma(sum, a[h].high, b[h].low);
#pragma unroll
    for (int h = 0; h < H; h++) mma(sum, a[h].high, b[h].high);
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] += sum[i];
}
template <int H>
__device__ __forceinline__ void accumulate(double (&c)[4], const Fragment<double, 4> (&a)[H], const Fragment<double, 2> (&b)[H]) {
#pragma unroll
    for (int h = 0; h < H; h++) mma(c, a[h].x, b[h].x);
}

// settle returns element (i, j) of C, given the tensor cores' sum. A float that is Inf,
// or rounds to it, gives NaN once it is taken apart; so a sum that is not finite is
// computed again, by FMA.
template <typename P> __device__ float settle(const P& p, i64 i, i64 j, float sum) {
    if (isfinite(sum)) return sum;
    sum = 0;
    for (i64 l = 0; l < p.k; l++) sum += p.a(i, l) * p.b(j, l);
    return sum;
}
template <typename P> __device__ double settle(const P&, i64, i64, double sum) { return sum; }

// multiply adds the product of two pieces, S deep, to a warp's part of the tile: a and
// b point to its first row and column, and acc[i][j] holds a lane's elements of 16 x 8,
// those of c in mma.
template <typename PA, typename PB, int S, typename T, int MT, int NT>
__device__ __forceinline__ void multiply(const T* a, const T* b, T (&acc)[MT][NT][4]) {
    constexpr int H = S / 8;
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    a += PA::at(q, g);
    b += PB::at(q, g);
    Fragment<T, 2> y[NT][H];
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int e = 0; e < 2 * H; e++) y[j][e / 2].set(e % 2, b[PB::at(4 * e, 8 * j)]);
#pragma unroll
    for (int i = 0; i < MT; i++) {
        Fragment<T, 4> x[H];
#pragma unroll
        for (int e = 0; e < 4 * H; e++) x[e / 4].set(e % 4, a[PA::at(e / 2 * 4, 16 * i + e % 2 * 8)]);
#pragma unroll
        for (int j = 0; j < NT; j++) accumulate(acc[i][j], x, y[j]);
    }
}

#else
// Without tensor cores multiply sums the same elements by FMA, in order of l.
template <typename PA, typename PB, int S, typename T, int MT, int NT>
__device__ __forceinline__ void multiply(const T* a, const T* b, T (&acc)[MT][NT][4]) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int l = 0; l < S; l++) {
        T x[2 * MT], y[2 * NT];
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) x[i] = a[PA::at(l, 8 * i + g)];
#pragma unroll
        for (int j = 0; j < 2 * NT; j++) y[j] = b[PB::at(l, j / 2 * 8 + 2 * q + j % 2)];
#pragma unroll
        for (int i = 0; i < 2 * MT; i++)
#pragma unroll
            for (int j = 0; j < 2 * NT; j++) acc[i / 2][j / 2][i % 2 * 2 + j % 2] += x[i] * y[j];
    }
}

template <typename P, typename T> __device__ T settle(const P&, i64, i64, T sum) { return sum; }
#endif

// tensor_as computes a tile. WM x WN warps share it. ALONG_A and ALONG_B are set if
// the elements of one row of op(A), or one column of op(B), lie side by side.
template <int WM, int WN, int S, int STAGES, bool ALONG_A, bool ALONG_B, typename T, int BM, int BN>
__device__ __forceinline__ void tensor_as(const Product<T, BM, BN>& p) {
    using PA = Kept<T, BM, S, WM * WN * 32, ALONG_A>;
    using PB = Kept<T, BN, S, WM * WN * 32, ALONG_B>;
    constexpr int MT = BM / WM / 16, NT = BN / WN / 8;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int row = warp / WN * (BM / WM), col = warp % WN * (BN / WN);
    T acc[MT][NT][4] = {};
    pipeline<S, STAGES>(PA(p.a, p.row, threadIdx.x), PB(p.b, p.col, threadIdx.x), p.k, reinterpret_cast<T*>(dynamic),
        [&](const T* a, const T* b) { multiply<PA, PB, S>(a + PA::at(0, row), b + PB::at(0, col), acc); });
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const i64 r = p.row + row + 16 * i + e / 2 * 8 + g, c = p.col + col + 8 * j + 2 * q + e % 2;
                if (r < p.m && c < p.n) p.c[r * p.n + c] = settle(p, r, c, acc[i][j][e]);
            }
}
template <int WM, int WN, int S, int STAGES, typename T, int BM, int BN>
__device__ __forceinline__ void tensor(const Product<T, BM, BN>& p) {
    if (p.a.sl == 1 && p.b.sl == 1) tensor_as<WM, WN, S, STAGES, true, true>(p);
    else if (p.a.sl == 1) tensor_as<WM, WN, S, STAGES, true, false>(p);
    else if (p.b.sl == 1) tensor_as<WM, WN, S, STAGES, false, true>(p);
    else tensor_as<WM, WN, S, STAGES, false, false>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2) matmul_tensor_f32(
    const float* a, const float* b, float* c, i64 m, i64 n, i64 k, int transA, int transB) {
    tensor<2, 2, 16, 3>(Product<float, 128, 64>(a, b, c, m, n, k, transA, transB));
}
extern "C" __global__ void __launch_bounds__(128, 2) matmul_tensor_f64(
    const double* a, const double* b, double* c, i64 m, i64 n, i64 k, int transA, int transB) {
    tensor<2, 2, 8, 3>(Product<double, 128, 64>(a, b, c, m, n, k, transA, transB));
}
