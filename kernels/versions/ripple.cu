// A picture of amplitude(ix, iy) = (1 + sin(2 pi (ix - 64) / 256)) (1 + sin(2 pi (iy - 64) / 256)),
// each 16 x 16 tile of it turned by 180 degrees:
//
//   out[16 by + ty][16 bx + tx] = amplitude(16 bx + 15 - tx, 16 by + 15 - ty)
//
// One block per tile, one thread per element. A thread computes its element into
// shared memory and stores the one that the thread opposite has computed, which
// another warp may run: there must be a barrier between.
//
//   ripple_shared  has the barrier.
//   ripple_racy    has none, to show what happens then. Which elements are right
//                  depends on which warps are first. It is wrong on purpose:
//                  no result is checked and nothing else uses it.

// A device function: it is compiled into the kernels that call it. The argument of sinpi is
// exact.
template <typename T> __device__ T amplitude(int ix, int iy) {
    return (1 + sinpi((ix - 64) / T(128))) * (1 + sinpi((iy - 64) / T(128)));
}

template <typename T, bool BARRIER> __device__ void ripple(T* out) {
    __shared__ T tile[16][16];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int ix = blockIdx.x * 16 + tx, iy = blockIdx.y * 16 + ty;
    tile[ty][tx] = amplitude<T>(ix, iy);
    if (BARRIER) __syncthreads();
    out[(long long)iy * (gridDim.x * 16) + ix] = tile[15 - ty][15 - tx];
}

extern "C" __global__ void ripple_shared_f32(float* out) { ripple<float, true>(out); }
extern "C" __global__ void ripple_shared_f64(double* out) { ripple<double, true>(out); }
extern "C" __global__ void ripple_racy_f32(float* out) { ripple<float, false>(out); }
extern "C" __global__ void ripple_racy_f64(double* out) { ripple<double, false>(out); }
