// Where an operand begins.
#pragma once
#include "vector.cuh"

// place is the position of p within 16 bytes, in elements.
template <typename T> __device__ __forceinline__ int place(const T* p) { return (int)(reinterpret_cast<unsigned long long>(p) / sizeof(T) % Vec<T>::width); }

// vectors calls whole for each vector of count elements from p on, by its first element, and single for each element before and after them. Thread t of `threads` has its share.
template <typename T, typename F, typename G> __device__ __forceinline__ void vectors(const T* p, int count, int t, int threads, F whole, G single) {
    constexpr int W = Vec<T>::width;
    const int head = min((W - place(p)) % W, count), body = (count - head) / W * W;
#pragma unroll 2
    for (int i = t * W; i < body; i += threads * W) whole(head + i);
    if (t < count - body) single(t < head ? t : t + body);
}
