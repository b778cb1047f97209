// Window sums of up to 1025 elements: a warp walks along a row. The function stream is long
// because its steps share a dozen variables that must stay in registers.
#pragma once
#include "windowsum_rows.cuh"

constexpr int K = 16;  // elements of a thread in stream, chunks and join

// Walk goes through flat positions in tiles of 512. Positions map to places in
// rows of an operand: position at of a row is element at + off, if that is
// below end. `inside` of the tiles from here on lie within a row; their
// elements start at `next`.
template <typename T> struct Walk {
    static constexpr int count = 32 * K;
    T* base;
    i64 length, off, end, rows, stride;
    i64 row, at;
    T* next;
    int inside;
    bool aligned;  // next, to 16 bytes

    __device__ Walk(T* base, i64 length, i64 off, i64 end, i64 rows, i64 stride, i64 start)
        : base(base), length(length), off(off), end(end < length + off ? end : length + off), rows(rows), stride(stride), row(0), at(start) {
        settle();
    }
    __device__ void settle() {
        if (rows > 1 && (at < 0 || at >= length)) {
            i64 k = at / length;
            if (k * length > at) k--;
            row += k;
            at -= k * length;
        }
        const i64 first = at + off, tiles = (end - first) / count;
        inside = row >= 0 && row < rows && first >= 0 && tiles > 0 ? (tiles < 1 << 20 ? (int)tiles : 1 << 20) : 0;
        next = base + row * stride + first;
        aligned = reinterpret_cast<unsigned long long>(next) % 16 == 0;
        at += (i64)count * (inside ? inside : 1);
    }
// locate returns the address of position j of a tile that is not inside a row, or
    // null where there is none.
    __device__ T* locate(int j) const {
        i64 r = row, p = at - count + j;
        if (rows > 1 && p >= length) {
            const unsigned k = length <= 1 << 16 ? (unsigned)p / (unsigned)length : 1u;
            r += k;
            p -= k * length;
        }
        p += off;
        return r >= 0 && r < rows && p >= 0 && p < end ? base + r * stride + p : nullptr;
    }
// pass moves on to the next tile.
    __device__ __forceinline__ void pass() {
        next += count;
        if (--inside <= 0) settle();
    }
};

constexpr int depth = 4;       // tiles of a stream in shared memory, a power of two
constexpr int sums_kept = 64;  // sums of 2^b chunks in shared memory: those of this tile and 32 before

// A tile in shared memory: vector v of 16 bytes lies at place(v). Lanes that read
// vector m of their K elements, eight at a time, meet all banks.
template <typename T> struct Tile {
    using Vector = typename Vec<T>::type;
    static constexpr int W = Vec<T>::width, of_lane = K / W, vectors = 32 * of_lane;

    Vector* x;

    __device__ static int place(int v) { return v ^ (v >> 3 & (of_lane - 1)); }
// place of vector 32 m + lane; the compiler keeps the part that does not depend on m
    __device__ static int place(int m, int lane) { return m * 32 + (lane ^ (m * 4 + lane / 8 & (of_lane - 1))); }
    __device__ T& operator[](int j) const { return reinterpret_cast<T*>(x + place(j / W))[j % W]; }

// fetch starts the copies of a tile's elements; positions outside the rows are zero.
    __device__ __forceinline__ void fetch(const Walk<const T>& from) const {
        const int lane = threadIdx.x;
        if (from.inside && from.aligned) {
            const Vector* src = reinterpret_cast<const Vector*>(from.next) + lane;
#pragma unroll
            for (int m = 0; m < of_lane; m++) async_copy(x + place(m, lane), src + m * 32);
        } else if (from.inside) {
#pragma unroll 4
            for (int m = 0; m < K; m++) async_copy(&(*this)[m * 32 + lane], from.next + m * 32 + lane);
        } else {
#pragma unroll 1
            for (int m = 0; m < K; m++) {
                const T* e = from.locate(m * 32 + lane);
                (*this)[m * 32 + lane] = e ? *e : T(0);
            }
        }
    }

    // store writes a tile's outputs.
    __device__ __forceinline__ void store(const Walk<T>& to) const {
        const int lane = threadIdx.x;
        if (to.inside && to.aligned) {
            Vector* dst = reinterpret_cast<Vector*>(to.next) + lane;
#pragma unroll
            for (int m = 0; m < of_lane; m++) dst[m * 32] = x[place(m, lane)];
        } else if (to.inside) {
#pragma unroll 4
            for (int m = 0; m < K; m++) to.next[m * 32 + lane] = (*this)[m * 32 + lane];
        } else {
#pragma unroll 1
            for (int m = 0; m < K; m++)
                if (T* e = to.locate(m * 32 + lane)) *e = (*this)[m * 32 + lane];
        }
    }
};

