// attention for float32 on the tensor cores of 9.0 (mma.sync), of rows at any address and of up to 256 elements: see attention.cu for the formula and for parts, and attention_mma.cuh for
// how products are float32 accurate (IN_PARTS).
//
// A block has four warps and a tile of 64 / shares queries of a head, 16 a warp: `shares` warps have the same queries, and each of them 16 keys of a step. One of them merges
// their results at the end. Rows in shared memory are as long as those of the problem, in multiples of 32 elements. The next keys are copied while values are multiplied, and the next values while
// keys are. Elements are copied one by one unless rows are whole pieces of 16 bytes.
#include "attention_limits.cuh"
#include "attention_mma.cuh"

constexpr int WARPS = 4;

__device__ __forceinline__ bool in_pieces(const void* x, const Strides& s, int dim) { return (((i64)x / 4 | s.batch | s.head | s.row | dim) & 3) == 0; }

// copy_element starts a copy of an element, or of 0.
__device__ __forceinline__ void copy_element(u32 to, const float* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
#endif
}

// Layout is that of rows in shared memory, 16-byte pieces of which are exchanged so that ldmatrix meets no bank twice.
struct Layout {
    int pitch; // bytes of a row, whole lines of 128
    __device__ __forceinline__ u32 at(u32 memory, int row, int piece) const { return memory + row * pitch + (piece ^ row & 7) * 16; }
    // each calls f with a row, its place in shared memory, a column and its offset, of n rows of up to D elements, W neighbouring elements at a time, side by side for `THREADS` threads, of
    // which this one has number i.
    template <int D, int W, int THREADS, typename F> __device__ __forceinline__ void each(u32 memory, int n, int i, F f) const {
        constexpr int LANES = D / W < 32 ? D / W : 32;
        const int lane = i % LANES;
#pragma unroll 1
        for (int row = i / LANES; row < n; row += THREADS / LANES) {
            const u32 place = at(memory, row, lane * W / 4) + lane * W % 4 * 4;
#pragma unroll
            for (int c = 0; c < D; c += LANES * W) {
                if ((c + (W == 1 ? 0 : lane * W)) * 4 >= pitch) break;
                f(row, place + c * 4, c + lane * W);
            }
        }
    }
    // copy starts copies of rows t0 to t0 + n - 1: zeros outside.
    template <int D> __device__ __forceinline__ void copy(u32 memory, const Rows<const float>& from, int t0, int n, bool pieces) const {
        const float* const x = from.x + t0 * from.stride;
        const int rows = from.count - t0;
        if (pieces) each<D, 4, 32 * WARPS>(memory, n, threadIdx.x, [&](int row, u32 to, int column) { copy_far(to, x + row * from.stride + column, row < rows && column < from.dim); });
        else each<D, 1, 32 * WARPS>(memory, n, threadIdx.x, [&](int row, u32 to, int column) { copy_element(to, x + row * from.stride + column, row < rows && column < from.dim); });
    }
};

// scores computes s = a warp's 16 rows times N rows; a and b are where the lane begins to load them.
template <int N> __device__ __forceinline__ void scores(float (&s)[N / 2], u32 a, u32 b, int pitch, int dim) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) s[i] = 0;
    Low<IN_PARTS, N / 2> low[2];
#pragma unroll 1
    for (int c = 0; c < dim; c += 32, a += 128, b += 128) {
        float sum[N / 2] = {};
#pragma unroll
        for (int l = 0; l < 4; l++) {
            Operand<IN_PARTS, 4> x, y;
            load_matrices<false>(x.x, a ^ 32 * l);
            x.convert();
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                load_matrices<false>(y.x, (b ^ 32 * l) + n * 16 * pitch);
                y.convert();
                products<IN_PARTS, 2, 2, 1>(sum + 8 * n, low[l % 2].x + 8 * n, x, y);
            }
        }
#pragma unroll
        for (int i = 0; i < N / 2; i++) s[i] += sum[i];
    }
    low[0].add_to(s), low[1].add_to(s);
}

// weigh_seen_rows is weigh_seen of attention_mma.cuh for a piece of 32 columns in a Layout.
template <int N, typename Seen> __device__ __noinline__ void weigh_seen_rows(float* sum, const float* weights, u32 b, Layout layout, const Seen& seen) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int j = 0; j < N; j++) {
        float x[2][4];
#pragma unroll
        for (int e = 0; e < 2; e++)
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[e][0]), "=f"(x[e][1]), "=f"(x[e][2]), "=f"(x[e][3]) : "r"(layout.at(b, j, lane % 4 * 2 + e)) : "memory");
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float weight = __shfl_sync(~0u, weights[j / 8 * 4 + 2 * r + j % 2], lane / 4 * 4 + j % 8 / 2);
            if (seen(r, j))
#pragma unroll
                for (int i = 0; i < 8; i++) sum[i / 2 * 4 + 2 * r + i % 2] += weight * x[i % 2][i / 2];
        }
    }
}

