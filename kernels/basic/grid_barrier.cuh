// A barrier of all blocks of a grid, on a counter in global memory. All blocks must be on the device at once: otherwise those that are
// wait for ever for the others. versions/barriers.cuh has other barriers, and explains how they fail.
#pragma once

// grid_barrier waits until all blocks have called it for the phase-th time, phases counted from 1. After it all threads see what any
// thread wrote before it. One thread of each block does it, between two barriers of the block. The counter is 0 at first and only grows. The
// fences are part of the memory operations: release publishes a block's writes, acquire makes those of others visible.
__device__ inline void grid_barrier(unsigned* counter, unsigned phase) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned all = phase * gridDim.x;
        unsigned seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        while ((int)(seen - all) < 0);
    }
    __syncthreads();
}
