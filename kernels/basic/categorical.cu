// categorical: one draw for each row of logits, with a temperature, of the k largest (top-k) and, of these, of the fewest whose probability is at least p (top-p).
//
// The mass of an element x is the whole number floor(exp((x - largest) / temperature) * 2^shift), so that sums of masses have the same bits in any order.
// A draw is an inverse of the cumulative sum: the first element, in an order, at which the sum exceeds u / 2^64 of the total, for 64 random bits u.
// Where k or p restricts the draw, the order is that of falling elements (select.cuh); else it is that of the indices.
//
//   no restriction   A warp sums chunks of 256 elements or more, each relative to the chunk's largest, and the row is read once. The chunk is found by these sums, and
//                    the element by reading the chunk again.
//   k <= 1024        The k largest are selected, and the row is read once.
//   p alone          The 1024 largest are selected, and the sum of all is computed. If the sum of the 1024 does not reach p, as if k > 1024, every
//                    limit and the draw itself is found digit by digit: bins in shared memory add up the masses by 11 bits of (key, low), the row is read for each digit.
//
// A temperature of 0 takes the largest. A row whose largest element (NaN above all) is not finite gives -1. Bound by memory.
#include "follow.cuh"
#include "grid_ticket.cuh"
#include "philox.cuh"
#include "select.cuh"

typedef unsigned long long u64;

constexpr int mostSelected = 1024; // as in categorical.go
constexpr int perThread = 8;        // elements that a thread reads at a time
constexpr int digitBits = 11, bins = 1 << digitBits;

extern __shared__ __align__(16) unsigned char shared[];

template <typename T> __device__ T infinity();
template <> __device__ float infinity() { return __int_as_float(0x7f800000); }
template <> __device__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
template <typename T> __device__ T least_normal();
template <> __device__ float least_normal() { return 0x1p-126f; }
template <> __device__ double least_normal() { return 0x1p-1022; }
__device__ inline u64 whole(float x) { return __float2ull_rz(x); }
__device__ inline u64 whole(double x) { return __double2ull_rz(x); }
__device__ inline u64 share(u64 u, u64 total) { return __umul64hi(u, total); }

// A chunk of a row: its largest element, Inf if it has an Inf or NaN, and the sum of exp((x - largest) / temperature).
template <typename T> struct alignas(2 * sizeof(T)) Chunk {
    T largest, sum;
};

// Operands of the draws, of each row (1) or of all rows (0).
template <typename T> struct Settings {
    const T* temperature;
    const long long* k;
    const T* p;
    int temperatureEach, kEach, pEach;
};

template <typename T> struct Draw {
    const T* x; // the row
    int n, k;   // k: 0 for no restriction
    T inverse;  // of the temperature
    double p;   // 1 for no restriction
    u64 u;
    T scale;    // of masses

    __device__ Draw(const T* logits, long long row, int n, const Settings<T>& s, const long long* state, unsigned stream) : x(logits + row * n), n(n) {
        const T temperature = s.temperature[row * s.temperatureEach];
        const long long wanted = s.k[row * s.kEach];
        p = (double)s.p[row * s.pEach];
        if (!(p < 1)) p = 1;
        k = wanted >= 1 && wanted < n ? (int)wanted : 0;
        inverse = T(1) / temperature;
        if (!(temperature >= least_normal<T>())) k = 1, inverse = 1, p = 1;
        const uint4 words = philox((u64)state[0], (unsigned)state[1], stream, row / 2);
        u = row % 2 ? (u64)words.w << 32 | words.z : (u64)words.y << 32 | words.x;
        scale = (T)(1ull << (30 + __clz(n)));
    }
    __device__ bool restricted() const { return k > 0 || p < 1; }
    // selected is how many elements are to be selected: if as many as k, only these are drawn from.
    __device__ int selected() const { return k > mostSelected ? 1 : k > 0 ? k : min(n, mostSelected); }
    __device__ u64 mass(T v, T largest) const {
        const T e = exp((v - largest) * inverse);
        return e > 0 ? whole(e * scale) : 0; // not NaN
    }
    // kept is the sum that the elements that p keeps have to reach, of those that add up to total.
    __device__ u64 kept(u64 total) const {
        if (p == 1) return total;
        const double wanted = ceil(p * (double)total);
        return wanted > 1 ? min((u64)wanted, total) : 1;
    }
};

