// Operands of convolutions as conv_hopper.cu reads them: channels contiguous, in one of the forms of products.
#pragma once
#include "async.cuh"
#include "matmul_halves.cuh"
#include "matmul_planes.cuh"

// Planes is an operand: `count` matrices of rows x cols elements, and where they are written transposed, rows of pitch elements, a multiple of 16 bytes. Matrices of a split are as
// far apart as all matrices. Columns are pixels of an image of `width`. Of those, each stepY-th row and each stepX-th column is written: lines of `wide` pixels, from `before` pixels of
// zeros before the row on. Matrices are [image][group] in memory and written [group][image], with `after` images of zeros after those of a group.
// Where `blocks` groups are multiplied as one, their filters are blocks on the diagonal of a matrix: rows of the others are zeros.
struct Planes {
    const float* x;
    void* to;
    int count, rows, cols, pitch, width, lines, wide, before, stepY, stepX, groups, after;
    int per, blocks; // matrices of a group of filters; groups that are one
    int ranged;      // whether the range of numbers is wanted

    // source returns the matrix that a written one is of, -1 for zeros.
    __device__ __forceinline__ int source(int matrix) const {
        if (groups == 1) return matrix;
        const int each = count / groups, group = matrix / each, image = matrix - group * each;
        return image < each - after ? image * groups + group : -1;
    }
    // low returns the first row of a written matrix that is not zeros.
    __device__ __forceinline__ int low(int matrix) const { return blocks == 1 ? 0 : matrix / per % blocks * rows; }
};

enum Kind { SPLIT, HALF, HALF_F16, WIDE };

// put writes eight elements of a line of what is written, from element `row` of it on.
template <Kind KIND> __device__ __forceinline__ void put(const Planes& p, float (&v)[8], i64 at, int row, i64 plane) {
    if constexpr (KIND == SPLIT) {
        write(v, 1, false, static_cast<u16*>(p.to) + at, plane);
    } else if constexpr (KIND == HALF || KIND == HALF_F16) {
        constexpr bool F16 = KIND == HALF_F16;
        *reinterpret_cast<uint4*>(static_cast<u16*>(p.to) + at) = make_uint4(packed<F16>(v[0], v[1]), packed<F16>(v[2], v[3]), packed<F16>(v[4], v[5]), packed<F16>(v[6], v[7]));
    } else {
        float4* const to = reinterpret_cast<float4*>(static_cast<float*>(p.to) + at);
        to[0] = make_float4(v[0], v[1], v[2], v[3]);
        if (row + 4 < p.pitch) to[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
}

// Squares of SIDE x SIDE elements pass through shared memory. copy_ahead calls store(i, memory) for square i of a block, in turn, while the copies to shared memory of its next one, which
// fetch(i, memory) has started, are in flight. The last square is the first: launches before write images or channels in their order, so that L2 has the last ones, and those after read the first.
constexpr int SIDE = 64, THREADS = 256, EACH = SIDE * SIDE / THREADS, SQUARE_FLOATS = SIDE * (SIDE + 2), SQUARES = 2;
template <typename Fetch, typename Store> __device__ __forceinline__ void copy_ahead(u32 squares, float* memory, const Fetch& fetch, const Store& store) {
    int stage = 0;
    if (blockIdx.x < squares) fetch(squares - 1 - blockIdx.x, memory);
    commit();
#pragma unroll 1
    for (u32 i = blockIdx.x; i < squares; i += gridDim.x, stage ^= 1) {
        if (i + gridDim.x < squares) fetch(squares - 1 - i - gridDim.x, memory + (stage ^ 1) * SQUARE_FLOATS);
        commit();
        arrived<1>();
        __syncthreads();
        store(squares - 1 - i, memory + stage * SQUARE_FLOATS);
        __syncthreads(); // all have read the square
    }
}

// prepare moves 64 x 64 elements at a time, of fewer rows 32 x 128 or 16 x 256. It returns the range of the numbers that the block has read.
template <Kind KIND> __device__ __forceinline__ Range prepare(const Planes& p, float* memory) {
    const int log = p.pitch <= 16 ? 8 : p.pitch <= 32 ? 7 : 6, width = 1 << log, height = SIDE * SIDE >> log, pitch = width + 1;
    const int cols = p.lines * p.wide; // as written
    const int across = (cols + width - 1) >> log, down = (p.pitch + height - 1) / height, lane = threadIdx.x % width, line = threadIdx.x >> log, next = THREADS >> log;
    const i64 plane = (i64)p.count * cols * p.pitch;
    const u32 all = (u32)across * down * p.count;
    const auto fetch = [&](u32 i, float* to) {
        const int above = i / across, part = above / p.count, matrix = above - part * p.count, row0 = part * height, col0 = (i - above * across) * width;
        const int y = (col0 + lane) / p.wide, x = (col0 + lane - y * p.wide) * p.stepX - p.before;
        const int source = p.source(matrix), first = row0 + line - p.low(matrix);
        const bool inside = col0 + lane < cols && x >= 0 && x < p.width && source >= 0;
        const float* from = p.x + ((i64)source * p.rows + first) * p.cols + y * p.stepY * p.width + x;
        to += line * pitch + lane;
#pragma unroll 8
        for (int u = 0; u < EACH; u++, from += (i64)next * p.cols, to += next * pitch) {
            const bool has = inside && (u32)(first + u * next) < (u32)p.rows;
            async_copy(to, has ? from : p.x, has);
        }
    };
    Range range;
    copy_ahead(all, memory, fetch, [&](u32 i, const float* from) {
        const int above = i / across, part = above / p.count, matrix = above - part * p.count, row0 = part * height, col0 = (i - above * across) * width;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int row = threadIdx.x % (height / 8) * 8, col = (threadIdx.x + u * THREADS) / (height / 8);
            if (col0 + col >= cols || row0 + row >= p.pitch) continue;
            float o[8];
#pragma unroll
            for (int e = 0; e < 8; e++) {
                o[e] = from[(row + e) * pitch + col];
                if (KIND == SPLIT || p.ranged) range.add(o[e]);
            }
            put<KIND>(p, o, ((i64)matrix * cols + col0 + col) * p.pitch + row0 + row, row0 + row, plane);
        }
    });
    return range;
}

// prepare_lines is prepare for matrices of fewer than 64 columns: as many rows as there is room for, which are contiguous, are moved at once.
template <Kind KIND> __device__ __forceinline__ Range prepare_lines(const Planes& p, float* memory) {
    const int most = SIDE * SIDE / p.cols / 8 * 8, down = (p.pitch + most - 1) / most, each = (p.pitch + 8 * down - 1) / (8 * down) * 8;
    const i64 plane = (i64)p.count * p.cols * p.pitch;
    const u32 all = (u32)down * p.count, rest = p.rows * p.cols;
    const auto fetch = [&](u32 i, float* to) {
        const int part = i / p.count, matrix = i - part * p.count, source = p.source(matrix), first = (part * each - p.low(matrix)) * p.cols;
        const float* const from = p.x + (i64)source * p.rows * p.cols;
#pragma unroll 8
        for (int u = 0; u < EACH; u++) {
            const int at = threadIdx.x + u * THREADS;
            if (at >= each * p.cols) break;
            const bool has = source >= 0 && (u32)(first + at) < rest;
            async_copy(to + at + at / 32, has ? from + first + at : p.x, has);
        }
    };
    Range range;
    copy_ahead(all, memory, fetch, [&](u32 i, const float* square) {
        const int part = i / p.count, matrix = i - part * p.count, row0 = part * each, groups = min(each, p.pitch - row0 + 7) / 8;
        for (int at = threadIdx.x; at < groups * p.cols; at += THREADS) {
            const int col = at / groups, row = (at - col * groups) * 8;
            if (row0 + row >= p.pitch) continue;
            float o[8];
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const int from = (row + e) * p.cols + col;
                o[e] = square[from + from / 32]; // so that groups are in different banks
                if (KIND == SPLIT || p.ranged) range.add(o[e]);
            }
            put<KIND>(p, o, ((i64)matrix * p.cols + col) * p.pitch + row0 + row, row0 + row, plane);
        }
    });
    return range;
}

