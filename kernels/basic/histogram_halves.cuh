// Histograms of more bins than shared memory holds counters of 32 bits: counters of 16 bits, two in a word.
#pragma once
#include "histogram.cuh"

// What a thread of 1024 adds to a counter between two barriers, at most: with what the counter has at a barrier, less than halves_taken, it stays below 2^16.
constexpr unsigned halves_taken = 1 << 14, halves_between = 48;
static_assert(halves_taken + 1024 * halves_between <= 1 << 16);

// count_halves adds one to the block's counters of W bins, -1 for none. Who makes a counter pass a multiple of halves_taken, and no other, takes so many to the
// grid's. All have done so at a barrier, and a counter is less than that, however long a warp waited.
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
        if ((before ^ (before + more)) & ~(halves_taken - 1)) full |= 1u << k;
    }
    for (; full; full &= full - 1) {
        int k = bin[0];
#pragma unroll
        for (int i = 1; i < W; i++)
            if (full >> i & 1 && !(full & ((1u << i) - 1))) k = bin[i];
        atomicSub(&table[k >> 1], halves_taken << (k & 1) * 16);
        atomicAdd(&counts[k], (count_t)halves_taken);
    }
}
