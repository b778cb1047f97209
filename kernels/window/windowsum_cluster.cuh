// Window sums of more elements than a block holds, in one reading: the blocks of a cluster hold the segments of a window, each every
// eighth, and tell one another their sums.
#pragma once
#include "inbox.cuh"
#include "windowsum_segments.cuh"

constexpr int cluster_blocks = 8;
constexpr int cluster_totals = 128; // max segment sums stored in a block, a power of two: one window's and three more rounds'

#if __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(cluster_blocks, 1, 1)

// Totals holds the segment sums of all blocks of the cluster. They arrive by st.async at two mbarriers, for even and odd rounds. Two
// suffice: a block sends for round r+2 only after it has received all sums of round r+1, so every block has received those of round r.
struct Totals {
    double sums[cluster_totals];
    u64 full[2];

    __device__ __forceinline__ static unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
    __device__ __forceinline__ void expect(int turn) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(full + (turn & 1))), "n"(cluster_blocks * 8) : "memory");
    }
    // open is called by all threads of all blocks, which call cluster_wait before they send.
    __device__ __forceinline__ void open() {
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(full + i)) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            expect(0);
            expect(1);
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
    __device__ __forceinline__ double& of(int segment) { return sums[segment & cluster_totals - 1]; }
    // send stores the sum of this block's segment of a turn in another block; await waits for all of a turn.
    __device__ __forceinline__ void send(int block, int turn, int segment, double sum) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(in_block(block, &of(segment))), "l"(__double_as_longlong(sum)),
                     "r"(in_block(block, full + (turn & 1))) : "memory");
    }
    __device__ __forceinline__ void await(int turn) {
        asm volatile(
            "{\n.reg .pred done;\n"
            "again:\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra again;\n}" ::"r"(address(full + (turn & 1))), "r"(turn >> 1 & 1) : "memory");
        if (threadIdx.x == 0) expect(turn + 2);
    }
};

// As segments, with q a multiple of 8, so that the q-th segment after another is of the same block. A cluster makes the outputs of `run`
// segments of the `all` of a row, run a multiple of 8. In a turn a block sums the segment of the turn to come and sends that to the
// others, which need it then: no block waits for what another does in the same turn. Shared: q / 8 + 3 segments, that on
// its way, the one to come, and those from the right one back.
template <typename T> __device__ __forceinline__ void cluster_segments(const Row<T>& g, const Segments& s, int all) {
    constexpr int K = segment_items<T>, W = Vec<T>::width, C = cluster_blocks;
    __shared__ double warps[3][segment_warps]; // left's; right's and those to come, in turn
    __shared__ Totals totals;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, warp_count = blockDim.x / 32, places = blockDim.x * K, size = (places + 2 * W - 2) / W * W;
    T* const shared = reinterpret_cast<T*>(shared_memory);
    const int rank = blockIdx.x % C, cluster = blockIdx.x / C, held = s.q / C, slots = held + 3;
    const i64 row = cluster / s.runs, first = (i64)(cluster % s.runs) * s.run;
    const int turns = held + (int)(min((i64)s.run, all - first) + C - 1) / C;
    int i = (int)((first + rank) % s.q), slot = 0; // of the segment that is fetched next
    i64 window = (first + rank) / s.q * g.w;
    const auto count = [&] { return s.least + (i < s.longer); };
    const auto begin = [&] { return window + (i64)i * s.least + min(i, s.longer); };
    const auto fetch = [&] { Stretch<T>::fetch(g, row, begin(), count(), places, shared + slot * size); };
    const auto advance = [&] {
        i += C;
        if (i >= s.q) i -= s.q, window += g.w;
        slot = slot + 1 < slots ? slot + 1 : 0;
    };
    if (t < segment_warps) warps[1][t] = warps[2][t] = 0; // those that there are not
    totals.open();
    fetch();
    commit();
    i64 coming = begin(), at = 0;
    int coming_count = count(), at_count = 0;
    const T *coming_right = shared + Stretch<T>::shift(row * g.n_in + coming + g.off) + t * K, *right = nullptr;
    advance();
    double before = 0; // right elements of earlier lanes
#pragma unroll 1
    for (int n = -1; n < turns; n++) {
        if (n + 2 < turns) fetch();
        commit();
        arrived<1>();
        __syncthreads();

        const int behind = slot + 1 < slots ? slot + 1 : 0;
        T* const left = shared + behind * size;
        double from[K], after = 0, ahead = total(coming_right);
        if (n >= held) {
            suffix_sums(left + Stretch<T>::shift(row * g.n_in + at - g.w + g.off) + t * K, from);
            after = from[0];
        }
        double* const right_warps = warps[1 + (n & 1)];
        double* const coming_warps = warps[2 - (n & 1)];
        scan_warp(after, ahead, warps[0][warp], coming_warps[warp]);
        __syncthreads();
        if (n < 0) cluster_wait();
        else totals.await(n);
        if (t < C && n + 1 < turns) {
            double sum = 0;
#pragma unroll
            for (int i = 0; i < segment_warps; i++) sum += coming_warps[i];
            totals.send(t, n + 1, (n + 1) * C + rank, sum);
        }
        if (n >= held) {
            // a lane has a later warp or an earlier one, and some of the segments between
            double middle = 0;
            if (lane < 8 ? lane > warp && lane < warp_count : lane < 16 && lane - 8 < warp) middle = lane < 8 ? warps[0][lane] : right_warps[lane - 8];
            for (int j = lane; j < s.q - 1; j += 32) middle += totals.of(n * C + rank - 1 - j);
            middle = all_lanes(middle) + after + before;
            write_segment(g, row, at - g.w, at_count, from, middle, left, right);
        }
        __syncthreads();
        before = ahead;
        at = coming, at_count = coming_count, right = coming_right;
        coming = begin(), coming_count = count();
        coming_right = shared + slot * size + Stretch<T>::shift(row * g.n_in + coming + g.off) + t * K;
        advance();
    }
}
#else
#define CLUSTER
// No plan uses it where there are no clusters.
template <typename T> __device__ void cluster_segments(const Row<T>&, const Segments&, int) { __trap(); }
#endif
