// How the threads of a block add up one value each, step by step: the parts of the
// numbered versions of sums. Results are in thread 0. All of them
// add in an order that is fixed by the thread numbers.
//
// `s` holds one double for each thread of the block. The barrier before the
// first read makes every thread's value visible to the others; it must be
// reached by all threads, so it stands outside of any branch on the thread's
// number. (A barrier inside such a branch waits for threads that never come: the
// block hangs.)
#pragma once
#include "reduce.cuh"

// naive_sum: thread 0 adds all values, the other threads wait for it. As many
// steps as there are threads.
__device__ inline double naive_sum(double v, double* s) {
    s[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int t = 1; t < blockDim.x; t++) v += s[t];
    return v;
}

// tree_sum: in each step the lower half of the threads adds the values of the
// upper half to its own, log2(threads) steps with a barrier each. `threads` is a
// power of two.
__device__ inline double tree_sum(double v, double* s, int tid, int threads) {
    s[tid] = v;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half];
        __syncthreads();
    }
    return s[0];
}

// Blocks that add into one cell of memory: it is cleared by a launch before and
// rounded into the result by a launch after, since the blocks cannot know
// which comes first and which last. `lock` is for the versions that guard the cell.
struct Cell {
    double sum;
    int lock;
};
