// out[row][i] = sum over j in [0, w) of in[row][i + off + j], i in [0, n_out);
// elements outside [0, n_in) are zero. Valid, same and full windows differ in
// n_out and off alone. Sums are double, the result is rounded once.
//
// Flat positions. A row takes length = n_out + w - 1 positions, the elements that its windows
// reach; position v is row v / length, element v % length + off. Windows of
// outputs never leave their row, so the rows form one sequence of rows * length
// positions, cut into tiles with no regard to rows: short rows share a block.
// Positions whose window would cross into the next row are not written.
//
// One identity at two scales. Cut the positions in chunks of K, w = q K + r:
//
//	window(t K + k) = suffix of chunk t from k          (K elements, serial)
//	                + chunks t+1 .. t+q-1, whole        (a window of q-1 chunk sums)
//	                + the first r elements of chunk t+q (the chunk's head)
//	                + k elements from t K + w on        (K elements, serial)
//
// Each term lies inside the window, nothing is ever subtracted: no element
// outside reaches a result, and no digit cancels. The middle two terms are
// shared by the K outputs of a chunk.
//
//	direct  w < 16: a thread sums w elements for each output of a 16-byte vector.
//	stream  w <= 1025: a chunk is the 16 elements of a lane, a block is one warp
//	        that walks through a run of positions in tiles of 512. What windows
//	        take from earlier tiles is in shared memory: elements, and sums of 2^b
//	        chunks, one step of doubling for each bit of q-1. Nobody waits for
//	        another warp, and the halo of w - 1 elements is read once in a run.
//	chunks  a chunk is the 16 blockDim elements of a block: sums and heads to
//	        memory. The window of q-1 sums is this op again, on double.
//	join    suffix and right part of a block's chunk by two block scans, around
//	        the middle from memory.
//
// stream looks back instead of ahead, the identity in the mirror: the window that
// ends at place k of chunk c is the prefix of chunk c up to k, chunks c-1 ..
// c-q+1, the last r elements of chunk c-q (its tail), and 15 - k elements before.
//
// Elements go between global and registers through shared memory, in 16-byte
// accesses where the positions lie in one row. A vector's place is permuted (stream)
// or a chunk is followed by 16 unused bytes (join), so that threads that read
// vectors of neighbouring chunks meet no bank twice.
//
// Estimate for stream, float, by the data sheet of an H200 (132 SMs, 1.7 GHz): a
// copy's 0.53e12 elements/s leave 0.42 clocks of an SM per element. Conversions: 2
// to double and 1 back, 0.19 at 16/clock. DADD: 4, 0.06 at 64/clock. Instructions:
// 20 counted, 0.16 at 128/clock. Shared: 4 accesses of 4 bytes, 0.13. 16 warps
// share an SM, so each has 16 * 512 * 0.42 = 3400 clocks for a tile and its chain of
// dependent steps: two serial sums, 16 elements in and 16 out.
// direct at w = 15: 15 DADD, 0.23; conversions 0.23. chunks + join: the input is
// read twice (three times where w elements exceed L2) and written once.
//
// What lost to stream, 2^28 elements of float, radius 32 and 512, on an H200 that
// copies in 503 us: blocks of 256 threads with tiles of 4096, two in flight, sums of
// chunks by doubling in the block: 652 and 789 us (four barriers a tile). The same
// with windows known to the compiler: 733 and 801 (fewer instructions, more
// registers, as many barriers). Runs of tiles for a warp with addresses computed
// anew in each tile: 561 and 567; kept in registers: 555 and 563.
#include "async.cuh"
#include "vector.cuh"

typedef long long i64;

template <typename T> struct Row {
    const T* in;
    T* out;
    i64 n_in, n_out, w, off, rows;
};

// Span is count flat positions from start on: its first row, and the position
// in it.
struct Span {
    i64 row, at, length;
    unsigned inverse;  // ceil(2^32 / length) for length <= count, else 0

    __device__ Span(i64 start, int count, i64 n, i64 rows) : row(0), at(start), length(n), inverse(0) {
        if (rows > 1) {
            row = (i64)((unsigned long long)start / (unsigned long long)length);
            at = start - row * length;
            // at + j < 2 count < 2^15: the product's error stays below 1/length
            if (length <= count) inverse = 0xffffffffu / (unsigned)length + 1;
        }
    }
    // locate gives the row and place of position j of the span. A span no longer
    // than a row ends in the next one at the latest; past the last row any row
    // number >= rows will do.
    __device__ void locate(int j, i64& r, i64& p) const {
        p = at + j;
        r = row;
        if (p < length) return;
        const unsigned k = inverse ? __umulhi((unsigned)p, inverse) : 1u;
        r += k;
        p -= k * length;
    }
};

