// The k largest elements of a row, in order: for topk.cu and categorical.cu.
//
// Elements are ordered by (key, low): the key is an unsigned number that is larger for a larger element, -0 as 0 and NaN above all; low is the complement
// of the element's index, so that of equal elements the first one counts as larger. No two elements are equal in this order, so neither the order in which threads find
// elements nor how a row is divided among blocks has a part in the result.
//
// A block goes through the row in tiles and keeps, in shared memory, the elements above a threshold. When they are too many it raises the threshold to one that at least k of them
// reach, found 8 bits at a time by counting, and drops the others. The first threshold is one that at least k of the threads' largest elements of the first tile reach. Of a random row few
// elements pass, so the row is read once, at the speed of memory. At the end the candidates are sorted. One element, the largest, needs no candidates.
#pragma once

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

constexpr unsigned none = ~0u; // the index of no element
constexpr int perThread = 8;   // elements of a tile: as in topk.go
constexpr int leastLimit = 512; // as in topk.go

// lowest is -Inf, which no element is below: what sources load for elements that they do not have.
template <typename T> __device__ T lowest();
template <> __device__ float lowest() { return __int_as_float(0xff800000); }
template <> __device__ double lowest() { return __longlong_as_double(0xfff0000000000000ll); }

// Row is a row, or a part of one that begins at element `from`, whose n elements are read in 16 bytes at a time if wide.
template <typename T> struct Row {
    const T* x;
    unsigned from, n;
    bool wide;
    static constexpr int W = 16 / sizeof(T);
    static constexpr bool isRow = true;

    // place is where element j of a thread is in the tile.
    __device__ unsigned place(int j) const {
        return wide ? (j / W * blockDim.x + threadIdx.x) * W + j % W : j * blockDim.x + threadIdx.x;
    }
    __device__ unsigned index(unsigned at) const { return at < n ? from + at : none; }
    __device__ void load(unsigned base, T (&v)[perThread]) const {
        const T least = lowest<T>();
        if (wide) {
#pragma unroll
            for (int j = 0; j < perThread; j += W) {
                const unsigned at = base + place(j);
                struct alignas(16) Words { T s[W]; } words;
                if (at < n) words = *reinterpret_cast<const Words*>(x + from + at);
#pragma unroll
                for (int w = 0; w < W; w++) v[j + w] = at < n ? words.s[w] : least;
            }
        } else {
#pragma unroll
            for (int j = 0; j < perThread; j++) {
                const unsigned at = base + place(j);
                v[j] = at < n ? x[from + at] : least;
            }
        }
    }
};

// Listed is the elements of a row that a list of n indices names.
template <typename T> struct Listed {
    const T* x;
    const unsigned* list;
    unsigned n;
    static constexpr bool isRow = false;
    __device__ unsigned place(int j) const { return j * blockDim.x + threadIdx.x; }
    __device__ unsigned index(unsigned at) const { return at < n ? list[at] : none; }
    __device__ void load(unsigned base, T (&v)[perThread]) const {
#pragma unroll
        for (int j = 0; j < perThread; j++) {
            const unsigned i = index(base + place(j));
            v[j] = i != none ? x[i] : lowest<T>();
        }
    }
};

// SelectMemory is what a block that selects has beside its candidates.
struct SelectMemory {
    alignas(8) int bins[256];
    int count, digit, above, left;
};

