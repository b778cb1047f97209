// A barrier of all blocks of a grid, on a counter in global memory. All blocks must be on the device at once, or those that are there wait
// for ever for the others. versions/barriers.cuh has others, and what can go wrong.
#pragma once

// grid_barrier waits until all blocks have called it for the phase-th time, phases counted from 1; what threads wrote before, all
// threads see after. One thread of each block does it, between two barriers of the block. The counter is 0 at first and only grows. The
// fences are in the memory operations: release what was written, acquire what others wrote.
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