constexpr int batch = 8;  // loads of a thread in flight

// read calls put(j, element) for the positions j = threadIdx.x, threadIdx.x +
// blockDim.x ... of count positions from start on.
template <typename T, typename Put>
__device__ __forceinline__ void read(const Row<T>& g, i64 start, int count, Put put) {
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    const int step = blockDim.x;
    const i64 first = s.at + g.off;
    if (s.row < g.rows && s.at + count <= s.length && first >= 0 && first + count <= g.n_in) {
        const T* __restrict__ src = g.in + s.row * g.n_in + first;
        for (int j = threadIdx.x; j < count; j += batch * step) {
            T x[batch];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (j + u * step < count) x[u] = src[j + u * step];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (j + u * step < count) put(j + u * step, x[u]);
        }
        return;
    }
    for (int j = threadIdx.x; j < count; j += batch * step) {
        T x[batch];
#pragma unroll
        for (int u = 0; u < batch; u++) {
            x[u] = 0;
            if (j + u * step >= count) continue;
            i64 r, p;
            s.locate(j + u * step, r, p);
            p += g.off;
            if (r < g.rows && p >= 0 && p < g.n_in) x[u] = g.in[r * g.n_in + p];
        }
#pragma unroll
        for (int u = 0; u < batch; u++)
            if (j + u * step < count) put(j + u * step, x[u]);
    }
}

// write stores get(j) at the count positions from start on that are outputs.
template <typename T, typename Get>
__device__ __forceinline__ void write(const Row<T>& g, i64 start, int count, Get get) {
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    if (s.row < g.rows && s.at + count <= g.n_out) {
        T* dst = g.out + s.row * g.n_out + s.at;
#pragma unroll 8
        for (int j = threadIdx.x; j < count; j += blockDim.x) dst[j] = get(j);
        return;
    }
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        i64 r, p;
        s.locate(j, r, p);
        if (r < g.rows && p < g.n_out) g.out[r * g.n_out + p] = get(j);
    }
}

// Chunks is shared memory for elements in chunks of K, each followed by 16
// unused bytes.
template <typename T, int K> struct Chunks {
    using Vector = typename Vec<T>::type;
    static constexpr int W = Vec<T>::width;
    static constexpr int size = K + W;  // elements that a chunk takes

    T* x;

    __device__ T& operator[](int j) const { return x[j + j / K * W]; }
    __device__ Vector& vector(int v) const { return reinterpret_cast<Vector*>(x)[v + v / (K / W)]; }

    // fetch brings the count positions from start on and returns the place of the
    // first, 0 to W - 1.
    __device__ __forceinline__ int fetch(const Row<T>& g, i64 start, int count) const {
        const Span s(start, count, g.n_out + g.w - 1, g.rows);
        const i64 first = s.at + g.off;
        if (s.row >= g.rows || s.at + count > s.length || first < 0 || first + count > g.n_in) {
            read(g, start, count, [&](int j, T e) { (*this)[j] = e; });
            return 0;
        }
        const T* src = g.in + s.row * g.n_in + first;
        const int shift = (int)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
        src -= shift;  // operands start aligned, so this is inside in
        const int end = shift + count, vectors = end / W;
        for (int v = threadIdx.x; v < vectors; v += blockDim.x) async_copy(&vector(v), reinterpret_cast<const Vector*>(src) + v);
        const int tail = vectors * W + threadIdx.x;
        if (tail < end) (*this)[tail] = src[tail];
        return shift;
    }

    // move moves the registers down by n places if on.
    template <int n, int M> __device__ static __forceinline__ void move(bool on, T (&r)[M]) {
#pragma unroll
        for (int i = 0; i + n < M; i++) r[i] = on ? r[i + n] : r[i];
    }

    // take reads the N elements from place j on; j % W is the same in all threads.
    // It may touch W - 1 elements more on either side, all within two chunks.
    template <int N> __device__ __forceinline__ void take(int j, T (&e)[N]) const {
        constexpr int M = (N + 2 * W - 2) / W;
        T r[M * W];
#pragma unroll
        for (int m = 0; m < M; m++) {
            Pack<T> p;
            p.v = vector(j / W + m);
#pragma unroll
            for (int i = 0; i < W; i++) r[m * W + i] = p.s[i];
        }
        // Shift by j % W, one bit of it at a time: registers have no address.
        if constexpr (W == 4) move<2>(j & 2, r);
        move<1>(j & 1, r);
#pragma unroll
        for (int i = 0; i < N; i++) e[i] = r[i];
    }

    // put stores K elements as chunk c.
    __device__ __forceinline__ void put(int c, const double (&e)[K]) const {
#pragma unroll
        for (int m = 0; m < K / W; m++) {
            Pack<T> p;
#pragma unroll
            for (int i = 0; i < W; i++) p.s[i] = (T)e[m * W + i];
            vector(c * (K / W) + m) = p.v;
        }
    }

    // store writes the count elements from place 0 on to those of the positions
    // from start on that are outputs.
    __device__ __forceinline__ void store(const Row<T>& g, i64 start, int count) const {
        const Span s(start, count, g.n_out + g.w - 1, g.rows);
        T* dst = g.out + s.row * g.n_out + s.at;
        if (s.row < g.rows && s.at + count <= g.n_out && reinterpret_cast<unsigned long long>(dst) % 16 == 0) {
#pragma unroll 4
            for (int v = threadIdx.x; v < count / W; v += blockDim.x) reinterpret_cast<Vector*>(dst)[v] = vector(v);
            return;
        }
        write(g, start, count, [&](int j) { return (*this)[j]; });
    }
};

