// The instructions and the pieces of matrices under matmul_mma.cu: ldmatrix and mma.sync of the tensor cores
// from compute capability 8.0 on.
#pragma once
#include "async.cuh"
typedef unsigned int u32;
typedef long long i64;

// copy_far starts a copy of 16 bytes to shared memory past the first-level cache, or of zeros where not inside. Panels stay in the
// level-2 cache: a BF16 product of 8192 on an H200 takes 2499 us, and 2895 by way of the first level (async_copy).
__device__ __forceinline__ void copy_far(u32 to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
#endif
}

// load_matrices loads four matrices of 8 x 8 elements of 2 bytes, whose rows of 16 bytes are where the lanes say, 8 lanes each. Lane l
// gets the elements 2 (l % 4) and the next one of row l / 4, or, TRANSPOSED, of column l / 4.
template <bool TRANSPOSED> __device__ __forceinline__ void load_matrices(u32 (&d)[4], u32 row) {
#if __CUDA_ARCH__ >= 800
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
#endif
}

// mma is d += a b: 16 x 8 elements over a warp, 32 bytes along k, of BF16 (SIZE 2) or TF32 (4). Lane l holds in d[2 r + e] the
// element in row l / 4 + 8 r and column 2 (l % 4) + e.
template <int SIZE> __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (SIZE == 2)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Panel is a piece of an operand in shared memory, LINES along m or n and 64 bytes of elements of SIZE bytes along k, in PLANES planes,
// and a thread's share in fetching it. As the matrix lies in memory, elements along k are side by side, or, ACROSS, those along m
// or n. The 16 bytes of a row are exchanged so that neither those who fetch nor those who load matrices meet in a bank.
template <int LINES, int SIZE, int PLANES, bool ACROSS, int THREADS> struct Panel {
    static constexpr int BK = 64 / SIZE, WIDE = 16 / SIZE;
    static constexpr int ROWS = ACROSS ? BK : LINES, PARTS = (ACROSS ? LINES : BK) / WIDE; // of 16 bytes in a row
    static constexpr int PLANE = LINES * 64, BYTES = PLANE * PLANES, STEP = THREADS / PARTS;
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "threads share a panel evenly, each with 16 bytes at the same place of rows");
    static_assert(!ACROSS || SIZE == 2, "ldmatrix transposes elements of 2 bytes alone");
    const char* p; // the thread's first 16 bytes
    i64 pitch, plane; // in bytes
    int row, first, rows; // in the panel; the elements of its row before it; the lines inside the matrix
    u32 to;

    static __device__ __forceinline__ u32 at(int row, int part) { return row * (PARTS * 16) + (part ^ (ACROSS ? row & 7 : row >> 1 & 3)) * 16; }

    // start begins at a line and term k0 of a matrix, with rows a multiple of 16 bytes apart: k rows of lines elements, or the other way.
    __device__ __forceinline__ void start(const void* matrices, int matrix, int lines, int k, int line, int k0) {
        const int cols = ACROSS ? lines : k, count = ACROSS ? k : lines;
        pitch = (i64)((cols + WIDE - 1) / WIDE) * 16;
        plane = count * pitch;
        row = threadIdx.x / PARTS;
        first = threadIdx.x % PARTS * WIDE;
        to = at(row, threadIdx.x % PARTS);
        rows = lines - line;
        p = static_cast<const char*>(matrices) + matrix * PLANES * plane + ((ACROSS ? k0 : line) + row) * pitch + ((ACROSS ? line : k0) + first) * SIZE;
    }
    // fetch starts the copies of the next panel, of which that many terms are inside the matrix. What is outside becomes zeros.
    __device__ __forceinline__ void fetch(u32 memory, int terms) {
        const bool inside = first < (ACROSS ? rows : terms);
#pragma unroll
        for (int q = 0; q < PLANES; q++)
#pragma unroll
            for (int r = 0; r < ROWS; r += STEP)
                copy_far(memory + q * PLANE + to + r * (PARTS * 16), p + q * plane + r * pitch, inside && row + r < (ACROSS ? terms : rows));
        p += ACROSS ? BK * pitch : 64;
    }

    // place is where a lane begins to load the fragments of a warp's lines, a multiple of 32: of A (FIRST) 16 lines by 32 bytes in the order
    // of mma, or of B twice 8 lines.
    template <bool FIRST> static __device__ __forceinline__ u32 place(int line) {
        const int lane = threadIdx.x % 32, low = lane / 8 & 1, high = lane / 16;
        const int lines = (FIRST ? low : high) * 8, terms = FIRST ? high : low;
        return ACROSS ? at(terms * 8 + lane % 8, (line + lines) / 8) : at(line + lines + lane % 8, terms);
    }
    // load loads the i-th 16 lines by the l-th 32 bytes of plane q.
    static __device__ __forceinline__ void load(u32 (&d)[4], u32 memory, u32 place, int q, int i, int l) {
        load_matrices<ACROSS>(d, memory + q * PLANE + (ACROSS ? (place ^ i * 32) + l * (16 * PARTS * 16) : (place ^ l * 32) + i * (16 * 64)));
    }
};
