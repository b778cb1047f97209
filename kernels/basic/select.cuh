// The k largest elements of a row, in order: for topk.cu and categorical.cu.
//
// Elements are ordered by (key, low): the key is an unsigned number that is larger for a larger element, -0 as 0 and NaN above all; low is the complement
// of the element's index, so that of equal elements the first one counts as larger. No two elements are equal in this order, so neither the order in which threads find
// elements nor how a row is divided among blocks has a part in the result.
//
// A block reads the row once, by asynchronous copies to shared memory: each thread waits for its own copies alone and needs no barrier. It keeps the elements that reach a
// threshold, the candidates. The threshold comes from a sample, the vectors that are copied first: of the largest elements of the threads it is the one of a rank that
// leaves more than k candidates with near certainty if the sample is like the row. If fewer remain, the row is read again with a threshold that at least k elements of the
// sample reach. If too many remain, the block raises the threshold to one that at least k candidates reach, found 8 bits at a time by counting, and drops the candidates below it.
// At the end the candidates are sorted.
#pragma once
#include "async.cuh"

template <typename T> struct KeyOf;
template <> struct KeyOf<float> {
    using K = unsigned;
    static __device__ K of(float x) {
        const unsigned b = __float_as_uint(x + 0.f); // -0 + 0 is 0
        return x != x ? ~0u : b >> 31 ? ~b : b | 0x80000000u;
    }
    static __device__ float value(K k) { return __uint_as_float(k >> 31 ? k & 0x7fffffffu : ~k); }
};
template <> struct KeyOf<double> {
    using K = unsigned long long;
    static __device__ K of(double x) {
        const unsigned long long b = (unsigned long long)__double_as_longlong(x + 0.);
        return x != x ? ~0ull : b >> 63 ? ~b : b | 1ull << 63;
    }
    static __device__ double value(K k) { return __longlong_as_double((long long)(k >> 63 ? k & ~(1ull << 63) : ~k)); }
};

constexpr int threadsMax = 256; // of a block: as in topk.go
// Blocks of an SM: shared memory has room for 4 of float32 on 9.0 and 10.0.
template <typename T> constexpr int blocksPerSM = (__CUDA_ARCH__ / 100 == 9 || __CUDA_ARCH__ / 100 == 10) && sizeof(T) == 4 ? 4 : 2;
constexpr int step = 2;         // vectors that a thread reads before its block may stop for a threshold: as in topk.go
constexpr int leastLimit = 512; // as in topk.go
constexpr int slotsMax = 8, slotsLarge = 4, largeK = 256; // vectors of a thread in flight, those of a k above largeK: as in topk.go

// Words is a vector of 16 bytes.
template <typename T> struct alignas(16) Words {
    static constexpr int W = 16 / sizeof(T);
    T s[W];
};

// SelectMemory is the shared memory of a selecting block, without its candidates.
struct SelectMemory {
    alignas(8) int bins[256];
    int count, digit, above, left;
};

// Entry is an element of a list, of key 0, below all, for none.
template <typename T> struct alignas(2 * sizeof(T)) Entry {
    typename KeyOf<T>::K key;
    unsigned low;
};

