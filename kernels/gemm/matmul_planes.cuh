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
// power is 2^e, e in [-126, 127].
__device__ __forceinline__ float power(int e) { return __uint_as_float((u32)(e + 127) << 23); }

// Scaling records how float32 operands were brought into range. In memory, BLOCKS flags follow it, one per block (see found), then the
// exponents.
struct Scaling {
    // SCALED planes are scaled against one another. Planes APART are as in PLAIN ones, but the first planes alone have what IEEE arithmetic
    // makes of infinities and NaN, among the numbers or where sums overflow.
    enum Form { PLAIN, SCALED, APART };
    static constexpr int BLOCKS = 1024; // most blocks
    int form;
    int rewritten; // bit by operand: its planes were written again
    int lines;     // the operand whose lines, rows of A or columns of B, were multiplied by a power of 2 each; or -1 - e, if all sums have to be divided by 2^e
    int blocks;    // if not 0: number of flags; the form is APART only if one is set, because a block found a line whose sums may overflow
    // unit is the factor of all sums.
    __device__ __forceinline__ float unit() const { return lines < 0 ? power(lines + 1) : 1; }
    // again reports whether an operand's planes were written again.
    __device__ __forceinline__ bool again(int operand) const { return rewritten >> operand & 1; }
    __device__ __forceinline__ int* found() { return reinterpret_cast<int*>(this + 1); }
    __device__ __forceinline__ const int* found() const { return reinterpret_cast<const int*>(this + 1); }
    // exponents are those of the powers of 2 that the sums of each line have to be divided by.
    __device__ __forceinline__ int* exponents() { return found() + BLOCKS; }
    __device__ __forceinline__ const int* exponents() const { return found() + BLOCKS; }
    // settle returns the form, of which all lanes of a warp then know what blocks have found. memory is where it is.
    __device__ __forceinline__ int settle(const Scaling* memory) const {
        if (blocks == 0) return form;
        bool any = false;
        for (int i = threadIdx.x % 32; i < blocks; i += 32) any |= memory->found()[i] != 0;
        return __any_sync(0xffffffff, any) ? APART : PLAIN;
    }
};

// Exponents are those that sums have to be divided by, seen from a warp's first element of C.
struct Exponents {
    const int* of = nullptr; // null if there are none
    int lines, first, last;
    __device__ __forceinline__ Exponents() {}
    __device__ __forceinline__ Exponents(const Scaling& range, const Scaling* memory, int matrix, int m, int n, int row0, int col0) : lines(range.lines) {
        if (lines < 0) return;
        const int count = lines == 0 ? m : n;
        of = memory->exponents() + (i64)matrix * count;
        first = lines == 0 ? row0 : col0;
        last = count - 1;
    }
    // divide divides a warp's 16 x 32 sums in shared memory, which are those from a row and a column on.
    template <int LD> __device__ __forceinline__ void divide(float* sums, int row, int col) const {
        if (!of) return;
        const int lane = threadIdx.x % 32, e = -of[min(first + (lines == 0 ? row + lane % 16 : col + lane), last)], more = min(max(e, -126), 127);
        const float x = power(e - more), y = power(more); // in this order, so that a denormal result is rounded once
#pragma unroll 4
        for (int r = 0; r < 16; r++) {
            const int from = lines == 0 ? r : lane;
            sums[r * LD + lane] = sums[r * LD + lane] * __shfl_sync(0xffffffff, x, from) * __shfl_sync(0xffffffff, y, from);
        }
        __syncwarp();
    }
};

// Matrix is a batch of matrices of rows x cols float32 elements, rows ld apart, and the place of
// their planes: rows of pitch elements, a multiple of 8.
struct Matrix {
    const float* x;
    u16* to;
    int rows, cols, pitch, batch;
    i64 ld, stride;
    __device__ __forceinline__ i64 plane() const { return (i64)rows * pitch; }
    // wide reports whether rows start at multiples of 16 bytes.
    __device__ __forceinline__ bool wide() const { return ld % 4 == 0 && stride % 4 == 0 && reinterpret_cast<u64>(x) % 16 == 0; }
};

