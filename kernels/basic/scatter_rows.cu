// scatter_rows: the sums of scatter.cu for long rows, along the first axis: out[v][c] = the sum of g[k][c] over the k with
// indices[k] = v, in the order of k, each sum rounded. One launch, in which each element of out is written once.
//
// Block b owns the rows v with v mod blocks = b, so that neighbouring rows of many indices belong to different blocks.
// Every block reads all indices, 8192 in a round, keeps those of its rows in order, in shared memory, and sorts them by
// row. Later rounds add to what earlier ones wrote. Bound by memory.
//
// Rows without an index are filled with zeros. From compute capability 9.0 on, one warp more does so by bulk copies from shared memory while
// the others sort the indices and sum. Blocks take these rows, of whichever block, by a counter as they have written the rows before: a block that owns many rows with an
// index writes fewer zeros. Where there are later rounds, or more rows than bits for all of them in shared memory, a block writes those that it owns. On older devices some
// warps begin with zeros, the others with sums, so that memory is read and written at the same time.
//
// With `onto`, for at most the indices of one round, the sums are added to what out has, and rows without an index stay.
//
// A row that has at least 1/64 of the first round's indices would keep its block busy when all others are done. Every
// block counts the indices of that round by their lower bits and so finds the same heavy rows, of which each block sums
// some columns. A row that is heavy only later is summed correctly, but slowly.
//stheno:targets sm_80 sm_90a sm_100 ptx
#include "async.cuh"
#include "follow.cuh"
#include "windows.cuh" // Divide

#if __CUDA_ARCH__ >= 900
constexpr int threads = 480; // and a warp that writes zeros
#else
constexpr int threads = 512;
#endif
constexpr int warps = threads / 32;
constexpr int held = 8192;                           // indices of a round: as in scatter_rows.go
constexpr int each = (held + threads - 1) / threads; // of a thread
constexpr int mostRows = 4096;       // of a block: as in scatter_rows.go
constexpr int stages = 8;            // panels of g, of 16 bytes a thread, in flight
constexpr int many = 32;             // indices of a row from which a warp sums 32 columns
constexpr int mostHeavy = 64, leastHeavy = 64;
constexpr int keys = 8192;           // lower bits by which indices are counted: a power of two

// The lists of a block. The counts by which heavy rows are found use the memory of k and row, and then of count and end.
// The panels of heavy rows use that of all but order.
struct Lists {
    unsigned short order[held]; // k of this round, by row
    unsigned short k[held], row[held];
    int count[mostRows]; // indices of a row; -1 for a heavy row
    int end[mostRows];   // of a row in order
    unsigned short few[mostRows], some[held / many]; // rows of fewer than many indices, and of more
    int fews, somes, nextFew, nextRow;
};
static_assert(sizeof(Lists::k) + sizeof(Lists::row) == keys * sizeof(int), "the counts do not fit");
static_assert(sizeof(Lists::count) + sizeof(Lists::end) + sizeof(Lists::k) + sizeof(Lists::row) >= stages * threads * 16, "the panels do not fit");

// sync is a barrier of the threads that sum.
__device__ __forceinline__ void sync() { asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); }
__device__ __forceinline__ bool sync_or(bool value) {
    int any;
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %1, 0;\nbar.red.or.pred p, 1, %2, p;\nselp.s32 %0, 1, 0, p;\n}" : "=r"(any) : "r"((int)value), "n"(threads) : "memory");
    return any;
}

extern __shared__ __align__(16) unsigned char shared[];

// fetch loads this thread's indices of the round from `base` on, -1 for those outside of the axis.
__device__ void fetch(int (&v)[each], const long long* __restrict__ indices, long long base, long long count, int rows) {
    const int first = threadIdx.x / 32 * (each * 32) + threadIdx.x % 32;
    const int left = (int)min(count - base, (long long)held);
    indices += base;
#pragma unroll
    for (int j = 0; j < each; j++) {
        const long long index = first + j * 32 < left ? indices[first + j * 32] : -1;
        v[j] = index >= 0 && index < rows ? (int)index : -1;
    }
}