// prepare_few is prepare for lines of at most 8 elements, as written: a thread moves one.
template <Kind KIND> __device__ __forceinline__ Range prepare_few(const Planes& p) {
    const int cols = p.lines * p.wide;
    const i64 count = (i64)p.count * cols, plane = count * p.pitch;
    Range range;
    for (i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (i64)gridDim.x * blockDim.x) {
        const int matrix = (u32)at / cols, col = (u32)at - matrix * cols, y = col / p.wide, x = (col - y * p.wide) * p.stepX - p.before, source = p.source(matrix), low = p.low(matrix);
        const float* const from = p.x + (i64)source * p.rows * p.cols + y * p.stepY * p.width + x;
        float v[8];
#pragma unroll
        for (int row = 0; row < 8; row++) v[row] = (u32)(row - low) < (u32)p.rows && x >= 0 && x < p.width && source >= 0 ? from[(i64)(row - low) * p.cols] : 0;
        if (KIND == SPLIT || p.ranged) {
#pragma unroll
            for (int row = 0; row < 8; row++) range.add(v[row]);
        }
        put<KIND>(p, v, at * p.pitch, 0, plane);
    }
    return range;
}

// prepare_plain is prepare for one line, of which nothing is transposed: a thread moves eight elements of it at a time.
template <Kind KIND> __device__ __forceinline__ Range prepare_plain(const Planes& p) {
    Range range;
    for (i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < p.rows; at += (i64)gridDim.x * blockDim.x * 8) {
        const float4* const from = reinterpret_cast<const float4*>(p.x + at);
        const float4 low = from[0], high = at + 4 < p.rows ? from[1] : make_float4(0, 0, 0, 0);
        float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        if (KIND == SPLIT || p.ranged) {
#pragma unroll
            for (int i = 0; i < 8; i++) range.add(v[i]);
        }
        put<KIND>(p, v, at, at, p.rows);
    }
    return range;
}