// Candidates are elements in shared memory. The vectors in flight come before them.
template <typename T> struct Candidates {
    using K = typename KeyOf<T>::K;
    Words<T>* ring;
    K* key;
    unsigned* low;
    SelectMemory& m;
    unsigned slots; // a power of 2

    __device__ Candidates(unsigned char* memory, int k, int goal, SelectMemory& m)
        : ring(reinterpret_cast<Words<T>*>(memory)), m(m), slots(k > largeK || __CUDA_ARCH__ < 800 ? slotsLarge : slotsMax) {
        key = reinterpret_cast<K*>(ring + slots * blockDim.x);
        low = reinterpret_cast<unsigned*>(key + step * Words<T>::W * blockDim.x + max(goal, leastLimit));
    }

    __device__ unsigned index(int i) const { return ~low[i]; }
    __device__ static bool reaches(K key, unsigned low, K k, unsigned l) { return key > k || (key == k && low >= l); }

    // append adds an element to the candidates and returns its place.
    __device__ int append(K own, unsigned ownLow) {
        const int place = atomicAdd(&m.count, 1);
        key[place] = own, low[place] = ownLow;
        return place;
    }

    // above returns how many of the first n keys exceed `own`. n is rounded up to a multiple of 4.
    __device__ int above(int n, K own) const {
        constexpr int W = Words<K>::W;
        const Words<K>* const keys = reinterpret_cast<const Words<K>*>(key);
        int more = 0;
#pragma unroll 4
        for (int i = 0; i < (n + W - 1) / W; i++) {
            const Words<K> v = keys[i];
#pragma unroll
            for (int w = 0; w < W; w++) more += v.s[w] > own;
        }
        return more;
    }

    // ranked returns the key of a rank, counted from 1, among the keys of the threads, and 0, below all, if the rank exceeds half of the threads. It removes all candidates.
    __device__ K ranked(K own, int rank) {
        K* const least = reinterpret_cast<K*>(m.bins);
        if (2 * rank > blockDim.x) own = 0;
        key[threadIdx.x] = own;
        if (threadIdx.x == 0) *least = ~K(0), m.count = 0;
        __syncthreads();
        if (2 * rank <= blockDim.x) {
            if (above(blockDim.x, own) < rank) atomicMin(least, own);
        } else if (threadIdx.x == 0) *least = 0;
        __syncthreads();
        own = *least;
        __syncthreads();
        return own;
    }

    // common returns the bits from `bits` on, in which the keys of n candidates agree.
    __device__ K common(int n, int& bits) {
        K high = 0, low0 = ~K(0);
#pragma unroll 1
        for (int i = threadIdx.x; i < n; i += blockDim.x) high = max(high, key[i]), low0 = min(low0, key[i]);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) high = max(high, __shfl_xor_sync(~0u, high, d)), low0 = min(low0, __shfl_xor_sync(~0u, low0, d));
        K* const ends = reinterpret_cast<K*>(m.bins); // of warps
        if (threadIdx.x % 32 == 0) ends[threadIdx.x / 16] = high, ends[threadIdx.x / 16 + 1] = low0;
        __syncthreads();
        const int lane = threadIdx.x % 32, at = min(lane, (int)blockDim.x / 32 - 1);
        high = ends[2 * at], low0 = ends[2 * at + 1];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) high = max(high, __shfl_xor_sync(~0u, high, d)), low0 = min(low0, __shfl_xor_sync(~0u, low0, d));
        __syncthreads();
        const K differ = high ^ low0;
        bits = 64 - __clzll((unsigned long long)differ);
        return bits < 8 * (int)sizeof(K) ? high >> bits << bits : 0;
    }

    // threshold finds what at least k of n candidates reach, the largest ones, and at most `most`, at least k itself, if there are more. It returns how many do.
    __device__ int threshold(int n, int k, int most, K& leastKey, unsigned& leastLow) {
        int bits;
        K pk = common(n, bits);
        unsigned pl = 0;
        int left = n, above = 0; // candidates that reach the known bits, and of these those that exceed them
#pragma unroll 1
        for (int from = bits + 32; from > 0 && left > most;) { // bits that are not known
            const int to = max(from - 8, from > 32 ? 32 : 0), mask = (1 << (from - to)) - 1;
#pragma unroll 1
            for (int i = threadIdx.x; i < 256; i += blockDim.x) m.bins[i] = 0;
            __syncthreads();
#pragma unroll 1
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                const K own = key[i];
                int digit;
                if (to >= 32) {
                    if (from < bits + 32 && (own ^ pk) >> (from - 32)) continue; // other known bits
                    digit = (int)(own >> (to - 32)) & mask;
                } else {
                    const unsigned ownLow = low[i];
                    if (own != pk || (from < 32 && (ownLow ^ pl) >> from)) continue;
                    digit = ownLow >> to & mask;
                }
                atomicAdd(&m.bins[digit], 1);
            }
            __syncthreads();
            if (threadIdx.x < 32) { // lane l sums 8 bins, from the top
                const int top = 255 - 8 * (int)threadIdx.x;
                int own = 0;
#pragma unroll
                for (int j = 0; j < 8; j++) own += m.bins[top - j];
                int sum = own;
#pragma unroll
                for (int d = 1; d < 32; d *= 2) {
                    const int other = __shfl_up_sync(~0u, sum, d);
                    if (threadIdx.x >= d) sum += other;
                }
                int before = above + sum - own;
                if (before < k && k <= before + own) {
                    int j = 0;
                    while (before + m.bins[top - j] < k) before += m.bins[top - j++];
                    m.digit = top - j, m.above = before, m.left = before + m.bins[top - j];
                }
            }
            __syncthreads();
            if (to >= 32) pk |= (K)m.digit << (to - 32);
            else pl |= (unsigned)m.digit << to;
            above = m.above, left = m.left, from = to;
        }
        leastKey = pk, leastLow = pl;
        return left;
    }

    // tighten keeps the candidates that reach a threshold and returns their number.
    __device__ int tighten(int n, int k, int most, K& leastKey, unsigned& leastLow) {
        const int left = threshold(n, k, most, leastKey, leastLow);
        __syncthreads();
        if (threadIdx.x == 0) m.count = 0;
        __syncthreads();
#pragma unroll 1
        for (int base = 0; base < n; base += blockDim.x) {
            const int i = base + threadIdx.x;
            const K own = i < n ? key[i] : 0;
            const unsigned ownLow = i < n ? low[i] : 0;
            __syncthreads(); // what follows is written over candidates that have been read
            if (i < n && reaches(own, ownLow, leastKey, leastLow)) append(own, ownLow);
        }
        __syncthreads();
        return left;
    }

    // sort orders n candidates from the largest on: each by the number of those before it, or, if there are more than threads, by Batcher's bitonic network. There is room for
    // the next power of two, and for 3 more.
    __device__ void sort(int n) {
        if (n <= blockDim.x) {
            const int t = threadIdx.x;
            const K own = t < n ? key[t] : 0;
            const unsigned ownLow = t < n ? low[t] : 0;
            if (t < 3) key[n + t] = 0; // below all
            m.bins[t] = 0;
            __syncthreads();
            const int more = above(n, own);
            if (t < n) atomicAdd(&m.bins[more], 1);
            __syncthreads();
            int place = more;
            if (t < n && m.bins[more] > 1) { // equal keys
#pragma unroll 1
                for (int i = 0; i < n; i++) place += key[i] == own && low[i] > ownLow;
            }
            __syncthreads();
            if (t < n) key[place] = own, low[place] = ownLow;
            __syncthreads();
            return;
        }
        int all = 2;
        while (all < n) all *= 2;
#pragma unroll 1
        for (int i = n + threadIdx.x; i < all; i += blockDim.x) key[i] = 0, low[i] = 0;
#pragma unroll 1
        for (int size = 2; size <= all; size *= 2) {
#pragma unroll 1
            for (int stride = size / 2; stride > 0; stride /= 2) {
                __syncthreads();
#pragma unroll 1
                for (int t = threadIdx.x; t < all / 2; t += blockDim.x) {
                    const int i = 2 * t - (t & (stride - 1)), j = i + stride;
                    const K a = key[i], b = key[j];
                    const unsigned al = low[i], bl = low[j];
                    const bool falls = (i & size) == 0;
                    if (reaches(a, al, b, bl) != falls) key[i] = b, key[j] = a, low[i] = bl, low[j] = al;
                }
            }
        }
        __syncthreads();
    }

    // select finds the k largest of the n elements from x[from] on, and returns how many candidates there are, at least min(k, n): in order, if sorted, else at most `most`. There is
    // room for max(leastLimit, goal) + step * W * blockDim.x candidates; goal is a power of two that is at least 2k, and most is at least k.
    __device__ int select(const T* __restrict__ x, unsigned from, unsigned n, int k, int goal, int most, bool sorted) {
        constexpr unsigned W = Words<T>::W;
        const unsigned t = threadIdx.x, threads = blockDim.x;
        const int limit = max(goal, leastLimit);
        x += from;
        const unsigned head = min(n, (unsigned)(-(reinterpret_cast<unsigned long long>(x) / sizeof(T)) % W)), vectors = (n - head) / W, tail = n - head - vectors * W;
        const Words<T>* const p = reinterpret_cast<const Words<T>*>(x + head);
        const auto load = [&](unsigned i) { // the thread's vectors from the i-th on
#pragma unroll
            for (unsigned u = 0; u < step; u++) {
                const unsigned v = (i + u) * threads + t;
                if (v < vectors) async_copy(&ring[((i + u) & (slots - 1)) * threads + t], p + v);
            }
            commit();
        };
        int found;
        for (bool sure = false;; sure = true) {
#pragma unroll 1
            for (unsigned i = 0; i < slots; i += step) load(i);
            arrived<0>();
            K best = 0;
#pragma unroll 4
            for (unsigned i = 0; i < slots; i++)
                if (i * threads + t < vectors) {
                    const Words<T> v = ring[i * threads + t];
#pragma unroll
                    for (unsigned w = 0; w < W; w++) best = max(best, KeyOf<T>::of(v.s[w]));
                }
            const float expected = (float)k * min(vectors, slots * threads) * W / n; // of the k largest, in the sample
            const int rank = sure ? k : min(k, (int)(expected + 4 * sqrtf(expected)) + 5);
            sure = rank == k || 2 * rank > threads;
            K tk = ranked(best, rank);
            unsigned tl = 0;
            T threshold = KeyOf<T>::value(tk); // of 0, NaN: nothing is below it
            if (t < head + tail) {
                const unsigned at = t < head ? t : n - tail + (t - head);
                const K own = KeyOf<T>::of(x[at]);
                if (own >= tk) append(own, ~(from + at));
            }
            unsigned i = 0;
#pragma unroll 1
            for (;;) {
#pragma unroll 1
                while (i * threads + (t & ~31u) < vectors) {
                    if (__any_sync(~0u, *(volatile int*)&m.count > limit)) break;
                    if (slots == slotsMax) arrived<slotsMax / step - 1>();
                    else arrived<slotsLarge / step - 1>();
                    bool any = false;
#pragma unroll
                    for (unsigned u = 0; u < step; u++) {
                        const Words<T> v = ring[((i + u) & (slots - 1)) * threads + t];
#pragma unroll
                        for (unsigned w = 0; w < W; w++) any |= !(v.s[w] < threshold);
                    }
                    if (any) keep(from + head, i, vectors, threshold, tk, tl);
                    __syncwarp();
                    load(i + slots);
                    i += step;
                }
                __syncthreads();
                found = m.count;
                if (found <= limit) break;
                tighten(found, k, goal, tk, tl);
                threshold = KeyOf<T>::value(tk);
            }
            if (sure || found >= min((unsigned)k, n)) break;
            __syncthreads();
        }
        return finish(found, k, goal, most, sorted);
    }

    // keep appends those of a thread's vectors from the i-th on that reach the threshold.
    __device__ void keep(unsigned first, unsigned i, unsigned vectors, T threshold, K tk, unsigned tl) {
        constexpr unsigned W = Words<T>::W;
        const unsigned t = threadIdx.x, threads = blockDim.x;
        unsigned wanted = 0;
#pragma unroll
        for (unsigned j = 0; j < step * W; j++) wanted |= ring[((i + j / W) & (slots - 1)) * threads + t].s[j % W] < threshold ? 0 : 1u << j;
#pragma unroll 1
        for (; wanted; wanted &= wanted - 1) {
            const unsigned j = __ffs(wanted) - 1, v = (i + j / W) * threads + t, ownLow = ~(first + v * W + j % W);
            const K own = KeyOf<T>::of(ring[((i + j / W) & (slots - 1)) * threads + t].s[j % W]);
            if (v < vectors && reaches(own, ownLow, tk, tl)) append(own, ownLow);
        }
    }

    // join is select among the n elements of a list in global memory. The vectors in flight, which are over, leave room for some of them at a time.
    __device__ int join(const Entry<T>* list, int n, int k, int goal) {
        const int limit = max(goal, leastLimit), t = threadIdx.x, threads = blockDim.x, room = (int)slots * 16 * threads / (int)sizeof(Entry<T>);
        Entry<T>* const some = reinterpret_cast<Entry<T>*>(ring); // each thread reads what it wrote
        K tk = 0;
        unsigned tl = 0;
#pragma unroll 1
        for (int base = 0; base < n; base += room) {
            const int count = min(room, n - base);
            K best = 0;
#pragma unroll 16
            for (int i = t; i < count; i += threads) some[i] = load_l2(list + base + i);
#pragma unroll 4
            for (int i = t; i < count; i += threads) best = max(best, some[i].key);
            if (base == 0) tk = ranked(best, k);
#pragma unroll 1
            for (int i0 = 0; i0 < count; i0 += threads) {
                const Entry<T> own = i0 + t < count ? some[i0 + t] : Entry<T>{0, 0};
                const bool full = own.key > 0 && reaches(own.key, own.low, tk, tl) && append(own.key, own.low) >= limit;
                if (__syncthreads_or(full)) tighten(m.count, k, goal, tk, tl);
            }
        }
        const int found = m.count;
        return finish(found, k, goal, found, true);
    }
    static __device__ Entry<float> load_l2(const Entry<float>* p) {
        const uint2 v = __ldcg(reinterpret_cast<const uint2*>(p));
        return {v.x, v.y};
    }
    static __device__ Entry<double> load_l2(const Entry<double>* p) {
        const ulonglong2 v = __ldcg(reinterpret_cast<const ulonglong2*>(p));
        return {v.x, (unsigned)v.y};
    }

    // finish sorts the candidates, of which there are n, or drops those beyond `most`.
    __device__ int finish(int n, int k, int goal, int most, bool sorted) {
        if (sorted) most = k > blockDim.x ? goal : blockDim.x;
        if (n > most) {
            K tk;
            unsigned tl;
            n = tighten(n, k, most, tk, tl);
        }
        if (sorted) sort(n);
        return n;
    }

    // store writes n candidates to a list of `most`.
    __device__ void store(Entry<T>* list, int n, int most) const {
        for (int i = threadIdx.x; i < most; i += blockDim.x) list[i] = i < n ? Entry<T>{key[i], low[i]} : Entry<T>{0, 0};
    }
};