extern __shared__ double shared_memory[];

constexpr int direct_vectors = 4;   // 16-byte vectors of outputs of a thread

// elements reads what the windows of a vector of outputs take: w, known to the
// compiler, elements for the first, which starts at element `shift` of vector from.
template <int w, typename T> __device__ __forceinline__ void elements(const typename Vec<T>::type* __restrict__ from, unsigned shift, double (&e)[w + Vec<T>::width - 1]) {
    constexpr int W = Vec<T>::width, M = (w + W - 1 + 2 * W - 2) / W;
    T r[M * W];
#pragma unroll
    for (int m = 0; m < M; m++) {
        Pack<T> p;
        p.v = __ldg(from + m);
#pragma unroll
        for (int i = 0; i < W; i++) r[m * W + i] = p.s[i];
    }
    if constexpr (W == 4) Chunks<T, 16>::template move<2>(shift & 2, r);
    Chunks<T, 16>::template move<1>(shift & 1, r);
#pragma unroll
    for (int i = 0; i < w + W - 1; i++) e[i] = (double)r[i];
}

// windows sums the windows of w elements that start at e[0], e[1] ...
template <int w, typename T> __device__ __forceinline__ typename Vec<T>::type windows(const double (&e)[w + Vec<T>::width - 1]) {
    Pack<T> p;
#pragma unroll
    for (int k = 0; k < Vec<T>::width; k++) {
        double sum = 0;
#pragma unroll
        for (int j = 0; j < w; j++) sum += e[j + k];
        p.s[k] = (T)sum;
    }
    return p.v;
}

// tile sums all windows of a block, which lies within a row: from is the vector that the
// thread's first window starts in, at element `shift`.
template <int w, typename T, typename Vector = typename Vec<T>::type>
__device__ __forceinline__ void tile(const Vector* __restrict__ from, Vector* __restrict__ to, unsigned shift) {
    constexpr int FLIGHT = w > 7 ? 1 : direct_vectors;  // wide windows fill the registers
#pragma unroll FLIGHT
    for (int v = 0; v < direct_vectors; v++, from += blockDim.x, to += blockDim.x) {
        double e[w + Vec<T>::width - 1];
        elements<w, T>(from, shift, e);
        *to = windows<w, T>(e);
    }
}

// short_rows sums the windows of a block whose outputs, counted through all rows,
// begin at start. Rows and outputs are whole vectors.
template <int w, typename T> __device__ __forceinline__ void short_rows(const Row<T>& g, i64 start, int count) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    const Span s(start, count, g.n_out, g.rows);
#pragma unroll 1
    for (int j = threadIdx.x * W; j < count; j += blockDim.x * W) {
        i64 row, at;
        s.locate(j, row, at);
        if (row >= g.rows) return;
        const i64 first = at + g.off;
        const T* src = g.in + row * g.n_in + first;
        double e[w + W - 1];
        if (first >= 0 && first + w + 2 * W <= g.n_in) {
            const unsigned shift = (unsigned)first % W;
            elements<w, T>(reinterpret_cast<const Vector*>(src - shift), shift, e);
        } else {
#pragma unroll
            for (int i = 0; i < w + W - 1; i++) e[i] = first + i >= 0 && first + i < g.n_in ? (double)src[i] : 0.0;
        }
        *reinterpret_cast<Vector*>(g.out + row * g.n_out + at) = windows<w, T>(e);
    }
}

