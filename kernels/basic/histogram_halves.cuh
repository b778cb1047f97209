// Histograms of more bins than shared memory holds counters of 32 bits: counters of 16 bits, two in a word.
#pragma once
#include "histogram.cuh"

// count_halves adds one to the block's counters of W bins, -1 for none. 2^15 of a counter that comes to them go to the grid's: the thread that takes it
// there, and no other, sees that it did. The caller has barriers, between which the block adds less than 2^15 to a counter, so none overflows.
// Equal bins are counted at once: if all are, their atomics wait for one another.
template <int W> __device__ __forceinline__ void count_halves(const int (&bin)[W], count_t* counts) {
    bool same = true;
#pragma unroll
    for (int k = 1; k < W; k++) same = same && bin[k] == bin[0];
    const unsigned more = same ? W : 1;
    unsigned full = 0;
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (bin[k] < 0 || k > 0 && same) continue;
        const int shift = (bin[k] & 1) * 16;
        const unsigned before = atomicAdd(&table[bin[k] >> 1], more << shift) >> shift & 0xffff;
        if (before < 0x8000 && before + more >= 0x8000) full |= 1u << k;
    }
    for (; full; full &= full - 1) {
        int k = bin[0];
#pragma unroll
        for (int i = 1; i < W; i++)
            if (full >> i & 1 && !(full & ((1u << i) - 1))) k = bin[i];
        atomicSub(&table[k >> 1], 0x8000u << (k & 1) * 16);
        atomicAdd(&counts[k], (count_t)0x8000);
    }
}
