// Sixteen bytes of elements: the widest access of one thread.
#pragma once

template <typename T> struct Vec;
template <> struct Vec<float> { using type = float4; static constexpr int width = 4; };
template <> struct Vec<double> { using type = double2; static constexpr int width = 2; };

template <typename T> union Pack {
    typename Vec<T>::type v;
    T s[Vec<T>::width];
};
