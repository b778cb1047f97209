// Blocks of random words: Philox4x32-10, as package philox has it.
#pragma once

// philox returns block number b of a stream, given the seed and the number of the run.
__device__ inline uint4 philox(unsigned long long seed, unsigned run, unsigned stream, unsigned long long b) {
    uint4 c = make_uint4((unsigned)b, (unsigned)(b >> 32), stream, run);
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned hi0 = __umulhi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x, hi1 = __umulhi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
        c = make_uint4(hi1 ^ c.y ^ k0, lo1, hi0 ^ c.w ^ k1, lo0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}