// Candidates are elements in shared memory, `capacity` at most.
template <typename T> struct Candidates {
    using K = typename KeyOf<T>::K;
    K* key;
    unsigned* low;
    SelectMemory& m;

    __device__ Candidates(unsigned char* memory, int capacity, SelectMemory& m)
        : key(reinterpret_cast<K*>(memory)), low(reinterpret_cast<unsigned*>(key + capacity)), m(m) {}

    __device__ unsigned index(int i) const { return ~low[i]; }
    __device__ static bool reaches(K key, unsigned low, K k, unsigned l) { return key > k || (key == k && low >= l); }

    // append adds an element to the candidates and returns its place, -1 if it is not wanted. All lanes of the warp call it.
    __device__ int append(bool wanted, K own, unsigned ownLow) {
        const unsigned all = __ballot_sync(~0u, wanted);
        if (all == 0) return -1;
        const int lane = threadIdx.x & 31;
        int place = 0;
        if (lane == 0) place = atomicAdd(&m.count, __popc(all));
        place = __shfl_sync(~0u, place, 0) + __popc(all & ((1u << lane) - 1));
        if (!wanted) return -1;
        key[place] = own, low[place] = ownLow;
        return place;
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
            append(i < n && reaches(own, ownLow, leastKey, leastLow), own, ownLow);
        }
        __syncthreads();
        return left;
    }

    // sort orders n candidates from the largest on: each by the number of those before it, or, if they are many, by Batcher's bitonic network. There is room for
    // the next power of two.
    __device__ void sort(int n) {
        if (2 * n <= blockDim.x) {
            const int t = threadIdx.x;
            const K own = t < n ? key[t] : 0;
            const unsigned ownLow = t < n ? low[t] : 0;
            int place = -1; // it reaches itself
            if (t < n) {
#pragma unroll 4
                for (int i = 0; i < n; i++) place += reaches(key[i], low[i], own, ownLow);
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

    // largest finds the largest element. Those of a thread come in the order of their indices.
    template <typename Source> __device__ int largest(const Source& source) {
        const unsigned tile = perThread * blockDim.x;
        K best = 0; // below all
        unsigned place = 0;
        if (threadIdx.x == 0) m.count = 0;
        __syncthreads();
#pragma unroll 1
        for (unsigned base = 0; base < source.n; base += tile) {
            T v[perThread];
            source.load(base, v);
#pragma unroll
            for (int j = 0; j < perThread; j++) {
                const K own = KeyOf<T>::of(v[j]);
                if (own > best) best = own, place = base + j; // base is a multiple of perThread
            }
        }
        unsigned bestLow = ~source.index(place / perThread * perThread + source.place(place % perThread)); // 0 for no element
#pragma unroll 1
        for (int d = 16; d > 0; d /= 2) take(__shfl_xor_sync(~0u, best, d), __shfl_xor_sync(~0u, bestLow, d), best, bestLow);
        append(threadIdx.x % 32 == 0 && bestLow != 0, best, bestLow);
        __syncthreads();
        const int n = m.count;
#pragma unroll 1
        for (int i = 0; i < n; i++) take(key[i], low[i], best, bestLow);
        __syncthreads();
        if (threadIdx.x == 0) key[0] = best, low[0] = bestLow;
        __syncthreads();
        return min(n, 1);
    }
    __device__ static void take(K key, unsigned low, K& best, unsigned& bestLow) {
        if (low != 0 && (bestLow == 0 || !reaches(best, bestLow, key, low))) best = key, bestLow = low;
    }

    // select finds the k largest elements and returns how many there are, fewer if the source has fewer: in order, if sorted. There is room for a tile and
    // max(leastLimit, goal) candidates; goal is a power of two that is at least k.
    template <typename Source> __device__ int select(const Source& source, int k, int goal, bool sorted) {
        if (Source::isRow && k == 1) return largest(source);
        const int tile = perThread * blockDim.x, limit = max(goal, leastLimit), end = sorted || 2 * goal <= blockDim.x ? goal : k;
        if (threadIdx.x == 0) m.count = 0;
        __syncthreads();
        K tk = 0;
        unsigned tl = 0;
        T threshold = KeyOf<T>::value(tk); // NaN: nothing is below it
        T next[perThread];
        source.load(0, next);
        bool maxima = goal < blockDim.x; // whether the candidates are the threads' largest elements, for the first threshold
#pragma unroll 1
        for (unsigned base = 0;;) {
            const bool last = base >= source.n;
            bool full = false;
            T v[perThread];
#pragma unroll
            for (int j = 0; j < perThread; j++) v[j] = next[j];
            if (!maxima && (base += tile) < source.n) source.load(base, next);
            if (maxima) {
                K best = 0;
#pragma unroll
                for (int j = 0; j < perThread; j++) best = max(best, KeyOf<T>::of(v[j]));
                append(true, best, 0);
            } else if (!last) {
                unsigned wanted = 0; // elements
#pragma unroll
                for (int j = 0; j < perThread; j++) wanted |= v[j] < threshold ? 0 : 1 << j;
#pragma unroll 1
                while (__any_sync(~0u, wanted)) { // few threads want more than one
                    const int j = wanted ? __ffs(wanted) - 1 : 0;
                    T x = v[0];
#pragma unroll
                    for (int i = 1; i < perThread; i++)
                        if (i == j) x = v[i];
                    const K own = KeyOf<T>::of(x);
                    const unsigned at = wanted ? source.index(base - tile + source.place(j)) : none;
                    full = append(at != none && reaches(own, ~at, tk, tl), own, ~at) >= limit || full;
                    wanted &= wanted - 1;
                }
            }
            const bool over = __syncthreads_or(full);
            const int most = last ? end : goal;
            if (over || ((last || maxima) && m.count > most)) {
                tighten(m.count, k, most, tk, tl);
                threshold = KeyOf<T>::value(tk);
            }
            if (last) break;
            if (maxima) {
                __syncthreads();
                if (threadIdx.x == 0) m.count = 0;
                maxima = false;
                __syncthreads();
            }
        }
        const int n = m.count;
        __syncthreads();
        if (sorted || 2 * n <= blockDim.x) sort(n);
        return min(n, k);
    }
};