// collect calls put(place, k, row) for the indices of the round for which row = match(v) is not negative, in order, and
// returns their number.
template <typename M, typename P> __device__ __forceinline__ int collect(int* sums, const int (&v)[each], M match, P put) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int row[each], mine = 0;
#pragma unroll
    for (int j = 0; j < each; j++) {
        row[j] = v[j] < 0 ? -1 : match(v[j]);
        mine += __popc(__ballot_sync(~0u, row[j] >= 0));
    }
    if (lane == 0) sums[warp] = mine;
    sync();
    int place = 0, total = 0;
#pragma unroll
    for (int w = 0; w < warps; w++) {
        if (w < warp) place += sums[w];
        total += sums[w];
    }
    if (mine > 0) {
#pragma unroll
        for (int j = 0; j < each; j++) {
            const unsigned found = __ballot_sync(~0u, row[j] >= 0);
            if (row[j] >= 0) put(place + __popc(found & ((1u << lane) - 1)), (warp * each + j) * 32 + lane, row[j]);
            place += __popc(found);
        }
    }
    sync();
    return total;
}

// find_heavy lists the rows that have at least `least` of these indices, in the same order in each block, and returns
// their number. At most mostHeavy rows have as many.
__device__ __forceinline__ int find_heavy(Lists& l, int* sums, int* heavy, const int (&v)[each], int least, int rows) {
    int* const counts = reinterpret_cast<int*>(l.k); // the number of indices by lower bits; then, where there are many, its negative
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5, high = (rows + keys - 1) / keys;
    for (int i = t; i < keys / 4; i += threads) reinterpret_cast<int4*>(counts)[i] = int4{};
    sync();
#pragma unroll
    for (int j = 0; j < each; j++)
        if (v[j] >= 0) atomicAdd(&counts[v[j] % keys], 1);
    sync();
    unsigned found = 0; // of the counts of this thread
#pragma unroll
    for (int j = 0; j < (keys + threads - 1) / threads; j++) found |= (unsigned)(j * threads + t < keys && counts[j * threads + t] >= least) << j;
    if (!sync_or(found != 0) || high * mostHeavy > 2 * mostRows) return 0;
    int place = __popc(found);
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, place, d);
        if (lane >= d) place += other;
    }
    if (lane == 31) sums[warp] = place;
    sync();
    place -= __popc(found);
    int total = 0;
    for (int w = 0; w < warps; w++) {
        if (w < warp) place += sums[w];
        total += sums[w];
    }
    for (unsigned rest = found; rest; rest &= rest - 1) {
        const int key = (__ffs(rest) - 1) * threads + t;
        sums[warps + place] = key;
        counts[key] = -++place;
    }
    int* const exact = l.count; // by number and higher bits
    for (int i = t; i < total * high; i += threads) exact[i] = 0;
    sync();
#pragma unroll
    for (int j = 0; j < each; j++) {
        const int number = v[j] < 0 ? 0 : counts[v[j] % keys];
        if (number < 0) atomicAdd(&exact[(-number - 1) * high + v[j] / keys], 1);
    }
    sync();
    int heavies = 0;
    if (warp == 0) {
        for (int i = lane; i - lane < total * high; i += 32) {
            const bool is = i < total * high && exact[i] >= least;
            const unsigned all = __ballot_sync(~0u, is);
            if (is) heavy[heavies + __popc(all & ((1u << lane) - 1))] = i % high * keys + sums[warps + i / high];
            heavies += __popc(all);
        }
        if (lane == 0) sums[0] = heavies;
    }
    sync();
    heavies = sums[0];
    sync(); // sums are used again
    return heavies;
}

template <typename T, int W> struct alignas(sizeof(T) * W) Words {
    T s[W];
};

