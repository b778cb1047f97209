// C = op(A) op(B) on the tensor cores of compute capability 8.0 and later, by mma.sync fed by asynchronous copies: for devices
// that matmul_hopper.cu has no code for. The same three kinds of products, of the same operands:
//
//   bf16  BF16 operands, float32 sums; f16 the same in F16
//   tf32  float32 operands rounded to 11 bits, float32 sums; both matrices with
//         their elements along k side by side
//   f32   float32 operands as three BF16 planes each (split), six products
//
// Results are float32, or BF16 for bf16, F16 for f16.
//
// A block computes a tile of C, each warp 64 rows of it. It walks along k by panels of 64 bytes, STAGES - 1 of them on their way to shared memory
// while another is multiplied. Sums go to C, with an epilogue (epilogue.cuh), by way of shared memory, in whole lines.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
//stheno:tests sm_90a
#include "matmul_planes.cuh"
#include "matmul_sliced.cuh"
#include "matmul_halves.cuh"
#include "matmul_f16.cuh"

// Shape holds a matmul kernel's arguments except its operands.
struct Shape {
    int m, n, k;
    int batch;
    int chunk; // terms of a split of k, a multiple of 64
    i64 ld;    // of C, whose matrices lie m * ld apart; each split's sums, batch * m * ld
    const Scaling* range; // of float32 operands, or null
    u16* half;            // where C is written in 16 bits, or null
    int halves;           // see matmul_halves.cuh
};

// Block is the shape of a block's work: WARPS warps across a tile of 128 x BN, two down.
template <int SIZE_, int PLANES_, int TA, int TB, int BN_, int WARPS, int STAGES_> struct Block {
    static constexpr int SIZE = SIZE_, PLANES = PLANES_, BM = 128, BN = BN_, STAGES = STAGES_, THREADS = WARPS * 64, MT = 4, NT = BN / WARPS / 8;
    static constexpr bool F16 = false;
    using A = Panel<BM, SIZE, PLANES, TA, THREADS>;
    using B = Panel<BN, SIZE, PLANES, TB, THREADS>;
    static constexpr int BK = A::BK, STAGE = A::BYTES + B::BYTES;
    static constexpr int LD = NT * 8 + 8; // row pitch of a warp's sums in shared memory; four rows of 8 sums cover all banks
    static_assert(WARPS * 2 * 16 * LD * 4 <= STAGES * STAGE, "sums have a place");
};

// Stream copies a block's panels to shared memory in order of K.
template <typename K> struct Stream {
    typename K::A a;
    typename K::B b;
    u32 memory;
    int stage, left; // stage being multiplied; K elements whose copies are not yet issued
    u32 placeA, placeB;

    __device__ __forceinline__ void fetch(int stage) {
        if (left > 0) {
            a.fetch(memory + stage * K::STAGE, left);
            b.fetch(memory + stage * K::STAGE + K::A::BYTES, left);
            left -= K::BK;
        }
        commit();
    }
    __device__ __forceinline__ void start() {
        stage = 0;
#pragma unroll
        for (int i = 0; i < K::STAGES - 1; i++) fetch(i);
    }
    // ready waits until the current stage has been copied and all threads have finished reading the previous stage. fill then issues the
    // copies of the next panels into the previous stage's buffer.
    __device__ __forceinline__ void ready() {
        arrived<K::STAGES - 2>();
        __syncthreads();
    }
    __device__ __forceinline__ void fill() { fetch(stage == 0 ? K::STAGES - 1 : stage - 1); }
    __device__ __forceinline__ void next() { stage = stage == K::STAGES - 1 ? 0 : stage + 1; }
    __device__ __forceinline__ u32 panels() const { return memory + stage * K::STAGE; }
};