// slots is 64 bytes of shared memory that parts of a kernel use one after the other.
__device__ __forceinline__ uint2* slots() {
    __shared__ uint2 memory[8];
    return memory;
}

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
    __device__ __forceinline__ void join(u32 more, u32 less) { most = max(most, more), least = min(least, less); }
    // exchange joins the magnitudes of a pair of lanes.
    __device__ __forceinline__ void exchange(int d) { join(__shfl_xor_sync(0xffffffff, most, d), __shfl_xor_sync(0xffffffff, least, d)); }
    // join makes it the range of all threads of the block.
    __device__ void join() {
        uint2* const warps = slots();
        for (int d = 16; d > 0; d /= 2) exchange(d);
        finite = __all_sync(0xffffffff, finite);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = packed();
        __syncthreads();
        for (int w = 0; w < blockDim.x / 32; w++) add(warps[w]);
        __syncthreads(); // for the next join
    }
    // low and high are the exponents of the least and the largest magnitude, of denormal numbers too. Of no numbers
    // they are 128 and -150.
    __device__ int low() const { return log(least); }
    __device__ int high() const { return log(most); }
    static __device__ int log(u32 bits) { return bits >> 23 ? (int)(bits >> 23) - 127 : -118 - __clz(bits); }
};

// SHIFT is the exponent of the power of 2 that split multiplies all numbers by. Subnormal numbers are multiples of 2^-149, which planes hold from 2^-133 on. Sums are
// then so large that nothing that they lose is as large as the least number.
constexpr int SHIFT = 16;

// Scales is how operands are brought into range, in a way that takes nothing from numbers that have others beside them. Nothing is written
// again if planes hold all numbers, no product of two is so small that sums lose bits as denormal numbers, and no sum overflows. Else the
// lines of one operand are multiplied by a power of 2 each, so that the largest products come near 2^98. That makes numbers smaller
// only as far as no product is lost. The other operand is multiplied by a power of 2 if planes can't hold its least numbers.
struct Scales {
    static constexpr int EXACT = -109;   // log2 of the min magnitude of numbers that splits represent
    static constexpr int LEAST = -120;   // log2 of the min magnitude of products that sums represent
    static constexpr int LARGEST = 98;   // exponent of products whose sums don't overflow
    static constexpr u32 HUGE_ = 0x7f7f8000; // numbers that would become infinite in BF16
    int form = Scaling::PLAIN, rewritten = 0, lines;
    int target = 0; // exponent that the largest number of a line comes to
    int floor = 0;  // and that no number comes below where a line is made smaller
    int other = 0;  // of the other operand's power of 2
    float scale = 1; // of planes
    bool whole;
    bool open = false; // whether it depends on lines if sums may overflow
    bool care = false; // see write

    // apart: products can keep the first planes apart. Of two operands whose lines would serve, those of preferred are multiplied. Planes have the numbers times 2^shift.
    __device__ Scales(const Range (&r)[2], bool apart, int preferred, int shiftA = 0, int shiftB = 0) : lines(-1 - shiftA - shiftB) {
        whole = !r[0].finite || !r[1].finite;
        const int special = apart ? Scaling::APART : Scaling::SCALED;
        if (whole) form = special;
        const bool hard[] = {hardly(r[0], shiftA), hardly(r[1], shiftB)};
        const int both = shiftA + shiftB;
        if (form != Scaling::SCALED && !hard[0] && !hard[1] && (both > 0 || r[0].low() + r[1].low() >= LEAST) && r[0].high() + r[1].high() + both <= LARGEST) return;
        Range line, o;
        int shift;
        const auto choose = [&](bool hardA, bool hardB) {
            lines = hardA == hardB ? preferred : (int)hardB;
            line = lines == 0 ? r[0] : r[1], o = lines == 0 ? r[1] : r[0], shift = lines == 0 ? shiftB : shiftA;
        };
        choose(hard[0], hard[1]);
        other = shift;
        // The other operand's planes stay if its numbers times 2^shift do, and if a line of all numbers would not be limited by the floor.
        if (shift == 0 || o.high() + shift > 100 || LARGEST - o.high() - shift - line.high() < min(max(EXACT, LEAST - o.low() - shift) - line.low(), 0)) {
            choose(hardly(r[0], 0), hardly(r[1], 0));
            other = max(EXACT - o.low(), 0);
        }
        target = min(LARGEST - o.high() - other, 100);
        if (other > 0 && o.high() + other > 100 || line.low() + max(target - line.high(), 0) < EXACT) {
            form = Scaling::SCALED;
            other = 0;
            target = min(LARGEST - o.high(), 100);
        }
        floor = max(EXACT, LEAST - o.low() - other);
        if (form == Scaling::PLAIN && target - line.high() < min(floor - line.low(), 0)) form = special, open = apart;
        rewritten = 1 << lines | (hardly(o, shift) || other != shift || form == Scaling::SCALED) << (1 - lines);
        if (form == Scaling::SCALED) scale = 256;
        care = r[0].most >= HUGE_ || r[1].most >= HUGE_ || whole && form == Scaling::SCALED;
    }
    static __device__ bool hardly(const Range& r, int shift) { return shift == 0 && r.low() < EXACT || r.most >= HUGE_ - (shift << 23); }
    // exponent is that of the power of 2 for a line, whose sums may overflow if high.
    __device__ int exponent(u32 most, u32 least, bool& high) const {
        const int wanted = min(target - Range::log(most), 200), e = wanted >= 0 ? wanted : min(max(wanted, floor - Range::log(least)), 0);
        high = e > wanted;
        return e;
    }
};