// sum_few sums the n rows of g that order names to a row of out: Q vectors of each lane at once, of E rows.
template <typename T> __device__ __forceinline__ void sum_few(const unsigned short* order, int n, const T* __restrict__ g, T* out, long long inner, bool first, bool onto) {
    constexpr int W = 16 / sizeof(T), Q = 4, E = 2;
    using V = Words<T, W>;
    for (long long c = threadIdx.x % 32 * W; c < inner; c += 32 * W * Q) {
        V total[Q];
#pragma unroll
        for (int q = 0; q < Q; q++) {
            total[q] = V{};
            if (!first && c + q * 32 * W < inner) total[q] = *reinterpret_cast<const V*>(out + c + q * 32 * W);
        }
#pragma unroll 1
        for (int e = 0; e < n; e += E) {
            V x[E][Q];
#pragma unroll
            for (int j = 0; j < E; j++) {
                const T* from = g + order[min(e + j, n - 1)] * inner + c;
#pragma unroll
                for (int q = 0; q < Q; q++) {
                    if (e + j < n && c + q * 32 * W < inner) x[j][q] = *reinterpret_cast<const V*>(from + q * 32 * W);
                }
            }
#pragma unroll
            for (int j = 0; j < E; j++) {
                if (e + j < n) {
#pragma unroll
                    for (int q = 0; q < Q; q++) {
#pragma unroll
                        for (int w = 0; w < W; w++) total[q].s[w] += x[j][q].s[w];
                    }
                }
            }
        }
#pragma unroll
        for (int q = 0; q < Q; q++) {
            if (c + q * 32 * W >= inner) continue;
            V* const to = reinterpret_cast<V*>(out + c + q * 32 * W);
            if (onto) {
                const V old = *to;
#pragma unroll
                for (int w = 0; w < W; w++) total[q].s[w] = old.s[w] + total[q].s[w];
            }
            *to = total[q];
        }
    }
}

// sum_some sums a column of n rows of g.
template <typename T> __device__ __forceinline__ void sum_some(const unsigned short* order, int n, const T* __restrict__ g, T* out, long long inner, bool first, bool onto) {
    constexpr int ahead = 128 / sizeof(T);
    T total = first ? T(0) : *out;
#pragma unroll 1
    for (int e = 0; e < n; e += ahead) {
        T x[ahead];
#pragma unroll
        for (int j = 0; j < ahead; j++)
            if (e + j < n) x[j] = g[order[e + j] * inner];
#pragma unroll
        for (int j = 0; j < ahead; j++)
            if (e + j < n) total += x[j];
    }
    *out = onto ? *out + total : total;
}

// take returns the next `size` items of a queue to the warp.
__device__ __forceinline__ int take(int* next, int size) {
    int first = 0;
    if (threadIdx.x % 32 == 0) first = atomicAdd(next, size);
    return __shfl_sync(~0u, first, 0);
}

#if __CUDA_ARCH__ >= 900
constexpr int zeroBytes = 3072;  // of a bulk copy of zeros
constexpr int turnBytes = 24576; // rows that a block stores per loop iteration
constexpr int mostBits = 1 << 16;
constexpr int PRESENT = 2, WRITTEN = 3; // barriers of all threads

// Zeros tells which rows have an index in the first round: all, or those of this block.
struct Zeros {
    __align__(16) unsigned char source[zeroBytes]; // zeros
    unsigned present[mostBits / 32];
};