// Plain is a b, added up by the tensor cores. A warp loads what it multiplies next while it multiplies. Elements of 2 bytes are BF16 or, with F16, F16.
template <int SIZE, int TA, int TB, int BN, int WARPS, int STAGES, bool F16_ = false> struct Plain : Block<SIZE, 1, TA, TB, BN, WARPS, STAGES> {
    static constexpr bool F16 = F16_;
    using K = Block<SIZE, 1, TA, TB, BN, WARPS, STAGES>;
    float sum[K::MT][K::NT][4];

    struct Fragments {
        u32 a[K::MT][4], b[K::NT / 2][4];
        __device__ __forceinline__ void load(const Stream<K>& s, int l) {
#pragma unroll
            for (int j = 0; j < K::NT / 2; j++) K::B::load(b[j], s.panels() + K::A::BYTES, s.placeB, 0, j, l);
#pragma unroll
            for (int i = 0; i < K::MT; i++) K::A::load(a[i], s.panels(), s.placeA, 0, i, l);
        }
    };
    __device__ __forceinline__ void multiply(const Fragments& f) {
#pragma unroll
        for (int i = 0; i < K::MT; i++)
#pragma unroll
            for (int j = 0; j < K::NT; j++) mma_of<SIZE, F16>(sum[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
    }
    __device__ __forceinline__ void run(Stream<K>& s, int terms, bool) {
#pragma unroll
        for (int i = 0; i < K::MT * K::NT * 4; i++) sum[i / (K::NT * 4)][i / 4 % K::NT][i % 4] = 0;
        Fragments f[2];
        s.ready();
        f[0].load(s, 0);
#pragma unroll 1
        for (int l = 0; l < terms; l += K::BK) {
            s.fill();
            f[1].load(s, 1);
            multiply(f[0]);
            s.next();
            s.ready();
            f[0].load(s, 0); // after the last stage, of anything
            multiply(f[1]);
        }
    }
};

// Six is a b for float32 in three planes, as in matmul_kinds.cuh: the six largest products of planes, those of 32 terms added up
// by the tensor cores, the low ones first; additions that round do the rest, and what they cut off joins the next terms. With scaled, planes are
// scaled against one another, and low products have sums of their own.
template <int TA, int TB> struct Six : Block<2, 3, TA, TB, 128, 4, 2> {
    using K = Block<2, 3, TA, TB, 128, 4, 2>;
    static constexpr int NT = K::NT;
    float sum[K::MT][NT][4], rest[K::MT][NT][4]; // rest: what additions have cut off; of scaled planes, sums of low products

    struct Fragments {
        u32 a[3][2][4], b[3][2][NT / 2][4]; // by plane and 16 terms
        // multiply is d += plane p of a * plane q of b.
        __device__ __forceinline__ void multiply(float (&d)[NT][4], int p, int q) const {
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int j = 0; j < NT; j++) mma<2>(d[j], a[p][l], b[q][l][j / 2][j % 2 * 2], b[q][l][j / 2][j % 2 * 2 + 1]);
        }
    };
    // plus is sum += x; x becomes what rounding has cut off.
    static __device__ __forceinline__ void plus(float& sum, float& x) {
        const float s = __fadd_rn(sum, x);
        x = __fsub_rn(x, __fsub_rn(s, sum));
        sum = s;
    }
    __device__ __forceinline__ void step(const Stream<K>& s, bool scaled) {
        Fragments f;
        const u32 memory = s.panels();
#pragma unroll
        for (int q = 0; q < 3; q++)
#pragma unroll
            for (int e = 0; e < NT; e++) K::B::load(f.b[q][e % 2][e / 2], memory + K::A::BYTES, s.placeB, q, e / 2, e % 2);
#pragma unroll
        for (int i = 0; i < K::MT; i++) {
#pragma unroll
            for (int e = 0; e < 6; e++) K::A::load(f.a[e / 2][e % 2], memory, s.placeA, e / 2, i, e % 2);
            if (!scaled) {
                f.multiply(rest[i], 2, 0);
                f.multiply(rest[i], 1, 1);
                f.multiply(rest[i], 0, 2);
                f.multiply(rest[i], 1, 0);
                f.multiply(rest[i], 0, 1);
                f.multiply(rest[i], 0, 0);
#pragma unroll
                for (int e = 0; e < NT * 4; e++) plus(sum[i][e / 4][e % 4], rest[i][e / 4][e % 4]);
                continue;
            }
            float part[NT][4] = {}, high[NT][4] = {};
            f.multiply(part, 2, 0);
            f.multiply(part, 1, 1);
            f.multiply(part, 0, 2);
            f.multiply(rest[i], 0, 1);
            f.multiply(rest[i], 1, 0);
            f.multiply(high, 0, 0);
#pragma unroll
            for (int e = 0; e < NT * 4; e++) {
                float& low = rest[i][e / 4][e % 4];
                plus(sum[i][e / 4][e % 4], high[e / 4][e % 4]);
                low = fmaf(high[e / 4][e % 4], 256, fmaf(part[e / 4][e % 4], 1.0f / 256, low));
            }
        }
    }
    __device__ __forceinline__ void run(Stream<K>& s, int terms, bool scaled) {
#pragma unroll
        for (int i = 0; i < K::MT * NT * 4; i++) sum[i / (NT * 4)][i / 4 % NT][i % 4] = rest[i / (NT * 4)][i / 4 % NT][i % 4] = 0;
#pragma unroll 1
        for (int l = 0; l < terms; l += K::BK) {
            s.ready();
            s.fill();
            step(s, scaled);
            s.next();
        }
#pragma unroll
        for (int i = 0; i < K::MT; i++)
#pragma unroll
            for (int e = 0; e < NT * 4; e++) {
                float& s = sum[i][e / 4][e % 4];
                if (!scaled) s += rest[i][e / 4][e % 4];
                else if (fabsf(s) <= 3.4028234664e38f) s = fmaf(rest[i][e / 4][e % 4], 1.0f / 256, s);
            }
    }
};

// load_operand reads four neighbours of an operand of an epilogue, in float32 or 16 bits; those that do not exist become 0 or keep their values.
template <bool F16> __device__ __forceinline__ void load_operand(const Operand<float>& o, bool half, float* to, int row, int col, int inside) {
    if (!half) return o.load<4>(to, row, col, inside);
    const u16* const p = reinterpret_cast<const u16*>(from(o, true, 0, row, col).x);
    load_halves<F16>(to, p, o.col, inside, o.col == 1 && reinterpret_cast<u64>(p) % 8 == 0);
}

// store writes a warp's 64 rows of NT * 8 columns, divided as by says, 16 rows at a time by way of shared memory. target is the place of the first element.
template <typename K> __device__ __forceinline__ void store(const float (&sum)[K::MT][K::NT][4], const Exponents& by, const Target<float>& target, u16* half, int halves, float* memory) {
    const int lane = threadIdx.x % 32;
    constexpr int LANES = K::NT * 2, STEP = 32 / LANES; // of a row
    const int row0 = lane / LANES, col = lane % LANES * 4;
#pragma unroll 1
    for (int part = 0; part < K::MT; part++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < K::MT; i++) {
            if (i != part) continue;
#pragma unroll
            for (int e = 0; e < K::NT * 2; e++) // in this form the compiler selects no sums, but branches
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"((u32)__cvta_generic_to_shared(memory + (lane / 4 + e % 2 * 8) * K::LD + e / 2 * 8 + lane % 4 * 2)),
                             "f"(sum[i][e / 2][e % 2 * 2]), "f"(sum[i][e / 2][e % 2 * 2 + 1]) : "memory");
        }
        __syncwarp();
        if (K::PLANES == 3) by.divide<K::LD>(memory, part * 16, 0);
        if (!target.wide && target.epilogue.steps == 0 && !halves) { // rows that begin anywhere: single elements, side by side
#pragma unroll 4
            for (int r = 0; r < 16; r++)
                for (int c = lane; c < K::NT * 8; c += 32)
                    if (part * 16 + r < target.rows && c < target.cols) target.c[(part * 16 + r) * target.down + c] = memory[r * K::LD + c];
            continue;
        }
#pragma unroll 1
        for (int r = row0; r < 16; r += 2 * STEP) {
            const int rows[] = {part * 16 + r, part * 16 + r + STEP}, cols[] = {col, col};
            Pack<float> v[2];
#pragma unroll
            for (int u = 0; u < 2; u++) v[u].v = *reinterpret_cast<const float4*>(memory + (r + u * STEP) * K::LD + col);
            if (!halves) {
                if (target.epilogue.steps != 0) {
                    target.finish(rows, cols, v);
                } else {
#pragma unroll
                    for (int u = 0; u < 2; u++) target.put(rows[u], cols[u], v[u]);
                }
                continue;
            }
            float w[8], x[8] = {}, y[8] = {};
#pragma unroll
            for (int u = 0; u < 2; u++) {
                const int inside = rows[u] < target.rows ? target.cols - cols[u] : 0;
                if (target.epilogue.steps >= 1 << 16) load_operand<K::F16>(target.epilogue.x, halves & HALF_X, x + 4 * u, rows[u], cols[u], inside);
                if (target.epilogue.steps >= 2 << 16) load_operand<K::F16>(target.epilogue.y, halves & HALF_Y, y + 4 * u, rows[u], cols[u], inside);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = v[i / 4].s[i % 4];
            finish(target.epilogue.steps & 0xffff, w, x, y);
#pragma unroll
            for (int u = 0; u < 2; u++) {
#pragma unroll
                for (int e = 0; e < 4; e++) v[u].s[e] = w[4 * u + e];
                if (!(halves & HALF_ALONE)) target.put(rows[u], cols[u], v[u]);
                if (half && rows[u] < target.rows && cols[u] < target.cols)
                    *reinterpret_cast<uint2*>(half + rows[u] * target.down + cols[u]) = make_uint2(packed<K::F16>(v[u].s[0], v[u].s[1]), packed<K::F16>(v[u].s[2], v[u].s[3]));
            }
        }
    }
}

