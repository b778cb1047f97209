// float32 operands as three planes of BF16 each, for matmul_hopper.cu: how a number is taken
// apart, and the ranges of numbers that decide how.
#pragma once
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// bf16x2 is two numbers rounded to BF16, the first in the lower half.
__device__ __forceinline__ u32 bf16x2(float low, float high) {
    u32 v = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
#endif
    return v;
}
// power is 2^e, e in [-252, 127]; below 2^-126 it is 0 or nearly so.
__device__ __forceinline__ float power(int e) { return __uint_as_float((u32)(max(e, -126) + 127) << 23); }

// Scaling records how float32 operands were brought into range: each was multiplied by a power of 2, and their planes have a form.
struct Scaling {
    // SCALED planes are scaled against one another. Planes APART are as in PLAIN ones, with infinities or NaN among the numbers: the
    // first planes alone have what IEEE arithmetic makes of those.
    enum Form { PLAIN, SCALED, APART };
    int exponents[2];
    int form;
    // again reports whether an operand's planes were written again.
    __device__ __forceinline__ bool again(int operand) const { return (operand ? exponents[1] : exponents[0]) != 0 || form == SCALED; }
};

// bf16 is x rounded to BF16; a finite x stays finite.
__device__ __forceinline__ float bf16(float x) {
    const u32 bits = __float_as_uint(x), round = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return __uint_as_float(bits | 0x7fff0000); // NaN
    if (size >= 0x7f7f8000 && size < 0x7f800000) return __uint_as_float(bits & 0xffff0000);
    return __uint_as_float(round);
}

// Planar is the form in which a matrix is written: times 2^e, x = p[0] + p[1] / scale + p[2] / scale^2. That is
// exact for scale = 2^8 and any finite x, and for scale = 1 and |x| >= 2^-109. With whole, p[0] is 0 only if x is,
// since the other operand has infinities to multiply it by.
struct Planar {
    int e;
    float scale;
    bool whole;
    __device__ __forceinline__ void planes(float x, float (&p)[3]) const {
        p[0] = bf16(x);
        p[1] = p[2] = 0;
        if ((__float_as_uint(x) & 0x7f800000) == 0x7f800000) return;
        if (whole && p[0] == 0 && x != 0) p[0] = copysignf(__uint_as_float(0x10000), x);
        const float r = (x - p[0]) * scale;
        p[1] = bf16(r);
        p[2] = bf16((r - p[1]) * scale);
    }
};

// Matrix is a batch of matrices of rows x cols float32 elements, rows ld apart, and the place of
// their planes: rows of pitch elements, a multiple of 8.
struct Matrix {
    const float* x;
    u16* to;
    int rows, cols, pitch, batch;
    i64 ld, stride;
};

// Range is the largest and the least magnitude of the finite numbers other than 0, as bits, and whether
// all numbers are finite.
struct Range {
    u32 most = 0, least = 0x7f800000;
    bool finite = true;
    __device__ __forceinline__ void add(float x) {
        const u32 size = __float_as_uint(x) & 0x7fffffff;
        if (size >= 0x7f800000) {
            finite = false;
        } else if (size > 0) {
            most = max(most, size);
            least = min(least, size);
        }
    }
    // packed is the range as it lies in memory: with the largest magnitude, in the sign's bit, whether a number
    // is not finite.
    __device__ __forceinline__ uint2 packed() const { return make_uint2(most | (finite ? 0 : 0x80000000), least); }
    __device__ __forceinline__ void add(uint2 r) {
        most = max(most, r.x & 0x7fffffff);
        least = min(least, r.y);
        finite &= r.x < 0x80000000;
    }
    // join makes it the range of all threads of the block.
    __device__ void join() {
        __shared__ uint2 warps[8];
        for (int d = 16; d > 0; d /= 2) {
            most = max(most, __shfl_xor_sync(0xffffffff, most, d));
            least = min(least, __shfl_xor_sync(0xffffffff, least, d));
        }
        finite = __all_sync(0xffffffff, finite);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = packed();
        __syncthreads();
        for (int w = 0; w < blockDim.x / 32; w++) add(warps[w]);
        __syncthreads(); // for the next join
    }
    // exponent finds a power of 2 that, as a factor, brings all numbers between 2^floor and 2^50, and the
    // largest to at least 2^-30, so that sums of products don't overflow or lose bits as denormal
    // numbers. It reports whether there is one; if not, e is 0.
    __device__ bool exponent(int floor, int& e) const {
        e = 0;
        if (most == 0 || low() >= floor && high() >= -30 && high() < 50) return true;
        if (low() + 49 - high() < floor) return false;
        e = 49 - high();
        return true;
    }
    // beside lowers the exponent of small numbers so that products with the other operand's, up to 2^hi, don't overflow.
    __device__ void beside(int hi, int& e) const {
        if (e > 0) e = max(min(e, 98 - hi - high()), 0);
    }
    // low and high are the exponents of the least and the largest magnitude, of denormal numbers too.
    __device__ int low() const { return log(least); }
    __device__ int high() const { return log(most); }
    static __device__ int log(u32 bits) { return bits >> 23 ? (int)(bits >> 23) - 127 : -118 - __clz(bits); }
};