// write_zeros writes the rows that have none, by a warp. `mine` is set if these are the rows of this block alone, `own` of them.
template <typename T> __device__ __forceinline__ void write_zeros(Zeros& z, T* out, int rows, int own, long long inner, bool mine, unsigned* next) {
    const int lane = threadIdx.x & 31;
    const long long bytes = inner * (long long)sizeof(T);
    const unsigned source = (unsigned)__cvta_generic_to_shared(z.source);
    const auto write = [&](int bit, long long row) {
        if (z.present[bit / 32] >> bit % 32 & 1) return;
        char* const to = reinterpret_cast<char*>(out) + row * bytes;
        for (long long at = 0; at < bytes; at += zeroBytes)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + at), "r"(source), "r"((int)min(bytes - at, (long long)zeroBytes)) : "memory");
    };
    // Few copies are in flight, so that loads of other warps do not wait for many, and blocks end together.
    const auto issued = [] { asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 2;" ::: "memory"); };
    const int taken = bytes >= turnBytes ? 1 : min(turnBytes / (int)bytes, 32); // rows of a turn
    if (mine) {
        for (int r0 = 0; r0 < own; r0 += taken) {
            if (lane < taken && r0 + lane < own) write(r0 + lane, (long long)(r0 + lane) * gridDim.x + blockIdx.x);
            issued();
        }
    } else {
        const unsigned turns = (unsigned)(rows + taken - 1) / (unsigned)taken;
        const auto take = [&] {
            unsigned turn = 0;
            if (lane == 0) turn = atomicInc(next, turns + gridDim.x - 1); // the last one makes it zero
            return __shfl_sync(~0u, turn, 0);
        };
        for (unsigned turn = take(); turn < turns;) {
            const unsigned after = take();
            const int row = (int)(turn * taken) + lane;
            if (lane < taken && row < rows) write(row, row);
            issued();
            turn = after;
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.global;" ::: "memory"); // later rounds read the zeros
}
#endif

// write_rows sums the rows that have indices. In the first round it writes zeros to those that have none, on devices before 9.0.
template <typename T> __device__ __forceinline__ void write_rows(Lists& l, const T* __restrict__ g, T* out, int own, long long inner, bool first, bool onto) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const auto row = [&](int r) { return out + ((long long)r * gridDim.x + blockIdx.x) * inner; };
    const int across = (int)((inner + 31) / 32);
    for (int i = warp; i < l.somes * across; i += warps) {
        const int r = l.some[i / across], n = l.count[r];
        const long long c = i % across * 32ll + lane;
        if (c < inner) sum_some(l.order + l.end[r] - n, n, g + c, row(r) + c, inner, first, onto);
    }
    const auto sums = [&] {
        for (int i = take(&l.nextFew, 1); i < l.fews; i = take(&l.nextFew, 1)) {
            const int r = l.few[i], n = l.count[r];
            sum_few(l.order + l.end[r] - n, n, g, row(r), inner, first, onto);
        }
    };
#if __CUDA_ARCH__ < 900
    constexpr int W = 16 / sizeof(T), clearing = warps / 4, taken = 4; // warps that begin with zeros; rows of zeros that a warp takes at once
    if (warp >= clearing) sums();
    if (first && !onto) {
        for (int r0 = take(&l.nextRow, taken); r0 < own; r0 = take(&l.nextRow, taken)) {
            for (int r = r0; r < min(r0 + taken, own); r++) {
                if (l.count[r] != 0) continue;
                int4* to = reinterpret_cast<int4*>(row(r));
#pragma unroll 4
                for (long long c = lane; c < inner / W; c += 32) to[c] = int4{};
            }
        }
    }
    if (warp < clearing) sums();
#else
    sums();
#endif
}

// sort orders n indices by row and, within a row, by k, and lists the rows. One warp stores them; the lanes of equal rows
// take their places by lane.
__device__ __forceinline__ void sort(Lists& l, int n, int own) {
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        int base = 0, fews = 0, somes = 0;
        for (int r0 = 0; r0 < own; r0 += 32) {
            const int count = r0 + lane < own ? max(l.count[r0 + lane], 0) : 0;
            const unsigned few = __ballot_sync(~0u, count > 0 && count < many), some = __ballot_sync(~0u, count >= many), ahead = (1u << lane) - 1;
            if (few | some) { // the same in all lanes
                int sum = count;
#pragma unroll
                for (int d = 1; d < 32; d *= 2) {
                    const int other = __shfl_up_sync(~0u, sum, d);
                    if (lane >= d) sum += other;
                }
                if (count > 0) l.end[r0 + lane] = base + sum - count; // the begin: it moves to the end below
                base += __shfl_sync(~0u, sum, 31);
                if (few >> lane & 1) l.few[fews + __popc(few & ahead)] = (unsigned short)(r0 + lane);
                if (some >> lane & 1) l.some[somes + __popc(some & ahead)] = (unsigned short)(r0 + lane);
                fews += __popc(few), somes += __popc(some);
            }
        }
        if (lane == 0) l.fews = fews, l.somes = somes, l.nextFew = 0, l.nextRow = 0;
        __syncwarp();
        for (int e = lane; e - lane < n; e += 32) {
            const int row = e < n ? l.row[e] : -1;
            const unsigned same = __match_any_sync(~0u, row), ahead = same & ((1u << lane) - 1);
            const int place = row < 0 ? 0 : l.end[row];
            __syncwarp();
            if (row >= 0) {
                l.order[place + __popc(ahead)] = l.k[e];
                if (ahead == 0) l.end[row] = place + __popc(same);
            }
            __syncwarp();
        }
    }
    sync();
}