#define EACH_WIDTH(CALL) \
    switch (w) {         \
    case 1: return CALL(1);     \
    case 3: return CALL(3);     \
    case 5: return CALL(5);     \
    case 7: return CALL(7);     \
    case 9: return CALL(9);     \
    case 11: return CALL(11);   \
    case 13: return CALL(13);   \
    case 15: return CALL(15);   \
    }  // an even w is a window over chunk sums: few elements

// Tiles of 4 blockDim vectors of outputs: a thread sums w elements for each
// output, straight from global memory: the elements that neighbouring threads
// share come from L1, and there is nothing to wait for.
template <typename T> __device__ __forceinline__ void direct(const Row<T>& g) {
    constexpr int W = Vec<T>::width;
    using Vector = typename Vec<T>::type;
    const int w = (int)g.w, count = blockDim.x * W * direct_vectors, t = threadIdx.x;
    const i64 start = (i64)blockIdx.x * count;
    if (g.rows > 1 && g.n_out < 16 * count && (g.n_in | g.n_out) % W == 0) {
#define SHORT(w) short_rows<w, T>(g, start, count)
        EACH_WIDTH(SHORT)
    }
    const Span s(start, count, g.n_out + g.w - 1, g.rows);
    const i64 first = s.at + g.off;  // element of the block's first window
    T* const dst = g.out + s.row * g.n_out + s.at;
    const T* src = g.in + s.row * g.n_in + first;
    const unsigned shift = (unsigned)(reinterpret_cast<unsigned long long>(src) % 16 / sizeof(T));
    if (s.row < g.rows && s.at + count <= g.n_out && first >= 0 && first + count + w + 2 * W <= g.n_in &&
        reinterpret_cast<unsigned long long>(dst) % 16 == 0) {
        const Vector* from = reinterpret_cast<const Vector*>(src - shift) + t;
        Vector* to = reinterpret_cast<Vector*>(dst) + t;
#define TILE(w) tile<w, T>(from, to, shift)
        EACH_WIDTH(TILE)
    }
    for (int k = t; k < count; k += blockDim.x) {
        i64 row, at;
        s.locate(k, row, at);
        if (row >= g.rows || at >= g.n_out) continue;
        const T* x = g.in + row * g.n_in;
        double total = 0;
        for (int j = 0; j < w; j++) {
            const i64 i = at + g.off + j;
            if (i >= 0 && i < g.n_in) total += (double)x[i];
        }
        g.out[row * g.n_out + at] = (T)total;
    }
}

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
    // locate gives the address of position j of a tile that is not inside a row, or
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
    // pass leaves a tile behind.
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
    // place of vector 32 m + lane; the compiler keeps what m does not change
    __device__ static int place(int m, int lane) { return m * 32 + (lane ^ (m * 4 + lane / 8 & (of_lane - 1))); }
    __device__ T& operator[](int j) const { return reinterpret_cast<T*>(x + place(j / W))[j % W]; }

    // fetch sends for a tile's elements; positions outside the rows are zero.
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

        // sums of 2^b chunks that end at c; what is from before the run is in no window.
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

        // The outputs leave through the slot of the oldest tile, that nobody needs now.
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

// Block b: sums[b] = sum of the 16 blockDim positions of chunk b, heads[b] =
// sum of its first w % (16 blockDim).
template <typename T> __device__ __forceinline__ void chunks(const Row<T>& g, double* sums, double* heads) {
    __shared__ double warps[2][32];
    const int chunk = blockDim.x * K, rest = (int)(g.w % chunk);
    double lo = 0, hi = 0;
    read(g, (i64)blockIdx.x * chunk, chunk, [&](int j, T e) {
        if (j < rest) lo += (double)e;
        else hi += (double)e;
    });
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        lo += __shfl_down_sync(0xffffffffu, lo, d);
        hi += __shfl_down_sync(0xffffffffu, hi, d);
    }
    if (threadIdx.x % 32 == 0) {
        warps[0][threadIdx.x / 32] = lo;
        warps[1][threadIdx.x / 32] = hi;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < blockDim.x / 32; i++) {
        lo += warps[0][i];
        hi += warps[1][i];
    }
    heads[blockIdx.x] = lo;
    sums[blockIdx.x] = lo + hi;
}

