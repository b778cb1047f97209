// y[r] = sum over l of x[r][l] * v[l], for many short rows of any alignment. Bound by memory. float32 sums in float32, float64 in float64, by FMA.
//
// A slice is a contiguous array of R whole rows, and R a multiple of 4, so all slices begin at the same place within 16 bytes. Blocks take slices in turn: a bulk copy loads a slice to shared
// memory, with STAGES - 1 slices in flight, and each row is summed there by one or several threads. A bulk copy is of multiples of 16 bytes, so it begins up to 12 bytes early and ends up to
// 12 bytes late; elements behind the last 16 bytes of the matrix are loaded one by one. The block prefetches its first slice to L2 before it waits for prerequisite kernels.
//
// The epilogue is applied to the sums (epilogue.cuh).
//stheno:targets sm_90a ptx
#include "epilogue.cuh"
#include "follow.cuh"
#include "place.cuh"
#include "wgmma.cuh"

#if __CUDA_ARCH__ == 900
constexpr int THREADS = 256, STAGES = 3, PAD = 32; // PAD: bytes that a slice has beside its elements
extern __shared__ float4 dynamic[];

// down is the address rounded down to 16 bytes.
template <typename T> __device__ __forceinline__ const T* down(const T* p) { return reinterpret_cast<const T*>(reinterpret_cast<u64>(p) & ~15ull); }

// span returns the bytes of the bulk copy of n elements from p on, which reads nothing beyond end.
template <typename T> __device__ __forceinline__ int span(const T* p, int n, const T* end) {
    const u64 last = reinterpret_cast<u64>(p + n), up = last + 15 & ~15ull;
    return (int)((up <= reinterpret_cast<u64>(end) ? up : last & ~15ull) - reinterpret_cast<u64>(down(p)));
}

__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes, u64* full) {
    if (bytes > 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full)) : "memory");
}
// prefetch prefetches a slice to L2, without a branch: before the wait one would count as a way past it.
__device__ __forceinline__ void prefetch(const void* from, int bytes, bool is) {
    asm volatile("{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n@wanted cp.async.bulk.prefetch.L2.global [%0], %1;\n}" ::"l"(from), "r"(bytes), "r"((int)is) : "memory");
}
// open initializes the barriers of the stages, waits for the prerequisite kernels, and synchronizes the block.
__device__ __forceinline__ void open(u64* full) {
    if (threadIdx.x < STAGES) {
        barrier_init(shared_address(full + threadIdx.x), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    admit();
    follow();
    __syncthreads();
}

// Ring is the stage of a slice and the parity of its barrier.
struct Ring {
    int stage = 0, parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ int last() const { return stage == 0 ? STAGES - 1 : stage - 1; } // the stage of the slice before, which the slice STAGES - 1 ahead takes
};

template <typename T>
__device__ void shortRows(const T* x, const T* v, T* y, i64 m, int k, int R, int lanes, const Epilogue<T>& epilogue) {
    constexpr int W = Vec<T>::width;
    __shared__ u64 full[STAGES];
    __shared__ T partial[THREADS];
    const int t = threadIdx.x, pitch = (R * k * (int)sizeof(T) + 15 & -16) + PAD;
    const T* const end = x + m * k;
    {
        const T* const p = x + (i64)(blockIdx.x * R) * k;
        const int bytes = span(p, (int)min(m - blockIdx.x * R, (i64)R) * k, end);
        prefetch(down(p), bytes, t == 0 && bytes > 0);
    }
    open(full);
    const i64 slices = (m + R - 1) / R;
    char* const stage = reinterpret_cast<char*>(dynamic);
    T* const factors = reinterpret_cast<T*>(stage + STAGES * pitch);
    const auto copy = [&](i64 i, int to) {
        if (t > 0 || i >= slices) return;
        const T* const p = x + i * R * k;
        const int bytes = span(p, (int)min(m - i * R, (i64)R) * k, end);
        barrier_expect(shared_address(full + to), bytes);
        bulk_copy(stage + to * pitch, down(p), bytes, full + to);
    };
    for (int s = 0; s < STAGES - 1; s++) copy(blockIdx.x + s * gridDim.x, s);
    for (int l = t; l < k; l += THREADS) factors[l] = v[l];
    __syncthreads();
    // `lanes` threads of a row have every lanes-th of its units, elements or 16 bytes where rows begin at multiples of 16 bytes: so many that the threads that read at once read different banks.
    // A block has `wide` rows at a time. The groups of wide * lanes threads have consecutive parts of K.
    const bool vectors = k % W == 0 && place(x) == 0;
    const int wide = min(R, THREADS / lanes), groups = THREADS / (wide * lanes), units = vectors ? k / W : k, part = (units + groups - 1) / groups + lanes - 1 & -lanes;
    const int lane = t & lanes - 1, group = t / lanes / wide, first = group * part + lane, last = min(group * part + part, units);
    Ring ring;
    for (i64 i = blockIdx.x; i < slices; i += gridDim.x, ring.next()) {
        const i64 row0 = i * R;
        const int count = (int)min(m - row0, (i64)R);
        copy(i + (STAGES - 1) * gridDim.x, ring.last());
        barrier_wait(shared_address(full + ring.stage), ring.parity);
        T* const slice = reinterpret_cast<T*>(stage + ring.stage * pitch) + place(x);
        if (i == slices - 1) {
            if (t < place(end)) slice[count * k - 1 - t] = end[-1 - t];
            __syncthreads();
        }
        for (int row = t / lanes % wide; row < R; row += wide) {
            T sum = 0;
            if (row < count) {
                const T* const p = slice + row * k;
                if (vectors) {
#pragma unroll 4
                    for (int l = first; l < last; l += lanes) {
                        const Pack<T> a = reinterpret_cast<const Pack<T>*>(p)[l], f = reinterpret_cast<const Pack<T>*>(factors)[l];
#pragma unroll
                        for (int e = 0; e < W; e++) sum += a.s[e] * f.s[e];
                    }
                } else {
#pragma unroll 8
                    for (int l = first; l < last; l += lanes) sum += p[l] * factors[l];
                }
            }
            for (int d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
            int r = lane == 0 ? row : R; // that the thread writes
            if (groups > 1) {
                if (lane == 0) partial[group * R + row] = sum;
                __syncthreads();
                r = t, sum = 0;
                if (t < count)
                    for (int g = 0; g < groups; g++) sum += partial[g * R + t];
            }
            if (r < count) y[row0 + r] = epilogue.of(sum, 0, row0 + r, 0);
        }
        __syncthreads();
    }
}

#define ON_HOPPER(...) __VA_ARGS__
#else // only plans for 9.0 launch these: elsewhere the entry points are empty
#define ON_HOPPER(...)
#endif

#define VECTOR(T, suffix)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 2) matmul_bulk_short_##suffix(                                     \
        const T* a, const T* v, T* c, i64 count, i64 k, i64 batch, int rows, int lanes, EPILOGUE_ARGUMENTS(T)) {         \
        ON_HOPPER(shortRows(a, v, c, count, (int)k, rows, lanes, EPILOGUE(T));)                                          \
    }
VECTOR(float, f32)
VECTOR(double, f64)
