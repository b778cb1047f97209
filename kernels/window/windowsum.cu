// out[row][i] = sum over j in [0, w) of in[row][i + off + j], i in [0, n_out);
// elements outside [0, n_in) are zero. Valid, same and full windows differ in
// n_out and off alone. Sums are double, the result is rounded once.
//
// Flat positions. A row takes length = n_out + w - 1 positions, the elements that its windows
// reach; position v is row v / length, element v % length + off. Windows of
// outputs never leave their row, so the rows form one sequence of rows * length
// positions, cut into tiles with no regard to rows: short rows share a block.
// Positions whose window would cross into the next row are not written.
//
// One identity at two scales. Cut the positions in chunks of K, w = q K + r:
//
//	window(t K + k) = suffix of chunk t from k          (K elements, serial)
//	                + chunks t+1 .. t+q-1, whole        (a window of q-1 chunk sums)
//	                + the first r elements of chunk t+q (the chunk's head)
//	                + k elements from t K + w on        (K elements, serial)
//
// Each term lies inside the window, nothing is ever subtracted: no element
// outside reaches a result, and no digit cancels. The middle two terms are
// shared by the K outputs of a chunk.
//
//	direct  w < 16 in long rows: a thread sums w elements for each output of a
//	        16-byte vector.
//	few     w < 16 otherwise: a block takes whole rows, or a piece of one, and no flat
//	        positions; a thread sums w elements for each of 7 outputs.
//	short   rows of up to 7680 elements, several to a block or one: K is 15 (9 in double), the sums
//	        and heads of all chunks are in shared memory, with sums of 4, 16 ... chunks, so
//	        that the middle takes three additions at most for each power of four.
//	stream  w <= 1025: a chunk is the 16 elements of a lane, a block is one warp
//	        that walks through a run of positions in tiles of 512. What windows
//	        take from earlier tiles is in shared memory: elements, and sums of 2^b
//	        chunks, one step of doubling for each bit of q-1. No warp waits for
//	        another warp, and the halo of w - 1 elements is read once in a run.
//	segments  longer windows: a chunk is what a block holds, and a window is q of them with no
//	        rest. A block walks along a row and keeps the chunks of a window in shared
//	        memory, so that elements are read once.
//	cluster  windows that a block cannot hold, but a cluster of eight: of q segments each block has every eighth, and so the q-th
//	        after one that it has had. Blocks send one another the sums of segments, a turn before they are needed.
//	chunks  windows that a cluster cannot hold: a chunk is the 16 blockDim elements of a block: sums
//	        and heads to memory. The window of q-1 sums is this op again, on double.
//	join    suffix and right part of a block's chunk by two block scans, around
//	        the middle from memory.
//
// stream looks back instead of ahead, the identity in the mirror: the window that
// ends at place k of chunk c is the prefix of chunk c up to k, chunks c-1 ..
// c-q+1, the last r elements of chunk c-q (its tail), and 15 - k elements before.
//
// Elements go between global and registers through shared memory, in 16-byte
// accesses where the positions lie in one row. A vector's place is permuted (stream)
// or a chunk is followed by 16 unused bytes (join), so that threads that read
// vectors of neighbouring chunks meet no bank twice.
//
// Conversions bound what a thread can sum one by one: a multiprocessor converts 16 elements in
// a clock, and a copy leaves 0.42 clocks for each. stream, segments and cluster convert an element 3
// times and a sum once, short an element twice (its chunk, after windows) and a sum once.
//
// Estimate for stream, float, by the data sheet of an H200 (132 SMs, 1.7 GHz): a
// copy's 0.53e12 elements/s leave 0.42 clocks of an SM per element. Conversions: 2
// to double and 1 back, 0.19 at 16/clock. DADD: 4, 0.06 at 64/clock. Instructions:
// 20 counted, 0.16 at 128/clock. Shared: 4 accesses of 4 bytes, 0.13. 16 warps
// share an SM, so each has 16 * 512 * 0.42 = 3400 clocks for a tile with its chain of
// dependent steps: two serial sums, 16 elements in and 16 out.
// direct at w = 15: 15 DADD, 0.23; conversions 0.23. chunks + join: the input is
// read twice (three times where w elements exceed L2) and written once.
//
// Slower than stream, at 2^28 elements of float, radius 32 and 512, on an H200 that
// copies in 503 us: blocks of 256 threads with tiles of 4096, two in flight, sums of
// chunks by doubling in the block: 652 and 789 us (four barriers a tile). The same
// with windows known to the compiler: 733 and 801 (fewer instructions, more
// registers, as many barriers). Runs of tiles for a warp with addresses computed
// anew in each tile: 561 and 567; kept in registers: 555 and 563.
#include "follow.cuh"
#include "windowsum_direct.cuh"
#include "windowsum_stream.cuh"
#include "windowsum_chunks.cuh"
#include "windowsum_few.cuh"
#include "windowsum_short.cuh"
#include "windowsum_segments.cuh"
#include "windowsum_cluster.cuh"

