// out = identity op f(x[0]) op f(x[1]) op ..., for an operator and a function of the
// user's: ops.Reduce(x, "a + b*b", 0) adds up squares.
//
// As compiled here, the kernel adds up x. Two of its lines are replaced for other expressions:
// the step from an accumulator and an element to the next accumulator, and the join of
// two accumulators. In the PTX both are instructions marked by a comment; expression.go
// replaces them by those of the expression, with the registers that the compiler
// chose. So the loop below is compiled once, and an expression adds only its own
// instructions.
//
// Block b reduces chunk b in 16-byte vectors, four in flight, the last ones too. The block that is the last to finish joins the chunks' results.
//
// Accumulators are double. 4 bytes of traffic and, for a + b, one DADD per float32
// element: bound by memory. An operator that takes 8 instructions still is.
#include "follow.cuh"
#include "grid_ticket.cuh"
#include "vector.cuh"

__device__ __forceinline__ double step(double a, double b) {
    double r;
    asm("add.f64 %0, %1, %2; // STEP" : "=d"(r) : "d"(a), "d"(b));
    return r;
}

// last_step is step, and no instruction that the compiler executes where its result is not used: most threads have fewer vectors in the last round than
// are in flight, and an expression may be long.
__device__ __forceinline__ double last_step(double a, double b) {
    double r;
    asm volatile("add.f64 %0, %1, %2; // STEP" : "=d"(r) : "d"(a), "d"(b));
    return r;
}

__device__ __forceinline__ double join(double a, double b) {
    double r;
    asm("add.f64 %0, %1, %2; // JOIN" : "=d"(r) : "d"(a), "d"(b));
    return r;
}

// block_join joins the accumulators of a block of 2^i warps; thread 0 has the result.
__device__ inline double block_join(double v, double identity) {
    __shared__ double warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = join(v, __shfl_down_sync(0xffffffffu, v, d));
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    if (warp > 0) return v;
    v = lane < blockDim.x / 32 ? warps[lane] : identity;
#pragma unroll 1 // blocks of 8 warps mostly
    for (int d = blockDim.x / 64; d > 0; d /= 2) v = join(v, __shfl_down_sync(0xffffffffu, v, d));
    return v;
}

// Block b: parts[b] = the reduction of in[b chunk] .. in[min((b + 1) chunk, n) - 1], and out that of
// parts. chunk is a multiple of a vector, and in starts at a 16-byte boundary.
template <typename T>
__device__ __forceinline__ void reduce(const T* __restrict__ in, T* __restrict__ out, double* parts, unsigned* arrivals, long long n, long long chunk, double identity) {
    constexpr int W = Vec<T>::width, FLIGHT = 4;
    const long long first = blockIdx.x * chunk, count = min(chunk, n - first), vectors = count / W;
    const typename Vec<T>::type* v = reinterpret_cast<const typename Vec<T>::type*>(in + first);
    double acc[FLIGHT];
    admit();
    follow();
#pragma unroll
    for (int f = 0; f < FLIGHT; f++) acc[f] = identity;
    long long i = threadIdx.x;
    for (; (i | 31) + (FLIGHT - 1) * blockDim.x < vectors; i += FLIGHT * blockDim.x) { // of whole warps: others would load twice, one after the other
        Pack<T> x[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) x[f].v = v[i + f * blockDim.x];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
            for (int k = 0; k < W; k++) acc[f] = step(acc[f], (double)x[f].s[k]);
    }
    if (i < vectors) {
        Pack<T> x[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) x[f].v = i + f * blockDim.x < vectors ? v[i + f * blockDim.x] : typename Vec<T>::type{};
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            if (i + f * blockDim.x >= vectors) break;
#pragma unroll
            for (int k = 0; k < W; k++) acc[f] = last_step(acc[f], (double)x[f].s[k]);
        }
    }
    const long long tail = vectors * W + threadIdx.x;
    if (tail < count) acc[1] = step(acc[1], (double)in[first + tail]);
    double all = block_join(join(join(acc[0], acc[1]), join(acc[2], acc[3])), identity);
    if (gridDim.x > 1) {
        if (!last_block(threadIdx.x, arrivals, [&] { parts[blockIdx.x] = all; })) return;
        all = identity;
        for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) all = join(all, __ldcg(parts + i));
        all = block_join(all, identity);
    }
    if (threadIdx.x == 0) *out = (T)all;
}

#define REDUCE(S, T)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                    \
        reduce_##S(const T* in, T* out, double* parts, unsigned* arrivals, long long n, long long chunk, double identity) {                      \
        reduce(in, out, parts, arrivals, n, chunk, identity);                                                                          \
    }

REDUCE(f32, float)
REDUCE(f64, double)