template <typename K> __device__ __forceinline__ void product(const void* a, const void* b, const void* againA, const void* againB, float* c, const Shape& s, const Epilogue<float>& epilogue) {
    const Place at = Place::of<K::BM, K::BN, 0>(s.m, s.n, s.batch, (s.k + s.chunk - 1) / s.chunk);
    const int k0 = at.split * s.chunk, terms = min(s.k - k0, s.chunk), warp = threadIdx.x / 32;
    const int row = warp % 2 * 64, col = warp / 2 * (K::NT * 8);
    Stream<typename K::K> stream;
    stream.memory = (u32)__cvta_generic_to_shared(dynamic);
    stream.placeA = K::A::template place<true>(row);
    stream.placeB = K::B::template place<false>(col);
    follow();
    Scaling range{};
    if (K::PLANES == 3) range = *s.range;
    stream.a.start(range.again(0) ? againA : a, at.matrix, s.m, s.k, (int)at.m0, k0);
    stream.b.start(range.again(1) ? againB : b, at.matrix, s.n, s.k, (int)at.n0, k0);
    stream.left = terms;
    stream.start();
    K sums;
    sums.run(stream, terms, range.form == Scaling::SCALED);
    if (K::PLANES == 3) {
        const float unit = range.unit();
#pragma unroll
        for (int i = 0; i < K::MT * K::NT * 4; i++) sums.sum[i / (K::NT * 4)][i / 4 % K::NT][i % 4] *= unit;
    }
    admit();
    arrived<0>();
    __syncthreads();

    Target<float> target;
    const i64 place = ((i64)at.split * s.batch + at.matrix) * s.m * s.ld + (at.m0 + row) * s.ld + at.n0 + col;
    target.c = c + place;
    target.across = 1;
    target.down = s.ld;
    target.rows = (int)(s.m - at.m0) - row;
    target.cols = (int)(s.n - at.n0) - col;
    target.wide = s.ld % 4 == 0 && s.n % 4 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
    target.epilogue = from(epilogue, s.halves, at.matrix, at.m0 + row, at.n0 + col);
    const Exponents by = K::PLANES == 3 ? Exponents(range, s.range, at.matrix, s.m, s.n, (int)at.m0 + row, (int)at.n0 + col) : Exponents();
    store<K>(sums.sum, by, target, s.half ? s.half + place : nullptr, s.halves, reinterpret_cast<float*>(dynamic) + warp * 16 * K::LD);
}

