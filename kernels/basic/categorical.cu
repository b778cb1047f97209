// categorical: one draw for each row of logits, with a temperature, of the k largest (top-k) and, of these, of the fewest whose probability is at least p (top-p).
//
// The mass of an element x is the whole number floor(exp((x - largest) / temperature) * 2^shift), so that sums of masses have the same bits in any order.
// A draw is an inverse of the cumulative sum: the first element, in an order, at which the sum exceeds u / 2^64 of the total, for 64 random bits u.
// A draw that k or p restricts goes through the elements in descending order (select.cuh), another draw in the order of indices.
//
//   no restriction   A warp sums chunks of 256 elements or more, each relative to the chunk's largest, and the row is read once. The chunk is found by these sums, and
//                    the element by reading the chunk again.
//   k <= 1024        The k largest are selected, and the row is read once.
//   others           The limits of k and of p, and the draw itself, are found by sums of masses of all elements: bins in shared memory add up the masses of elements that are about as
//                    far below the largest, and the elements of one bin are compared each with each. The row is read for the largest, for the bins, and for the elements of each limit.
//
// A temperature of 0 takes the largest. A row whose largest element (NaN above all) is not finite gives -1. Bound by memory.
#include "follow.cuh"
#include "grid_ticket.cuh"
#include "philox.cuh"
#include "select.cuh"

typedef unsigned long long u64;

constexpr int mostSelected = 1024; // as in categorical.go
constexpr int perThread = 8;        // elements that a thread reads at a time
// Bins of masses, which fall to 0 within a factor of e^43, and the elements that are compared. As in categorical.go.
constexpr int massBits = 12, massBins = 1 << massBits, binsPerE = massBins / 43, binElements = 1 << 10;

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
    // selected is how many elements are to be selected: all that k keeps, if they are few, else the largest.
    __device__ int selected() const { return !selects_all() ? 1 : k > 0 ? k : n; }
    __device__ bool selects_all() const { return k > 0 ? k <= mostSelected : n <= mostSelected; }
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

// each_of calls f with the elements of a row and their indices. Meanwhile the next ones are loaded.
template <typename T, typename F> __device__ __forceinline__ void each_of(const Draw<T>& d, F f) {
    T values[perThread], next[perThread];
    const auto load = [&](unsigned base) {
#pragma unroll
        for (int j = 0; j < perThread; j++)
            if (base + j * blockDim.x < d.n) next[j] = d.x[base + j * blockDim.x];
    };
    load(threadIdx.x);
#pragma unroll 1
    for (unsigned base = threadIdx.x; base < d.n; base += perThread * blockDim.x) {
#pragma unroll
        for (int j = 0; j < perThread; j++) values[j] = next[j];
        load(base + perThread * blockDim.x);
#pragma unroll
        for (int j = 0; j < perThread; j++)
            if (base + j * blockDim.x < d.n) f(values[j], base + j * blockDim.x);
    }
}

// An element of a row as it is ordered, and the sum of the weights from the largest element through it.
template <typename T> struct Limit {
    typename KeyOf<T>::K key;
    unsigned low;
    u64 through;
};