// sum_heavy sums the columns of row v from c0 on, of `vectors` vectors of 16 bytes. Each thread copies a vector of a panel
// of the rows to sum, and one warp sums.
template <typename T>
__device__ __forceinline__ void sum_heavy(Lists& l, int* sums, const int (&all)[each], const T* __restrict__ g, const long long* __restrict__ indices, T* out, int v,
                                          long long c0, int vectors, long long count, int rows, long long inner, bool onto) {
    constexpr int W = 16 / sizeof(T);
    const int t = threadIdx.x, deep = threads / vectors, width = vectors * W, i0 = t / vectors, c = t % vectors * W;
    int4* const panels = reinterpret_cast<int4*>(l.k);
    T total = 0;
    for (long long base = 0; base < count; base += held) {
        const auto match = [&](int row) { return row == v ? 0 : -1; };
        const auto put = [&](int place, int k, int) { l.order[place] = (unsigned short)k; };
        int n;
        if (base == 0) {
            n = collect(sums, all, match, put);
        } else {
            int next[each];
            fetch(next, indices, base, count, rows);
            n = collect(sums, next, match, put);
        }
        const T* x = g + base * inner + c0 + c;
        auto issue = [&](int e, int stage) {
            if (e + i0 < n && c0 + c < inner) async_copy(panels + stage * threads + t, reinterpret_cast<const int4*>(x + l.order[e + i0] * inner));
            commit();
        };
        for (int s = 0; s < stages - 1; s++) issue(s * deep, s);
        int stage = 0;
        for (int e = 0; e < n; e += deep) {
            arrived<stages - 2>();
            sync(); // this panel has been copied, and all threads have finished reading the previous panel
            issue(e + (stages - 1) * deep, stage == 0 ? stages - 1 : stage - 1);
            if (t < width) {
                const T* panel = reinterpret_cast<const T*>(panels + stage * threads) + t;
                const int last = min(deep, n - e);
                int i = 0;
                for (; i + 16 <= last; i += 16) {
                    T y[16];
#pragma unroll
                    for (int j = 0; j < 16; j++) y[j] = panel[(i + j) * width];
#pragma unroll
                    for (int j = 0; j < 16; j++) total += y[j];
                }
                for (; i < last; i++) total += panel[i * width];
            }
            if (++stage == stages) stage = 0;
        }
        arrived<0>();
        sync(); // the next round's list is written over this one
    }
    if (t < width && c0 + t < inner) {
        T* const to = out + v * inner + c0 + t;
        *to = onto ? *to + total : total;
    }
}

