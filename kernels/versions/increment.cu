// Every thread of the grid adds one to a cell, so that it should end at the number
// of threads.
//
//   increment_racy         Reads, adds and writes. Between a thread's read and its
//                          write others read the same number, and all but one of
//                          their additions are lost. WRONG ON PURPOSE: nothing uses
//                          its result.
//   increment_racy_shared  The same on a cell of the block in shared memory, where a
//                          race checker can see it; one atomic for each block adds
//                          up the cells. WRONG ON PURPOSE too.
//   increment_atomic       The memory reads, adds and writes in one step.
//   increment_mutex        One thread at a time, by a lock of compare-and-swap.
//   increment_ticket       One thread at a time, in the order of asking.
//
// `volatile` makes the compiler read and write memory where it stands.
#include "lock.cuh"

struct Locks {
    Mutex mutex;
    TicketLock ticket;
};

__device__ inline void read_add_write(int* cell) {
    const int before = *(volatile int*)cell;
    *(volatile int*)cell = before + 1;
}

extern "C" __global__ void increment_zero_i32(int* cell, Locks* locks) {
    *cell = 0;
    *locks = Locks{};
}

extern "C" __global__ void increment_racy_i32(int* cell, Locks*) { read_add_write(cell); }

extern "C" __global__ void increment_racy_shared_i32(int* cell, Locks*) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = 0;
    __syncthreads();
    read_add_write(&mine);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(cell, mine);
}

extern "C" __global__ void increment_atomic_i32(int* cell, Locks*) { atomicAdd(cell, 1); }

extern "C" __global__ void increment_mutex_i32(int* cell, Locks* locks) {
    locks->mutex.with([=] { read_add_write(cell); });
}

extern "C" __global__ void increment_ticket_i32(int* cell, Locks* locks) {
    locks->ticket.with([=] { read_add_write(cell); });
}