// Search finds elements by sums of weights, which are the masses or, if counted, 1 for each. The weights of a row are added up in bins, first by how far elements are below the largest,
// which leaves few in a bin: those of one bin are listed and compared each with each. If there are too many, their keys are divided into bins again, until all are equal.
template <typename T> struct Search {
    using K = typename KeyOf<T>::K;
    unsigned lower[massBins], upper[massBins]; // halves of the sums, from the largest elements on
    u64 weight[binElements];
    K key[binElements];
    unsigned low[binElements];
    K least, most; // keys of the elements of a bin
    int count;
    Limit<T> found;

    __device__ static u64 weight_of(const Draw<T>& d, T v, T largest, bool counted) { return counted ? 1 : d.mass(v, largest); }

    // bin_of returns the bin of an element: by its key between bottom and top, -1 for others, or, if shift is negative, by its distance. The larger of two elements is in no later bin.
    __device__ static int bin_of(const Draw<T>& d, T v, T largest, K bottom, K top, int shift) {
        if (shift < 0) {
            const T far = (largest - v) * d.inverse * T(binsPerE);
            return far < T(massBins - 1) ? (int)far : massBins - 1;
        }
        const K own = KeyOf<T>::of(v);
        return own >= bottom && own <= top ? (int)((top - own) >> shift) : -1;
    }

    __device__ void fill(const Draw<T>& d, T largest, bool counted, K bottom, K top, int shift) {
        __syncthreads();
        for (int i = threadIdx.x; i < massBins; i += blockDim.x) lower[i] = upper[i] = 0;
        __syncthreads();
        each_of(d, [&](T v, unsigned) {
            const u64 w = weight_of(d, v, largest, counted);
            const int bin = bin_of(d, v, largest, bottom, top, shift);
            if (w == 0 || bin < 0) return;
            const unsigned add = (unsigned)w, was = atomicAdd(&lower[bin], add), more = (unsigned)(w >> 32) + (was + add < add);
            if (more) atomicAdd(&upper[bin], more);
        });
        __syncthreads();
    }

    // locate returns the first element, in falling order, at which the sum of weights exceeds target(total), which is less than the total. Bins that are filled are those of all masses; it
    // reports whether they still are.
    template <typename F> __device__ Limit<T> locate(u64* sums, const Draw<T>& d, T largest, bool counted, bool& filled, F target) {
        K bottom = 0, top = 0;
        u64 rest = 0, before = 0;
        int shift = -1, n;
#pragma unroll 1
        for (;;) {
            if (!filled) fill(d, largest, counted, bottom, top, shift);
            const Found f = find(
                sums, massBins, [&](int i) { return (u64)upper[i] << 32 | lower[i]; }, [&](u64 total) { return shift < 0 ? rest = target(total) : rest; });
            rest -= f.before, before += f.before;
            if (threadIdx.x == 0) count = 0, least = ~K(0), most = 0;
            __syncthreads();
            K from = ~K(0), to = 0;
            each_of(d, [&](T v, unsigned i) {
                if (bin_of(d, v, largest, bottom, top, shift) != f.i) return;
                const u64 w = weight_of(d, v, largest, counted);
                if (w == 0) return;
                const K own = KeyOf<T>::of(v);
                from = min(from, own), to = max(to, own);
                const int place = *(volatile int*)&count > binElements ? binElements : atomicAdd(&count, 1);
                if (place < binElements) weight[place] = w, key[place] = own, low[place] = ~i;
            });
            if (from <= to) atomicMin(&least, from), atomicMax(&most, to);
            __syncthreads();
            n = count, bottom = least, top = most;
            filled = !counted && shift < 0;
            if (n <= binElements || bottom == top) break;
            shift = max(64 - __clzll((u64)(top - bottom)) - massBits, 0);
            filled = false;
        }
        if (n > binElements) { // equal ones, in the order of their indices
            const u64 w = weight_of(d, KeyOf<T>::value(top), largest, counted);
            const Found f = find(
                sums, d.n, [&](int i) { return KeyOf<T>::of(d.x[i]) == top ? w : 0; }, [&](u64) { return rest; });
            return {top, ~(unsigned)f.i, before + f.before + w};
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const K own = key[i];
            const unsigned ownLow = low[i];
            u64 through = 0;
#pragma unroll 4
            for (int j = 0; j < n; j++)
                if (Candidates<T>::reaches(key[j], low[j], own, ownLow)) through += weight[j];
            if (rest < through && through - weight[i] <= rest) found = {own, ownLow, before + through};
        }
        __syncthreads();
        const Limit<T> result = found;
        __syncthreads();
        return result;
    }
};

// search returns the index that is drawn from a row by sums of all masses. It is a call of its own, so that other draws have their registers.
template <typename T> __device__ __noinline__ long long search(u64* sums, const Draw<T> d, T largest) {
    Search<T>& weights = *reinterpret_cast<Search<T>*>(shared);
    Limit<T> limit;
    u64 kept = 0; // the mass of all elements that k and p keep, 0 before these
    bool filled = false;
#pragma unroll 1
    for (int by = d.k > 0 ? 0 : 1; by < 3; by++) { // k, p, the draw
        if (by == 1 && d.p == 1) continue;
        limit = weights.locate(sums, d, largest, by == 0, filled, [&](u64 total) {
            const u64 all = kept > 0 ? kept : total;
            return by == 0 ? (u64)d.k - 1 : by == 1 ? d.kept(all) - 1 : share(d.u, all);
        });
        kept = by == 0 ? sum_masses<T>(sums, d, largest, limit.key, limit.low) : limit.through;
    }
    return ~limit.low;
}

// draw returns the index that is drawn from a row, of which the d.selected() largest elements have been selected.
template <typename T> __device__ long long draw(u64* sums, const Draw<T>& d, const Candidates<T>& c, int selected) {
    using K = typename KeyOf<T>::K;
    const T largest = KeyOf<T>::value(c.key[0]);
    if (!(largest < infinity<T>() && largest > -infinity<T>())) return -1;
    const auto mass = [&](int i) { return d.mass(KeyOf<T>::value(c.key[i]), largest); };
    if (d.selects_all()) {
        u64 kept = 0; // 0 if p keeps all
        if (d.p < 1) {
            const Found last = find(sums, selected, mass, [&](u64 total) { return d.kept(total) - 1; });
            kept = last.before + last.mass;
        }
        return c.index(find(sums, selected, mass, [&](u64 total) { return share(d.u, kept > 0 ? kept : total); }).i);
    }
    return search<T>(sums, d, largest);
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
