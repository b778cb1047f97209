// Finds the last block of a cooperative launch to finish, by a word that the driver keeps for each such launch. No memory of ours has to
// be zeroed first, so one launch suffices in place of two.
#pragma once

// last_block reports, to thread `thread` of the block, whether this block is the last one to call it; its threads then see what thread 0 of
// the other blocks wrote in publish. The word is the one of cooperative groups' grid barrier (cooperative_groups/details/driver_abi.h and sync.h): its
// highest bit flips when the last block has arrived, so it is ready for the next launch. A grid of one block needs no
// cooperative launch.
template <typename Publish> __device__ __forceinline__ bool last_block(int thread, Publish publish) {
    __shared__ bool last;
    if (thread == 0) {
        publish();
        last = true;
        if (gridDim.x > 1) {
            unsigned lo, hi, before;
            asm("mov.u32 %0, %%envreg1;" : "=r"(hi));
            asm("mov.u32 %0, %%envreg2;" : "=r"(lo));
            const unsigned one = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
            __threadfence();
            before = atomicAdd(reinterpret_cast<unsigned*>((unsigned long long)hi << 32 | lo) + 1, one);
            __threadfence();
            last = (before ^ (before + one)) >> 31;
        }
    }
    __syncthreads();
    return last;
}