// What find finds: element i, the sum before it, and its own mass.
struct Found {
    int i;
    u64 before, mass;
};

// before returns the sum of c over the threads before this one, and the sum over all threads.
__device__ u64 before(u64* sums, u64 c, u64& total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u64 sum = c;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u64 other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    __syncthreads(); // the last call's sums have been read
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u64 base = 0;
    total = 0;
    for (int w = 0; w < warps; w++) {
        if (w < warp) base += sums[w];
        total += sums[w];
    }
    return base + sum - c;
}

// find returns the first of n elements at which the sum of masses exceeds target(total), which is less than the total.
template <typename M, typename F> __device__ Found find(u64* sums, int n, M mass, F target) {
    __shared__ Found found;
    const int each = (n + blockDim.x - 1) / blockDim.x, first = min(n, (int)threadIdx.x * each), last = min(n, first + each);
    u64 own = 0, total;
#pragma unroll 1
    for (int i = first; i < last; i++) own += mass(i);
    u64 sum = before(sums, own, total);
    const u64 wanted = target(total);
    if (sum <= wanted && wanted < sum + own) {
#pragma unroll 1
        for (int i = first; i < last; i++) {
            const u64 m = mass(i);
            if (wanted < sum + m) {
                found = Found{i, sum, m};
                break;
            }
            sum += m;
        }
    }
    __syncthreads();
    const Found result = found;
    __syncthreads();
    return result;
}

template <typename T> __device__ u64 sum_masses(u64* sums, const Draw<T>& d, T largest, typename KeyOf<T>::K key, unsigned low) {
    u64 own = 0, total;
#pragma unroll 8
    for (int i = threadIdx.x; i < d.n; i += blockDim.x) {
        const T v = d.x[i];
        if (Candidates<T>::reaches(KeyOf<T>::of(v), ~(unsigned)i, key, low)) own += d.mass(v, largest);
    }
    before(sums, own, total);
    return total;
}

// descend returns the least of the largest elements whose weights add up to more than `rest`: their masses, or, if counted, 1 for each.
template <typename T>
__device__ void descend(u64* sums, const Draw<T>& d, T largest, bool counted, u64 rest, typename KeyOf<T>::K& key, unsigned& low) {
    using K = typename KeyOf<T>::K;
    unsigned* const lower = reinterpret_cast<unsigned*>(shared); // of the bins' sums
    unsigned* const upper = lower + bins;
    constexpr int keyBits = 8 * sizeof(K);
    key = 0, low = 0;
    for (int from = keyBits + 32; from > 0;) { // bits that are not known
        const int end = from > 32 ? 32 : 0, width = min(digitBits, from - end), to = from - width;
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * bins; i += blockDim.x) lower[i] = 0;
        __syncthreads();
        for (unsigned base = threadIdx.x; base < d.n; base += perThread * blockDim.x) {
            T values[perThread];
#pragma unroll
            for (int j = 0; j < perThread; j++) values[j] = base + j * blockDim.x < d.n ? d.x[base + j * blockDim.x] : T(0);
#pragma unroll
            for (int j = 0; j < perThread; j++) {
                const T v = values[j];
                const unsigned i = base + j * blockDim.x, ownLow = ~i;
                const K own = KeyOf<T>::of(v);
                unsigned digit;
                if (i >= d.n) continue;
                if (end == 32) {
                    if (from < keyBits + 32 && (own ^ key) >> (from - 32)) continue; // another prefix
                    digit = (unsigned)(own >> (to - 32)) & ((1u << width) - 1);
                } else {
                    if (own != key || (from < 32 && (ownLow ^ low) >> from)) continue;
                    digit = ownLow >> to & ((1u << width) - 1);
                }
                const u64 m = counted ? 1 : d.mass(v, largest);
                if (m == 0) continue;
                const unsigned add = (unsigned)m, was = atomicAdd(&lower[digit], add), more = (unsigned)(m >> 32) + (was + add < add);
                if (more) atomicAdd(&upper[digit], more);
            }
        }
        __syncthreads();
        const int all = 1 << width;
        const Found f = find(
            sums, all, [&](int i) { return (u64)upper[all - 1 - i] << 32 | lower[all - 1 - i]; }, [&](u64) { return rest; });
        const unsigned digit = all - 1 - f.i;
        rest -= f.before;
        if (end == 32) key |= (K)digit << (to - 32);
        else low |= digit << to;
        from = to;
    }
}