// Octet is 8 elements of a row and their place.
struct Octet {
    u32 matrix, row;
    int col;
    float v[8];
};

// split writes block number block's share of the planes of a matrix, each thread 8 elements at a time with AHEAD
// such loads under way, and returns the range of the elements that it has read. A matrix has fewer than 2^31
// vectors of 8 elements. Without as, the planes are right for numbers that are neither tiny nor huge, and take
// half the time.
template <int AHEAD> __device__ __forceinline__ Range split(const Matrix& a, const Planar* as, u32 block, u32 blocks) {
    const u32 vectors = a.pitch / 8, count = a.batch * a.rows * vectors, stride = blocks * blockDim.x;
    const i64 plane = (i64)a.rows * a.pitch;
    const bool wide = a.ld % 4 == 0 && a.stride % 4 == 0 && reinterpret_cast<u64>(a.x) % 16 == 0;
    Range range;
#pragma unroll 1
    for (u32 i = block * blockDim.x + threadIdx.x; i < count; i += AHEAD * stride) {
        Octet o[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (u > 0 && i + u * stride >= count) continue;
            const u32 line = (i + u * stride) / vectors;
            o[u].matrix = a.batch > 1 ? line / a.rows : 0;
            o[u].row = line - o[u].matrix * a.rows;
            o[u].col = (i + u * stride - line * vectors) * 8;
            const float* x = a.x + o[u].matrix * a.stride + o[u].row * a.ld + o[u].col;
            if (wide && o[u].col + 8 <= a.cols) {
                *reinterpret_cast<float4*>(o[u].v) = *reinterpret_cast<const float4*>(x);
                *reinterpret_cast<float4*>(o[u].v + 4) = *reinterpret_cast<const float4*>(x + 4);
            } else {
#pragma unroll
                for (int j = 0; j < 8; j++) o[u].v[j] = o[u].col + j < a.cols ? x[j] : 0;
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (u > 0 && i + u * stride >= count) continue;
            float(&v)[8] = o[u].v;
            u16* to = a.to + o[u].matrix * 3 * plane + (i64)o[u].row * a.pitch + o[u].col;
            if (!as) {
#pragma unroll
                for (int j = 0; j < 8; j++) range.add(v[j]);
#pragma unroll
                for (int q = 0; q < 3; q++) {
                    u32 w[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        w[j] = bf16x2(v[2 * j], v[2 * j + 1]);
                        v[2 * j] -= __uint_as_float(w[j] << 16);
                        v[2 * j + 1] -= __uint_as_float(w[j] & 0xffff0000);
                    }
                    *reinterpret_cast<uint4*>(to + q * plane) = make_uint4(w[0], w[1], w[2], w[3]);
                }
            } else {
                const float f = power(as->e / 2), g = power(as->e - as->e / 2);
                float p[8][3];
#pragma unroll
                for (int j = 0; j < 8; j++) as->planes(v[j] * f * g, p[j]);
#pragma unroll
                for (int q = 0; q < 3; q++) {
                    u32 w[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) w[j] = __byte_perm(__float_as_uint(p[2 * j][q]), __float_as_uint(p[2 * j + 1][q]), 0x7632);
                    *reinterpret_cast<uint4*>(to + q * plane) = make_uint4(w[0], w[1], w[2], w[3]);
                }
            }
        }
    }
    return range;
}
