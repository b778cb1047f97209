// Finds the last block of a launch to finish, by a word that is zero before the launch and after it (kernels.Arrivals): one launch suffices in place of two,
// and no block waits for another.
#pragma once

// last_block reports, to thread `thread` of the block, whether this block is the last one to call it; its threads then see what thread 0 of
// the other blocks wrote in publish.
template <typename Publish> __device__ __forceinline__ bool last_block(int thread, unsigned* arrivals, Publish publish) {
    __shared__ bool last;
    if (thread == 0) {
        publish();
        __threadfence();
        last = atomicInc(arrivals, gridDim.x - 1) == gridDim.x - 1; // the last one makes it zero
        __threadfence();
    }
    __syncthreads();
    return last;
}