// draw returns the index that is drawn from a row, of which the d.selected() largest elements have been selected.
template <typename T> __device__ long long draw(u64* sums, const Draw<T>& d, const Candidates<T>& c, int selected) {
    using K = typename KeyOf<T>::K;
    const T largest = KeyOf<T>::value(c.key[0]);
    if (!(largest < infinity<T>() && largest > -infinity<T>())) return -1;
    const auto mass = [&](int i) { return d.mass(KeyOf<T>::value(c.key[i]), largest); };
    u64 all = 0; // the mass of all elements that k keeps
    bool enough = d.k > 0 && d.k <= mostSelected;
    if (d.k == 0) {
        u64 own = 0, total;
#pragma unroll 1
        for (int i = threadIdx.x; i < selected; i += blockDim.x) own += mass(i);
        before(sums, own, total);
        all = sum_masses<T>(sums, d, largest, 0, 0);
        enough = d.kept(all) <= total;
    }
    if (enough) {
        u64 kept = 0; // 0 if p keeps all
        if (d.p < 1) {
            const Found last = find(sums, selected, mass, [&](u64 total) { return d.kept(d.k == 0 ? all : total) - 1; });
            kept = last.before + last.mass;
        }
        return c.index(find(sums, selected, mass, [&](u64 total) { return share(d.u, kept > 0 ? kept : total); }).i);
    }
    K key = 0;
    unsigned low = 0;
    if (d.k > 0) {
        descend<T>(sums, d, largest, true, d.k - 1, key, low);
        all = sum_masses<T>(sums, d, largest, key, low);
    }
    if (d.p < 1) {
        descend<T>(sums, d, largest, false, d.kept(all) - 1, key, low);
        all = sum_masses<T>(sums, d, largest, key, low);
    }
    descend<T>(sums, d, largest, false, share(d.u, all), key, low);
    return ~low;
}

// sum_chunks sums the chunks [first, last) of a row, of `size` elements each, a multiple of 256.
template <typename T> __device__ void sum_chunks(const Draw<T>& d, Chunk<T>* chunks, int first, int last, int size) {
    constexpr int W = 16 / sizeof(T);
    const bool wide = d.n % W == 0;
    const int lane = threadIdx.x & 31;
    for (int chunk = first + (threadIdx.x >> 5); chunk < last; chunk += blockDim.x >> 5) {
        T largest = -infinity<T>(), sum = 0;
        bool bad = false;
        const int end = min(d.n, (chunk + 1) * size);
        for (int base = chunk * size; base < end; base += 32 * perThread) {
            T v[perThread];
            if (wide) {
#pragma unroll
                for (int j = 0; j < perThread; j += W) {
                    const int i = base + j * 32 + lane * W;
                    struct alignas(16) Words { T s[W]; } words;
                    if (i < end) words = *reinterpret_cast<const Words*>(d.x + i);
#pragma unroll
                    for (int w = 0; w < W; w++) v[j + w] = i < end ? words.s[w] : -infinity<T>();
                }
            } else {
#pragma unroll
                for (int j = 0; j < perThread; j++) v[j] = base + j * 32 + lane < end ? d.x[base + j * 32 + lane] : -infinity<T>();
            }
            T m = largest;
#pragma unroll
            for (int j = 0; j < perThread; j++) m = max(m, v[j]), bad = bad || !(v[j] < infinity<T>());
            const T finite = m > -infinity<T>() ? m : T(0);
            if (largest > -infinity<T>()) sum *= exp((largest - finite) * d.inverse);
#pragma unroll
            for (int j = 0; j < perThread; j++) {
                const T e = exp((v[j] - finite) * d.inverse);
                if (e > 0) sum += e;
            }
            largest = m;
        }
        T m = largest;
#pragma unroll
        for (int s = 16; s > 0; s /= 2) m = max(m, __shfl_xor_sync(~0u, m, s));
        if (largest > -infinity<T>()) sum *= exp((largest - m) * d.inverse);
#pragma unroll
        for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
        if (__any_sync(~0u, bad)) m = infinity<T>();
        if (lane == 0) chunks[chunk] = Chunk<T>{m, sum};
    }
}