// Octet is 8 elements of a row and their place.
struct Octet {
    u32 matrix, row;
    int col;
    float v[8];
    // load reads the elements. Those beyond the last column are 0.
    __device__ __forceinline__ void load(const Matrix& a) {
        const float* x = a.x + matrix * a.stride + row * a.ld + col;
        if (a.wide() && col + 8 <= a.cols) {
            *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(x);
            *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(x + 4);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = col + j < a.cols ? x[j] : 0;
        }
    }
    // place is where its first plane is; the others are a.plane() apart.
    __device__ __forceinline__ u16* place(const Matrix& a) const { return a.to + matrix * 3 * a.plane() + (i64)row * a.pitch + col; }
};

// write writes the planes of 8 numbers, x = p[0] + p[1] / scale + p[2] / scale^2. That is exact for scale = 2^8 and any finite x, and for
// scale = 1 and |x| >= 2^-109. With care a finite x has no infinite plane, and p[0] is 0 only if x is, since the other
// operand may have infinities to multiply it by. Of infinities and NaN, planes after the first are NaN.
__device__ __forceinline__ void write(float (&v)[8], float scale, bool care, u16* to, i64 plane) {
#pragma unroll
    for (int q = 0; q < 3; q++) {
        u32 w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            w[j] = bf16x2(v[2 * j], v[2 * j + 1]);
            if (q == 0 && care) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const u32 p = w[j] >> 16 * h & 0x7fff;
                    const float size = fabsf(v[2 * j + h]);
                    if (p == 0x7f80 && size <= 3.4028234664e38f) w[j] -= 1 << 16 * h;
                    if (p == 0 && size > 0) w[j] += 1 << 16 * h;
                }
            }
            v[2 * j] = (v[2 * j] - __uint_as_float(w[j] << 16)) * scale;
            v[2 * j + 1] = (v[2 * j + 1] - __uint_as_float(w[j] & 0xffff0000)) * scale;
        }
        *reinterpret_cast<uint4*>(to + q * plane) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

// split writes block number block's share of the planes of a matrix, each thread 8 elements at a time with AHEAD
// such loads under way, and returns the range of the elements that it has read. A matrix has fewer than 2^31
// vectors of 8 elements. The planes, of the numbers times 2^SHIFT, are right for numbers that are not huge.
template <int AHEAD> __device__ __forceinline__ Range split(const Matrix& a, u32 block, u32 blocks) {
    const u32 vectors = a.pitch / 8, count = a.batch * a.rows * vectors, stride = blocks * blockDim.x;
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
            o[u].load(a);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (u > 0 && i + u * stride >= count) continue;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                range.add(o[u].v[j]);
                o[u].v[j] *= 1 << SHIFT;
            }
            write(o[u].v, 1, false, o[u].place(a), a.plane());
        }
    }
    return range;
}
