// Where an operand begins.
#pragma once
#include "vector.cuh"

// place is the position of p within 16 bytes, in elements.
template <typename T> __device__ __forceinline__ int place(const T* p) { return (int)(reinterpret_cast<unsigned long long>(p) / sizeof(T) % Vec<T>::width); }