// direct needs many warps: at most 85 registers a thread, as long as nothing spills.
#if __CUDA_ARCH__ >= 800
template <typename T> constexpr int direct_blocks = sizeof(T) == 4 ? 3 : 2;
#else
template <typename T> constexpr int direct_blocks = 2;
#endif

// Blocks of short on a multiprocessor, as long as nothing spills.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
constexpr int short_blocks = 2;
#else
constexpr int short_blocks = 1;
#endif

#define ENTRIES(T, S, THREADS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, direct_blocks<T>) windowsum_direct_##S(                         \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {                                         \
        follow();                                                                                                     \
        direct(Row<T>{in, out, n_in, n_out, w, off, rows});                                                           \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(128, 5) windowsum_few_##S(                                           \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int block_rows, int blocks, int outputs,  \
        int staged) {                                                                                                 \
        admit();                                                                                                      \
        follow();                                                                                                     \
        few(Row<T>{in, out, n_in, n_out, w, off, rows}, Pieces{block_rows, blocks, outputs}, staged);                 \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(512, short_blocks) windowsum_short_##S(                              \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int block_rows, int staged, int levels,   \
        int doubles) {                                                                                                \
        follow();                                                                                                     \
        short_rows(Row<T>{in, out, n_in, n_out, w, off, rows}, Pieces{block_rows, 1, (int)n_out}, staged, levels, doubles); \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 4) windowsum_segments_##S(                                      \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int q, int least, int longer, int run,    \
        int runs) {                                                                                                   \
        follow();                                                                                                     \
        segments(Row<T>{in, out, n_in, n_out, w, off, rows}, Segments{q, least, longer, run, runs});                  \
    }                                                                                                                 \
    extern "C" __global__ void CLUSTER __launch_bounds__(256, 3) windowsum_cluster_##S(                               \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int q, int least, int longer, int run,    \
        int runs, int segments) {                                                                                     \
        follow();                                                                                                     \
        cluster_segments(Row<T>{in, out, n_in, n_out, w, off, rows}, Segments{q, least, longer, run, runs}, segments); \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32, sizeof(T) == 4 ? 16 : 12) windowsum_stream_##S(                  \
        const T* in, T* out, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows, int lead, int lag, int run, i64 tiles,    \
        int tails) {                                                                                                  \
        follow();                                                                                                     \
        const Row<T> g{in, out, n_in, n_out, w, off, rows};                                                           \
        if (lag % Vec<T>::width || (w - 1) % Vec<T>::width) stream<true>(g, lead, lag, run, tiles, tails);            \
        else stream<false>(g, lead, lag, run, tiles, tails);                                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) windowsum_chunks_##S(                                       \
        const T* in, double* sums, double* heads, i64 n_in, i64 n_out, i64 w, i64 off, i64 rows) {                    \
        follow();                                                                                                     \
        chunks(Row<T>{in, nullptr, n_in, n_out, w, off, rows}, sums, heads);                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS) windowsum_join_##S(                          \
        const T* in, T* out, const double* middles, const double* heads, i64 n_in, i64 n_out, i64 w, i64 off,         \
        i64 rows) {                                                                                                   \
        follow();                                                                                                     \
        join(Row<T>{in, out, n_in, n_out, w, off, rows}, middles, heads);                                             \
    }

ENTRIES(float, f32, 128)
ENTRIES(double, f64, 64)
