// Indices of uint8, int32 or int64.
#pragma once

struct Indices {
    const unsigned char* at;
    int bytes; // of an index
    __device__ __forceinline__ long long operator[](long long i) const {
        if (bytes == 8) return reinterpret_cast<const long long*>(at)[i];
        if (bytes == 4) return reinterpret_cast<const int*>(at)[i];
        return at[i];
    }
};