// kept keeps the compiler from computing a loop's constant anew in every turn.
__device__ __forceinline__ int kept(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// A warp walks through `run` tiles. Elements come in tiles 512 t - lead .. 512 t -
// lead + 511; the windows that a tile completes end `lag` positions earlier.
// lead and lag put elements and outputs at 128-byte boundaries where rows allow.
// w - 1 + lag <= 1024. Shared, with q = w / 16: 64 doubles for each bit of q - 1, tails_kept
// doubles (a power of two, at least q + 32), then depth tiles. shifted: lag or w
// - 1 is not a multiple of W.
template <bool shifted, typename T>
__device__ __forceinline__ void stream(const Row<T>& g, int lead, int lag, int run, i64 tiles, int tails_kept) {
    constexpr int W = Vec<T>::width, count = 32 * K, of_lane = K / W, bytes = depth * count * sizeof(T);
    using Vector = typename Vec<T>::type;
    const int lane = threadIdx.x, w = (int)g.w, q = w / K, rest = w % K, n = q - 1;
    const i64 length = g.n_out + g.w - 1;
    double* const tails = shared_memory + (32 - __clz(n)) * sums_kept;
    char* const ring = reinterpret_cast<char*>(tails + tails_kept);

    const int halo = (w - 1 + lag + count - 1) / count;  // 1 or 2 tiles
    const i64 first = (i64)blockIdx.x * run;
    const int end = (int)(first + run < tiles ? run : tiles - first);
    const i64 start = (first - halo) * count - lead;
    // Where rows follow each other without gaps, reading need not look at them.
    const bool one = g.off == 0 && g.n_in == length;
    Walk<const T> from(g.in, one ? length * g.rows : length, g.off, one ? length * g.rows : g.n_in, one ? 1 : g.rows, g.n_in, start);
    Walk<T> to(g.out, length, 0, g.n_out, g.rows, g.n_out, first * count - lead - lag - (w - 1));

    const auto slot = [&](int t) { return Tile<T>{reinterpret_cast<Vector*>(ring + t % depth * (count * sizeof(T)))}; };
    int coming = 0;  // tiles are counted from the halo's first
    const auto prefetch = [&] {
        if (coming < end + halo) {
            slot(coming).fetch(from);
            from.pass();
        }
        coming++;
        commit();
    };
    const int ahead = depth - 1 - halo;
    for (int s = 0; s < ahead; s++) prefetch();

    // take reads the vectors from the one on that holds the element `back` places
    // before the lane's chunk. offsets are those of a tile in slot 0.
    constexpr int M = shifted ? (K + W - 1 + W - 1) / W : of_lane;
    const int right_shift = -lag & (W - 1), left_shift = -(w - 1 + lag) & (W - 1);
    int right_at[M], left_at[M], put_at[of_lane];
#pragma unroll
    for (int m = 0; m < M; m++) {
        right_at[m] = kept(Tile<T>::place((lane * K - lag - right_shift) / W + m) * 16);
        left_at[m] = kept(Tile<T>::place((lane * K - lag - (w - 1) - left_shift) / W + m) * 16);
    }
#pragma unroll
    for (int m = 0; m < of_lane; m++) put_at[m] = kept(Tile<T>::place(lane * of_lane + m) * 16);
    const auto take = [&](int base, const int (&at)[M], int shift, T (&e)[M * W]) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            Pack<T> p{};
            if (m < of_lane || shift) p.v = *reinterpret_cast<const Vector*>(ring + (base + at[m] & (bytes - 1)));
#pragma unroll
            for (int i = 0; i < W; i++) e[m * W + i] = p.s[i];
        }
        if constexpr (shifted && W == 4) Chunks<T, K>::template move<2>(shift & 2, e);
        if constexpr (shifted) Chunks<T, K>::template move<1>(shift & 1, e);
    };

    for (int tile = 0; tile < end + halo; tile++) {
        prefetch();
        if (ahead == 2) arrived<2>();
        else arrived<1>();
        __syncwarp();
        const int base = tile % depth * (count * (int)sizeof(T));
        double sum[K], tail = 0;
        {
            T e[M * W];
            take(base, right_at, right_shift, e);
#pragma unroll
            for (int k = 0; k < K; k++) sum[k] = (double)e[k];
        }
#pragma unroll
        for (int k = 1; k < K; k++)
            asm("{ .reg .pred p; setp.ge.s32 p, %2, %3; @p add.f64 %0, %0, %1; }" : "+d"(tail) : "d"(sum[k]), "r"(rest), "r"(K - k));
#pragma unroll
        for (int k = 1; k < K; k++) sum[k] += sum[k - 1];

// sums of 2^b chunks that end at c; chunks from before the run are in no window.
        const int c = tile * 32 + lane;
        tails[c & (tails_kept - 1)] = tail;
        double left = 0, chunk = sum[K - 1];
        int at = c - 1;
#pragma unroll
        for (int b = 0; b < 6; b++) {
            double* const level = shared_memory + b * sums_kept;
            if (n >> b == 0) break;
            level[c & (sums_kept - 1)] = chunk;
            __syncwarp();
            if (n >> b & 1) {
                left += level[at & (sums_kept - 1)];
                at -= 1 << b;
            }
            if (b < 5) chunk += level[(c - (1 << b)) & (sums_kept - 1)];
        }
        if (n == 0) __syncwarp();
        if (tile < halo) continue;

        left += tails[(c - q) & (tails_kept - 1)];
        T e[M * W];
        take(base, left_at, left_shift, e);
        sum[K - 1] += left;
#pragma unroll
        for (int k = K - 2; k >= 0; k--) {
            left += (double)e[k];
            sum[k] += left;
        }

// The outputs leave through the slot of the oldest tile, which is no longer needed.
        __syncwarp();
        const int out = (tile - halo) % depth * (count * (int)sizeof(T));
#pragma unroll
        for (int m = 0; m < of_lane; m++) {
            Pack<T> p;
#pragma unroll
            for (int i = 0; i < W; i++) p.s[i] = (T)sum[m * W + i];
            *reinterpret_cast<Vector*>(ring + out + put_at[m]) = p.v;
        }
        __syncwarp();
        slot(tile - halo).store(to);
        to.pass();
        __syncwarp();
    }
}