// On older devices, without these instructions, the entry points are empty. Entry points for split operands are also empty on devices
// where FMA is faster.
#if __CUDA_ARCH__ >= 800
#define BODY_OF_Plain(...) __VA_ARGS__
#else
#define BODY_OF_Plain(...)
#endif
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
#define BODY_OF_Six(...) __VA_ARGS__
#else
#define BODY_OF_Six(...)
#endif
// Entry points for split operands get the Scaling of the operands and the addresses of their rescaled splits. Entry points for rounded
// operands get the address of the result in 16 bits, and what is in 16 bits.
#define AGAIN_OF_Six const void *againA, const void *againB,
#define AGAIN_OF_Plain
#define RANGE_OF_Six const Scaling *range,
#define RANGE_OF_Plain
#define HALVES_OF_Six
#define HALVES_OF_Plain , u16 *half, const int halves
#define SHAPE_OF_Six againA, againB, c, Shape{m, n, k, batch, chunk, ld, range, nullptr, 0}
#define SHAPE_OF_Plain nullptr, nullptr, c, Shape{m, n, k, batch, chunk, ld, nullptr, halves & (HALF_ALSO | HALF_ALONE) ? half : nullptr, halves}
#define ENTRY(name, KIND, THREADS, BLOCKS, ...)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) matmul_mma_##name(                                                                \
        const void *a, const void *b, AGAIN_OF_##KIND float *c, RANGE_OF_##KIND const int m, const int n, const int k, const int batch, const int chunk, \
        const i64 ld, EPILOGUE_ARGUMENTS(float) HALVES_OF_##KIND) {                                                                                  \
        BODY_OF_##KIND(product<KIND<__VA_ARGS__>>(a, b, SHAPE_OF_##KIND, EPILOGUE(float));)                                                                    \
    }
