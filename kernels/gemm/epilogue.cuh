// Epilogues: chains of steps that a product applies to its finished sums before it writes them,
// with up to two operands beside C. kernels/epilogue.go lists the steps. The fused kernel
// computes the same bits as the product followed by a kernel for each
// step: every operation rounds, and functions are those of math.cu.
#pragma once
#include "functions.cuh"
#include "vector.cuh"
typedef long long i64;

__device__ __forceinline__ float add(float x, float y) { return __fadd_rn(x, y); }
__device__ __forceinline__ double add(double x, double y) { return __dadd_rn(x, y); }
__device__ __forceinline__ float multiply(float x, float y) { return __fmul_rn(x, y); }
__device__ __forceinline__ double multiply(double x, double y) { return __dmul_rn(x, y); }
__device__ __forceinline__ float divide(float x, float y) { return __fdiv_rn(x, y); }
__device__ __forceinline__ double divide(double x, double y) { return __ddiv_rn(x, y); }

// not_below reports whether 0 <= 1 / x: the sign of a 0 shows whether the number that became 0 was below 0.
__device__ __forceinline__ bool not_below(float x) { return x >= 0 ? __float_as_int(x) >= 0 : __float_as_int(x) == 0xff800000; }
__device__ __forceinline__ bool not_below(double x) { return x >= 0 ? __double2hiint(x) >= 0 : __double_as_longlong(x) == 0xfff0000000000000; }

// rectified is -0 where x is below 0, so that not_below(rectified(x)) is x >= 0, and x elsewhere; of -0 it is 0, of NaN NaN.
template <typename T> __device__ __forceinline__ T rectified(T x) { return x < 0 ? -T(0) : add(x, T(0)); }

// finish applies the steps to sums, given the operands' elements.
template <typename T, int N> __device__ __forceinline__ void finish(unsigned steps, T (&v)[N], const T (&x)[N], const T (&y)[N]) {
    bool first = true; // the next operand is x
#pragma unroll 1
    for (; steps != 0; steps /= 16) {
        T o[N]; // that operand
#pragma unroll
        for (int i = 0; i < N; i++) o[i] = first ? x[i] : y[i];
        switch (steps % 16) {
#define STEP(number, operand, ...)                                        \
    case number:                                                          \
        _Pragma("unroll") for (int i = 0; i < N; i++) v[i] = __VA_ARGS__; \
        first = first && !operand;                                        \
        break
            STEP(1, true, add(v[i], o[i]));
            STEP(2, true, add(v[i], -o[i]));
            STEP(3, true, add(o[i], -v[i]));
            STEP(4, true, multiply(v[i], o[i]));
            STEP(5, true, multiply(v[i], T(not_below(o[i]))));
            STEP(6, false, rectified(v[i]));
            STEP(7, false, tanh(v[i]));
            STEP(8, false, sigmoid(v[i]));
            STEP(9, true, multiply(v[i], add(T(1), -multiply(o[i], o[i]))));
            STEP(10, true, multiply(v[i], multiply(x[i], sigmoid(-y[i]))));
            STEP(11, true, divide(v[i], o[i]));
#undef STEP
        }
    }
}

// Operand is an operand of an epilogue, with the distances between its elements from matrix to matrix, row to
// row and column to column of C.
template <typename T> struct Operand {
    const T* x;
    i64 matrix, row, col;
    __device__ __forceinline__ Operand from(i64 z, i64 r, i64 c) const { return {x + z * matrix + r * row + c * col, matrix, row, col}; }
    // load reads the elements for W neighbours in C, of which only the first exist; the others become 0.
    template <int W> __device__ __forceinline__ void load(T* to, int r, int c, int inside) const {
        const T* p = x + r * row + c * col;
        if (W == Vec<T>::width && inside >= W && col == 1 && reinterpret_cast<unsigned long long>(p) % 16 == 0) {
            Pack<T> v;
            v.v = *reinterpret_cast<const typename Vec<T>::type*>(p);
#pragma unroll
            for (int e = 0; e < W; e++) to[e] = v.s[e];
        } else {
#pragma unroll
            for (int e = 0; e < W; e++) to[e] = e < inside ? p[e * col] : T(0);
        }
    }
};

template <typename T> struct Epilogue {
    unsigned steps; // 4 bits each, the first lowest; 0: none. Above them, how many operands they take
    Operand<T> x, y;
    __device__ __forceinline__ Epilogue from(i64 z, i64 r, i64 c) const { return {steps, x.from(z, r, c), y.from(z, r, c)}; }
    // with applies the steps to U times W sums, those that lie inside the matrix.
    template <int U, int W> __device__ __forceinline__ void with(T (&v)[U * W], const int (&row)[U], const int (&col)[U], int rows, int cols) const {
        T a[U * W] = {}, b[U * W] = {};
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int inside = row[u] < rows ? cols - col[u] : 0;
            if (steps >= 1 << 16) x.template load<W>(a + u * W, row[u], col[u], inside);
            if (steps >= 2 << 16) y.template load<W>(b + u * W, row[u], col[u], inside);
        }
        ::finish(steps & 0xffff, v, a, b);
    }
    // of applies the steps to the sum of the element (row, col) of a matrix.
    __device__ __forceinline__ T of(T sum, i64 z, i64 r, i64 c) const {
        if (steps == 0) return sum;
        T v[1] = {sum};
        from(z, r, c).template with<1, 1>(v, {0}, {0}, 1, 1);
        return v[0];
    }
};

// The last arguments of a kernel with an epilogue, and the epilogue that they make.
#define EPILOGUE_ARGUMENTS(T) \
    unsigned steps, const T *x, i64 xMatrix, i64 xRow, i64 xCol, const T *y, i64 yMatrix, i64 yRow, i64 yCol
#define EPILOGUE(T) (Epilogue<T>{steps, {x, xMatrix, xRow, xCol}, {y, yMatrix, yRow, yCol}})

// Target is the place of a tile in C.
template <typename T> struct Target {
    static constexpr int W = Vec<T>::width;
    T* c; // element (0, 0) of the tile
    i64 across, down; // in memory, from column to column and from row to row
    int rows, cols;   // inside the matrix
    bool wide;
    Epilogue<T> epilogue; // whose operands' element (0, 0) is that of the tile
    __device__ __forceinline__ void put(int row, int col, const Pack<T>& v) const {
        if (row >= rows) return;
        T* q = c + row * down + col * across;
        if (wide) {
            if (col < cols) *reinterpret_cast<typename Vec<T>::type*>(q) = v.v;
        } else {
#pragma unroll
            for (int e = 0; e < W; e++)
                if (col + e < cols) q[e * across] = v.s[e];
        }
    }
// finish applies the epilogue to U times 16 bytes of sums and writes them.
    template <int U> __device__ __forceinline__ void finish(const int (&row)[U], const int (&col)[U], Pack<T> (&sums)[U]) const {
        T v[U * W];
#pragma unroll
        for (int i = 0; i < U * W; i++) v[i] = sums[i / W].s[i % W];
        epilogue.template with<U, W>(v, row, col, rows, cols);
#pragma unroll
        for (int i = 0; i < U * W; i++) sums[i / W].s[i % W] = v[i];
#pragma unroll
        for (int u = 0; u < U; u++) put(row[u], col[u], sums[u]);
    }
};