template <typename T>
__device__ void scatter_rows(const T* __restrict__ g, const long long* __restrict__ indices, T* out, long long count, int rows, long long inner,
                             Divide blocks, bool onto, unsigned* next) {
    __shared__ int sums[warps + mostHeavy], heavy[mostHeavy];
    Lists& l = *reinterpret_cast<Lists*>(shared);
    const int t = threadIdx.x, b = blockIdx.x, own = (rows - b + (int)gridDim.x - 1) / (int)gridDim.x; // rows of this block
    int all[each];
    follow(); // first: no branch may come before
#if __CUDA_ARCH__ >= 900
    __shared__ Zeros zeros;
    const bool last = count <= held, mine = !last || rows > mostBits; // last: there is one round
    if (t < threads) {
        fetch(all, indices, 0, count, rows);
        for (int i = t; i < mostBits / 32; i += threads) zeros.present[i] = 0;
    } else {
        for (int i = t - threads; i < zeroBytes / 16; i += 32) reinterpret_cast<int4*>(zeros.source)[i] = int4{};
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // the copies read these zeros
        __syncwarp();
    }
    if (t >= threads) {
        if (onto) return;
        asm volatile("bar.sync %0, %1;" ::"n"(PRESENT), "n"(threads + 32) : "memory");
        write_zeros(zeros, out, rows, own, inner, mine, next);
        if (!last) asm volatile("bar.sync %0, %1;" ::"n"(WRITTEN), "n"(threads + 32) : "memory");
        return;
    }
    sync();
    if (!onto) {
#pragma unroll
        for (int j = 0; j < each; j++) {
            const int r = all[j] < 0 ? 0 : (int)blocks(all[j]);
            if (all[j] >= 0 && !mine) atomicOr(&zeros.present[all[j] / 32], 1u << all[j] % 32);
            else if (all[j] >= 0 && all[j] - r * (int)gridDim.x == b) atomicOr(&zeros.present[r / 32], 1u << r % 32);
        }
        asm volatile("bar.arrive %0, %1;" ::"n"(PRESENT), "n"(threads + 32) : "memory");
    }
#else
    fetch(all, indices, 0, count, rows);
#endif
    const int heavies = find_heavy(l, sums, heavy, all, max((int)min(count, (long long)held) / mostHeavy, leastHeavy), rows);
    if (heavies > 0) {
        constexpr int W = 16 / sizeof(T);
        // 32 bytes of each row where that gives work to more blocks, else 128.
        const int vectors = heavies * ((inner + 8 * W - 1) / (8 * W)) < gridDim.x ? 2 : 8;
        const int across = (int)((inner + vectors * W - 1) / (vectors * W));
        for (int i = b; i < heavies * across; i += gridDim.x)
            sum_heavy(l, sums, all, g, indices, out, heavy[i / across], (long long)(i % across) * vectors * W, vectors, count, rows, inner, onto);
    }
    for (long long base = 0; base == 0 || base < count; base += held) {
        for (int r = t; r < own; r += threads) l.count[r] = 0;
        sync();
        if (t < heavies && heavy[t] - (int)blocks(heavy[t]) * (int)gridDim.x == b) l.count[blocks(heavy[t])] = -1;
        if (base > 0) fetch(all, indices, base, count, rows);
        sync();
        const int n = collect(
            sums, all,
            [&](int v) {
                const int r = (int)blocks(v);
                return v - r * (int)gridDim.x == b && l.count[r] >= 0 ? r : -1;
            },
            [&](int place, int k, int r) { l.k[place] = (unsigned short)k, l.row[place] = (unsigned short)r; });
        for (int e = t; e < n; e += threads) atomicAdd(&l.count[l.row[e]], 1);
        sync();
        sort(l, n, own);
        write_rows(l, g + base * inner, out, own, inner, base == 0, onto);
#if __CUDA_ARCH__ >= 900
        if (base == 0 && !last && !onto) asm volatile("bar.sync %0, %1;" ::"n"(WRITTEN), "n"(threads + 32) : "memory");
#endif
        sync(); // the next round's lists are written over these, and its sums added to these
    }
}

#define SCATTER_ROWS(name, T)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                            \
        scatter_rows_##name(const T* g, const long long* indices, T* out, long long count, int rows, long long inner, DIVIDE(blocks), const int onto, unsigned* next) { \
        scatter_rows<T>(g, indices, out, count, rows, inner, DIVIDE_OF(blocks), onto, next);                                        \
    }

SCATTER_ROWS(f32, float)
SCATTER_ROWS(f64, double)
