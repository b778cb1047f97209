// Finds the last block of a launch to finish, by a word that is zero before the launch and after it (kernels.Arrivals): one launch suffices in place of two,
// and no block waits for another.
#pragma once

// last_block reports, to thread `thread` of the block, whether this block is the last one to call it; its threads then see what thread 0 of
// the other blocks wrote in publish, and what their other threads wrote before a barrier that precedes the call. The atomic releases and acquires at the
// scope of the device: fences around it (__threadfence, fence.sc) take longer.
template <typename Publish> __device__ __forceinline__ bool last_block(int thread, unsigned* arrivals, Publish publish) {
    __shared__ bool last;
    if (thread == 0) {
        publish();
        unsigned before;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(__cvta_generic_to_global(arrivals)), "r"(gridDim.x - 1) : "memory");
        last = before == gridDim.x - 1; // the last one makes it zero
    }
    __syncthreads();
    return last;
}