// weigh_rows adds N weights of each row times N rows at b to sums, whose columns are as store of attention_mma.cuh has them. For whole and seen see there.
template <int D, int N, typename Seen> __device__ __forceinline__ void weigh_rows(float (&o)[D / 2], const float (&s)[N / 2], u32 b, Layout layout, int dim, bool whole, Seen seen) {
    const int lane = threadIdx.x % 32;
    const u32 even = layout.at(b, lane % 4 * 2, lane / 4), odd = layout.at(b, lane % 4 * 2 + 1, lane / 4);
    Operand<IN_PARTS, 4> x[N / 8];
#pragma unroll
    for (int l = 0; l < N / 8; l++) {
#pragma unroll
        for (int i = 0; i < 4; i++) x[l].x[i] = __float_as_uint(s[4 * l + i % 2 * 2 + i / 2]);
        x[l].convert();
    }
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        if (32 * c >= dim) break;
        float sum[16] = {};
        Low<IN_PARTS, 16> low;
#pragma unroll
        for (int l = 0; l < N / 8; l++) {
            Operand<IN_PARTS, 8> y;
#pragma unroll
            for (int i = 0; i < 2; i++)
                asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x[4 * i]), "=r"(y.x[4 * i + 1]), "=r"(y.x[4 * i + 2]), "=r"(y.x[4 * i + 3])
                             : "r"((i ? odd : even) + 8 * l * layout.pitch + 128 * c) : "memory");
            y.convert();
            products<IN_PARTS, 4, 1, 4>(sum, low.x, x[l], y);
        }
        low.add_to(sum);
        if (!whole) {
            bool wrong = false;
#pragma unroll
            for (int i = 0; i < 16; i++) wrong |= sum[i] != sum[i];
            if (__any_sync(~0u, wrong)) {
                float weights[N / 2], exact[16] = {};
#pragma unroll
                for (int i = 0; i < N / 2; i++) weights[i] = s[i];
                weigh_seen_rows<N>(exact, weights, b + 128 * c, layout, seen);
#pragma unroll
                for (int i = 0; i < 16; i++) sum[i] = exact[i];
            }
        }
#pragma unroll
        for (int i = 0; i < 16; i++) o[16 * c + i] += sum[i];
    }
}

// State holds a lane's part of two rows: see attention.cu. Memory of a lane is 4 bytes of each 128, columns first.
template <int D> struct State {
    float o[D / 2] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    template <typename F> __device__ __forceinline__ void each(u32 memory, int dim, F f) {
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            if (32 * c >= dim) break;
#pragma unroll
            for (int i = 0; i < 16; i++) f(o[16 * c + i], memory + (16 * c + i) * 128, i / 2 % 2);
        }
    }
    static __device__ __forceinline__ void write(float x, u32 to) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory"); }
    static __device__ __forceinline__ float read(u32 from) {
        float x;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
        return x;
    }
    __device__ __forceinline__ void keep(u32 memory, u32 rest, int dim) {
        each(memory, dim, [](float x, u32 to, int) { write(x, to); });
#pragma unroll
        for (int r = 0; r < 2; r++) write(most[r], rest + r * 128), write(total[r], rest + (2 + r) * 128);
    }
    __device__ __forceinline__ void merge(u32 memory, u32 rest, int dim, float scale) {
        float own[2], other[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float x = read(rest + r * 128), high = fmaxf(most[r], x), base = high == -INFINITY ? 0 : high;
            own[r] = exp2_fast((most[r] - base) * scale), other[r] = exp2_fast((x - base) * scale);
            most[r] = high, total[r] = total[r] * own[r] + read(rest + (2 + r) * 128) * other[r];
        }
        each(memory, dim, [&](float& x, u32 from, int r) { x = x * own[r] + read(from) * other[r]; });
    }
};

