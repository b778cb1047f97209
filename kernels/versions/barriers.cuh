// Barriers of all blocks of a grid, on counters in global memory, in several ways. All blocks must be on the device at once: otherwise
// those that are wait for ever for the others.
#pragma once
#include "grid_barrier.cuh"

enum Wait { NONE, BLOCK, WRAP, VOLATILE, ACQUIRE, FLIP };

// barrier waits until all blocks have called it for the phase-th time, phases counted from 1. After it all threads see what any
// thread wrote before it. One thread of each block does it, between two barriers of the block. NONE and BLOCK are WRONG on purpose.
//
// A counter that goes back to 0 when the last block arrives, with blocks that wait for the 0, can hang: a fast block arrives at the next
// barrier and makes it 1 before a slow one has looked. Two alternating counters cannot hang: a block reaches barrier i + 2 only after
// all blocks have reached barrier i + 1, and therefore left barrier i. A counter that only grows needs no second counter.
template <Wait W> __device__ void barrier(unsigned* counter, unsigned phase) {
    if (W == NONE) return;
    if (W == ACQUIRE) return grid_barrier(counter, phase);  // the op's own
    __syncthreads();
    if (W == BLOCK) return;
    if (threadIdx.x == 0) {
        if (W == WRAP) {
            unsigned* turn = counter + phase % 2;
            volatile unsigned* look = turn;  // or the compiler reads once and spins on a register
            __threadfence();
            atomicInc(turn, gridDim.x - 1);  // 0, 1, ..., gridDim.x - 1, 0: the last block's is back to 0
            __threadfence();                 // the 0 of before this block came must not end the wait
            while (*look != 0) {
            }
            __threadfence();
        }
        if (W == VOLATILE) {
            const unsigned all = phase * gridDim.x;
            volatile unsigned* look = counter;
            __threadfence();
            atomicAdd(counter, 1);
            while ((int)(*look - all) < 0) {
            }
            __threadfence();
        }
        if (W == FLIP) {
            // As grid.sync does it: the blocks' additions make 2^31 together, so the last one flips the top bit and leaves the others 0.
            // Such a counter needs no phase and is ready for the next launch.
            volatile unsigned* look = counter;
            __threadfence();
            const unsigned old = atomicAdd(counter, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
            while (((*look ^ old) & 0x80000000u) == 0) {
            }
            __threadfence();
        }
    }
    __syncthreads();
}
