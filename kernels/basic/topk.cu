// topk: out[r][i] = the index of the i-th largest of the n elements of row r, i < k, and if `valued` is not 0
// values[r][i] = that element. Of equal elements the first one counts as larger, and NaN counts as largest. A block selects from a row (select.cuh). Few rows are split among blocks:
// each block lists the largest elements of its part, and another block selects from the lists of a row, in the same launch for one row, in a second launch for several.
// Bound by memory.
#include "follow.cuh"
#include "grid_ticket.cuh"
#include "select.cuh"

extern __shared__ __align__(16) unsigned char shared[];

// A row has `parts` parts of `each` elements, a multiple of 16 bytes. Blocks are numbered by (part, row), those of a second launch, where `joins` is not 0, by row.
// A part lists `most` elements.
template <typename T>
__device__ void topk(const T* x, long long* out, T* values, Entry<T>* list, unsigned* arrivals, int n, int k, int goal, int valued, int parts,
                     int each, int most, int joins) {
    follow();
    __shared__ SelectMemory memory;
    Candidates<T> c(shared, k, goal, memory);
    const long long row = joins ? blockIdx.x : blockIdx.x / parts;
    x += row * n;
    if (!joins) {
        const unsigned from = blockIdx.x % parts * each;
        const int found = c.select(x, from, min(each, (int)(n - from)), k, goal, most, parts == 1);
        if (parts > 1) {
            c.store(list + (long long)blockIdx.x * most, found, most);
            if (gridDim.x != parts) return;
            __syncthreads();
            if (!last_block(threadIdx.x, arrivals, [] {})) return;
        }
    }
    if (parts > 1) c.join(list + row * parts * most, parts * most, k, goal);
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        const unsigned at = c.index(i);
        out[row * k + i] = at;
        if (valued) values[row * k + i] = x[at];
    }
}

#define TOPK(name, T)                                                                                                                                                             \
    extern "C" __global__ void __launch_bounds__(threadsMax, blocksPerSM<T>)                                                                                                      \
        topk_##name(const T* x, long long* out, T* values, Entry<T>* list, unsigned* arrivals, int n, int k, int goal, int valued, int parts,    \
                    int each, int most, int joins) {                                                                                                                              \
        topk(x, out, values, list, arrivals, n, k, goal, valued, parts, each, most, joins);                                                                       \
    }

TOPK(f32, float)
TOPK(f64, double)