// draw_chunks returns the index that is drawn from a row, given the sums of its chunks.
template <typename T> __device__ long long draw_chunks(u64* sums, const Draw<T>& d, const Chunk<T>* chunks, int count, int size) {
    __shared__ T maxima[32];
    T largest = -infinity<T>();
    for (int i = threadIdx.x; i < count; i += blockDim.x) largest = max(largest, chunks[i].largest);
#pragma unroll
    for (int s = 16; s > 0; s /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, s));
    if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) largest = max(largest, maxima[w]);
    if (!(largest < infinity<T>() && largest > -infinity<T>())) return -1;
    u64 target;
    const Found chunk = find(
        sums, count,
        [&](int i) {
            const T m = chunks[i].largest, e = m > -infinity<T>() ? exp((m - largest) * d.inverse) * chunks[i].sum : T(0);
            return e > 0 ? whole(e * d.scale) : 0;
        },
        [&](u64 total) { return target = share(d.u, total); });
    const double part = (double)(target - chunk.before) / (double)chunk.mass; // of the chunk's sum
    const int first = chunk.i * size;
    const T own = chunks[chunk.i].largest;
    const Found element = find(
        sums, min(size, d.n - first), [&](int i) { return d.mass(d.x[first + i], own); },
        [&](u64 total) { return min((u64)(part * (double)total), total - 1); });
    return first + element.i;
}

// A row has `parts` parts of chunksEach chunks. Blocks are numbered by (part, row), those of a second launch, where `joins` is not 0, by row. A part lists up to
// mostSelected elements.
template <typename T>
__device__ void categorical(const T* logits, const Settings<T>& s, const long long* state, long long* out, Entry<T>* list, Chunk<T>* all, unsigned* arrivals,
                            int n, unsigned stream, int chunks, int size, int parts, int chunksEach, int joins) {
    __shared__ SelectMemory memory;
    __shared__ u64 sums[32];
    follow();
    const long long row = joins ? blockIdx.x : blockIdx.x / parts;
    const Draw<T> d(logits, row, n, s, state, stream);
    Chunk<T>* const own = parts > 1 ? all + row * chunks : reinterpret_cast<Chunk<T>*>(shared);
    int goal = 2, found = 0;
    while (goal < 2 * d.selected()) goal *= 2;
    const int most = min(goal, mostSelected);
    Candidates<T> c(shared, d.selected(), goal, memory);
    list += row * parts * mostSelected;
    if (!joins) {
        const int part = blockIdx.x % parts, first = part * chunksEach, last = min(chunks, first + chunksEach);
        if (d.restricted()) {
            const unsigned from = (unsigned)first * size;
            found = c.select(d.x, from, min(n - (int)from, chunksEach * size), d.selected(), goal, most, parts == 1);
            if (parts > 1) c.store(list + part * most, found, most);
        } else sum_chunks(d, own, first, last, size);
        if (parts > 1 && gridDim.x != parts) return;
        __syncthreads();
        if (parts > 1 && !last_block(threadIdx.x, arrivals, [] {})) return;
    }
    long long drawn;
    if (d.restricted()) {
        if (parts > 1) found = c.join(list, parts * most, d.selected(), goal);
        drawn = draw(sums, d, c, min(found, d.selected()));
    } else drawn = draw_chunks(sums, d, own, chunks, size);
    if (threadIdx.x == 0) out[row] = drawn;
}

#define SETTINGS(T) const T *temperature, const long long *k, const T *p, int temperatureEach, int kEach, int pEach
#define SETTINGS_OF {temperature, k, p, temperatureEach, kEach, pEach}

#define CATEGORICAL(name, T)                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(threadsMax, blocksPerSM<T>)                                                                     \
        categorical_##name(const T* logits, SETTINGS(T), const long long* state, int n, int stream, int chunks, int size,                        \
                           long long* out, Entry<T>* list, T* sums, unsigned* arrivals, int parts, int chunksEach, int joins) { \
        categorical<T>(logits, SETTINGS_OF, state, out, list, reinterpret_cast<Chunk<T>*>(sums), arrivals, n, stream, chunks, size,        \
                       parts, chunksEach, joins);                                                                                                \
    }

CATEGORICAL(f32, float)
CATEGORICAL(f64, double)