#define TRANSPOSES(name, KIND, THREADS, BLOCKS, SIZE, ...)            \
    ENTRY(name##_nn, KIND, THREADS, BLOCKS, SIZE 0, 1 __VA_ARGS__)    \
    ENTRY(name##_nt, KIND, THREADS, BLOCKS, SIZE 0, 0 __VA_ARGS__)    \
    ENTRY(name##_tn, KIND, THREADS, BLOCKS, SIZE 1, 1 __VA_ARGS__)    \
    ENTRY(name##_tt, KIND, THREADS, BLOCKS, SIZE 1, 0 __VA_ARGS__)
#define HALF 2,
TRANSPOSES(f32, Six, 256, 1, )
TRANSPOSES(bf16_one, Plain, 128, 2, HALF, , 128, 2, 3)
TRANSPOSES(bf16, Plain, 256, 1, HALF, , 256, 4, 4)
TRANSPOSES(f16_one, Plain, 128, 2, HALF, , 128, 2, 3, true)
TRANSPOSES(f16, Plain, 256, 1, HALF, , 256, 4, 4, true)
ENTRY(tf32_one_nt, Plain, 128, 2, 4, 0, 0, 128, 2, 3)
ENTRY(tf32_nt, Plain, 256, 1, 4, 0, 0, 256, 4, 4)

// matmul_mma_round_tf32 writes matrices of rows x cols elements, rounded to TF32, to nearest and ties to even, to rows of pitch elements,
// transposed with trans; what is between rows becomes zeros. A block moves squares. Each launch does one or both operands of a
// product, blocks (x, 0) the one, blocks (x, 1) the other.
extern "C" __global__ void __launch_bounds__(256) matmul_mma_round_tf32(const float* a, u32* toA, const int rowsA, const int colsA, const int pitchA, const int transA,
                                                                        const float* b, u32* toB, const int rowsB, const int colsB, const int pitchB, const int transB,
                                                                        const int batch) {
    follow();
#if __CUDA_ARCH__ >= 800
    constexpr int SIDE = 64;
    __shared__ u32 square[SIDE][SIDE + 1];
    const float* const x = blockIdx.y == 0 ? a : b;
    u32* const to = blockIdx.y == 0 ? toA : toB;
    const int rows = blockIdx.y == 0 ? rowsA : rowsB, cols = blockIdx.y == 0 ? colsA : colsB;
    const int pitch = blockIdx.y == 0 ? pitchA : pitchB, trans = blockIdx.y == 0 ? transA : transB, lines = trans ? cols : rows;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int across = (cols + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
    for (i64 i = blockIdx.x; i < (i64)across * down * batch; i += gridDim.x) {
        const i64 matrix = i / (across * down);
        const int in = i % (across * down), row0 = in / across * SIDE, col0 = in % across * SIDE;
        const float* const from = x + matrix * rows * cols;
        u32* const out = to + matrix * lines * pitch;
        __syncthreads(); // those who read the square before
#pragma unroll
        for (int e = warp; e < 2 * SIDE; e += 8) {
            const int r = e / 2, c = e % 2 * 32 + lane;
            u32 bits = 0;
            if (row0 + r < rows && col0 + c < cols) bits = __float_as_uint(from[(i64)(row0 + r) * cols + col0 + c]);
            if ((bits & 0x7fffffff) > 0x7f800000) bits |= 0x400000; // NaN
            else if ((bits & 0x7f800000) != 0x7f800000) bits += 0xfff + (bits >> 13 & 1);
            square[r][c] = bits & 0xffffe000;
        }
        __syncthreads();
        const int line0 = trans ? col0 : row0, first = trans ? row0 : col0;
#pragma unroll
        for (int e = warp; e < 2 * SIDE; e += 8) {
            const int r = e / 2, c = e % 2 * 32 + lane;
            if (line0 + r < lines && first + c < pitch) out[(i64)(line0 + r) * pitch + first + c] = trans ? square[c][r] : square[r][c];
        }
    }
#endif
}