template <int D>
__device__ __forceinline__ void attend_any(const float* q, Strides qs, const float* k, Strides ks, const float* v, Strides vs, float* out, Strides os, float* lse, int outputs, const Problem<float>& p, int batches, int parts,
                                           float* partial, int shares) {
    constexpr int N = 16; // keys of a warp in a step
    follow();
    const Layout layout = {(p.dim + 31) / 32 * 128};
    const int tile = 16 * WARPS / shares, step = N * shares, tiles = (p.queries + tile - 1) / tile, heads = batches * p.heads, part = blockIdx.x % parts, id = blockIdx.x / parts;
    const int inner = p.causal ? heads : tiles, slow = id / inner, fast = id % inner, number = p.causal ? fast : slow;
    const int t0 = (tiles - 1 - (p.causal ? slow : fast)) * tile, // tiles that see the most keys first
              batch = number / p.heads, head = number % p.heads;
    const u32 memQ = (u32)__cvta_generic_to_shared(dynamic), memK = memQ + tile * layout.pitch, memV = memK + step * layout.pitch;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = warp % shares, group = warp / shares, first = t0 + group * 16, row = first + lane / 4;
    const Limits limits(p, batch, t0, tile, first); // keys beyond the largest are 0, whatever memory holds
    const Rows<const float> queries(q, qs, batch, head, p.queries, p.dim), keys(k, ks, batch, head / p.group, limits.high, p.dim), values(v, vs, batch, head / p.group, limits.high, p.dim);
    const bool wide = in_pieces(q, qs, p.dim) && in_pieces(k, ks, p.dim) && in_pieces(v, vs, p.dim);
    const int (&limit)[2] = limits.own;
    const float scale = p.scale * LOG2E;
    const int each = ((limits.high + step - 1) / step + parts - 1) / parts * step, begin = part * each, end = min(begin + each, limits.high);
    const u32 a = layout.at(memQ, group * 16 + lane % 16, lane / 16), b = layout.at(memK, share * N + lane % 8 + lane / 16 * 8, lane / 8 % 2), c = memV + share * N * layout.pitch;
    const auto rows = [&](int j0) { return min(step, (end - j0 + N - 1) / N * N); };
    State<D> state;
    float s[N / 2], factor[2];
    layout.copy<D>(memQ, queries, t0, tile, wide);
    if (begin < end) layout.copy<D>(memK, keys, begin, rows(begin), wide);
    commit();
#pragma unroll 1
    for (int j0 = begin; j0 < end; j0 += step) {
        const int next = j0 + step, j = j0 + share * N;
        const bool works = first < p.queries && j < end, whole = j + N <= limits.low;
        layout.copy<D>(memV, values, j0, rows(j0), wide);
        commit();
        arrived<1>();
        __syncthreads();
        if (works) scores<N>(s, a, b, layout.pitch, p.dim);
        __syncthreads();
        if (next < end) layout.copy<D>(memK, keys, next, rows(next), wide);
        commit();
        if (works) {
            if (!whole) mask(s, limit, j);
            weigh<true>(s, state.most, state.total, factor, scale);
            if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1))
#pragma unroll
                for (int i = 0; i < D / 2; i++) state.o[i] *= factor[i / 2 % 2];
        }
        arrived<1>();
        __syncthreads();
        if (works && outputs & 1) weigh_rows<D, N>(state.o, s, c, layout, p.dim, whole, [&](int r, int i) { return j + i < limit[r]; });
        __syncthreads();
    }
    arrived<0>();
    __syncthreads();
    if (shares > 1) {
        const u32 memory = memK + lane * 4, slot = 16 * layout.pitch + 512;
        const int others = shares - 1;
        if (share > 0) state.keep(memory + (group * others + share - 1) * slot, memory + (group * others + share) * slot - 512, p.dim);
        __syncthreads();
        if (share > 0) return;
#pragma unroll 1
        for (int i = 0; i < others; i++) state.merge(memory + (group * others + i) * slot, memory + (group * others + i + 1) * slot - 512, p.dim, scale);
    }
    if (first >= p.queries) return;
    const i64 index = (i64)number * p.queries;
    finish_rows(factor, state.total, state.most, limit, lse, parts == 1 && outputs & 2, index, row, p);
    float* to = out + batch * os.batch + head * os.head + first * os.row;
    i64 stride = os.row;
    bool wideOut = in_pieces(out, os, p.dim);
    if (parts > 1) {
        to = partial + ((index + first) * parts + part) * (p.dim + 2), stride = (i64)parts * (p.dim + 2), wideOut = false;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            factor[r] = 1;
            if (lane % 4 == 0 && row + 8 * r < p.queries) to[(row + 8 * r - first) * stride] = state.most[r] * p.scale, to[(row + 8 * r - first) * stride + 1] = state.total[r];
        }
        to += 2;
    } else if (!(outputs & 1)) return;
    // The queries are of no more use: their place is that of the results, which are then stored side by side.
    const u32 memory = memQ + group * 16 * layout.pitch;
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
        if (32 * c >= p.dim) break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *x = state.o + 16 * c + i, f = factor[i / 2];
            float4 y = {};
            if (f != 0) y = {x[0] * f, x[4] * f, x[8] * f, x[12] * f};
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(layout.at(memory, lane / 4 + i / 2 * 8, 8 * c + lane % 4 * 2 + i % 2)), "f"(y.x), "f"(y.y), "f"(y.z), "f"(y.w) : "memory");
        }
    }
    __syncwarp();
    const int count = min(16, p.queries - first);
    if (wideOut)
        layout.each<D, 4, 32>(memory, count, lane, [&](int i, u32 from, int column) {
            float4 x;
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(from) : "memory");
            if (column < p.dim) *reinterpret_cast<float4*>(to + i * stride + column) = x;
        });
    else
        layout.each<D, 1, 32>(memory, count, lane, [&](int i, u32 from, int column) {
            const float x = State<D>::read(from);
            if (column < p.dim) to[i * stride + column] = x;
        });
}

#if __CUDA_ARCH__ != 900 // where they were measured
#undef BODY
#define BODY(...)
#endif
#define ANY(D, BLOCKS)                                                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)                                                                                                                 \
        attention_any_##D##_f32(INPUTS(float), float* out, STRIDES(out), float* lse, const int outputs, PROBLEM(float), const int parts, float* partial, const int shares) {         \
        BODY(attend_any<D>(INPUTS_OF, out, STRIDES_OF(out), lse, outputs, PROBLEM_OF(float), batches, parts, partial, shares);)                                                      \
    }
ANY(64, 4)
ANY(128, 3)
ANY(256, 2)