// Block b: the outputs of chunk b; middles[b] is the sum of chunks b+1 ..
// b+q-1, q = w / (16 blockDim) >= 2. Shared: 2 (blockDim + 2) chunks.
template <typename T>
__device__ __forceinline__ void join(const Row<T>& g, const double* middles, const double* heads) {
    __shared__ double warps[2][32];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, chunk = blockDim.x * K;
    const Chunks<T, K> x{reinterpret_cast<T*>(shared_memory)};
    const Chunks<T, K> y{x.x + (blockDim.x + 2) * x.size};
    const i64 start = (i64)blockIdx.x * chunk;
    const int shift = x.fetch(g, start, chunk), shifty = y.fetch(g, start + g.w, chunk);
    commit();
    arrived<0>();
    __syncthreads();

    T e[K];
    double suffix[K], total = 0;
    x.take(shift + t * K, e);
#pragma unroll
    for (int k = 0; k < K; k++) suffix[k] = (double)e[k];
#pragma unroll
    for (int k = K - 2; k >= 0; k--) suffix[k] += suffix[k + 1];
    y.take(shifty + t * K, e);
#pragma unroll
    for (int k = 0; k < K; k++) total += (double)e[k];

    // after: own elements of later threads; before: right elements of earlier ones.
    double after = suffix[0], before = total;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const double a = __shfl_down_sync(0xffffffffu, after, d);
        const double b = __shfl_up_sync(0xffffffffu, before, d);
        if (lane + d < 32) after += a;
        if (lane >= d) before += b;
    }
    if (lane == 0) warps[0][warp] = after;
    if (lane == 31) warps[1][warp] = before;
    after = __shfl_down_sync(0xffffffffu, after, 1);
    before = __shfl_up_sync(0xffffffffu, before, 1);
    if (lane == 31) after = 0;
    if (lane == 0) before = 0;
    __syncthreads();
    for (int i = warp + 1; i < blockDim.x / 32; i++) after += warps[0][i];
    for (int i = warp - 1; i >= 0; i--) before += warps[1][i];

    double right = after + middles[blockIdx.x];
    if (g.w % chunk) right += heads[blockIdx.x + g.w / chunk];
    right += before;
#pragma unroll
    for (int k = 0; k < K; k++) {
        suffix[k] += right;
        right += (double)e[k];
    }
    // All threads have taken their elements of x before the barrier above.
    x.put(t, suffix);
    __syncthreads();
    x.store(g, start, chunk);
}

// direct wants many warps: at most 85 registers a thread, where no spills come of it.
#if __CUDA_ARCH__ >= 800
template <typename T> constexpr int direct_blocks = sizeof(T) == 4 ? 3 : 2;
#else
template <typename T> constexpr int direct_blocks = 2;
#endif

#define ENTRIES(T, S, THREADS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, direct_blocks<T>) windowsum_direct_##S(                         \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {                                         \
        direct(Row<T>{in, out, n_in, n_out, w, off, rows});                                                           \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32, sizeof(T) == 4 ? 16 : 12) windowsum_stream_##S(                                        \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int lead, int lag, int run, i64 tiles, \
        int tails) {                                                                                                  \
        const Row<T> g{in, out, n_in, n_out, w, off, rows};                                                           \
        if (lag % Vec<T>::width || (w - 1) % Vec<T>::width) stream<true>(g, lead, lag, run, tiles, tails);                            \
        else stream<false>(g, lead, lag, run, tiles, tails);                                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) windowsum_chunks_##S(                                       \
        const T* in, double* sums, double* heads, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {                    \
        chunks(Row<T>{in, nullptr, n_in, n_out, w, off, rows}, sums, heads);                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS) windowsum_join_##S(                          \
        const T* in, T* out, const double* middles, const double* heads, i64 n_in, i64 n_out, i64 w, i64 off,         \
        i64 rows) {                                                                                                   \
        join(Row<T>{in, out, n_in, n_out, w, off, rows}, middles, heads);                                             \
    }

ENTRIES(float, f32, 128)
ENTRIES(double, f64, 64)
