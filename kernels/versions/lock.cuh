// Locks in global memory, for critical sections of any size. Where one atomic
// suffices, it is the better choice.
//
// The section stands inside the loop that asks for the lock. If it stood behind the
// loop, the compiler could make the lanes of a warp wait for each other there: the
// one that holds the lock for those that wait for it.
#pragma once

// Mutex is a spin lock: the first thread to change `taken` from 0 to 1 acquires it. 0 is free and is the initial value.
struct Mutex {
    int taken;

    // with runs section alone. The fence after taking the lock keeps reads of the
    // section from being older than the lock; the one before giving it back makes
    // the section's writes visible before the lock is free.
    template <typename F> __device__ void with(F section) {
        for (bool done = false; !done;) {
            if (atomicCAS(&taken, 0, 1) != 0) continue;
            __threadfence();
            section();
            __threadfence();
            atomicExch(&taken, 0);
            done = true;
        }
    }
};

// A TicketLock is taken in the order of asking: a ticket is drawn, and the lock
// serves one number after the other. It starts as 0, 0.
struct TicketLock {
    unsigned next, serving;

    template <typename F> __device__ void with(F section) {
        const unsigned ticket = atomicAdd(&next, 1);
        for (bool done = false; !done;) {
            if (*(volatile unsigned*)&serving != ticket) continue;
            __threadfence();
            section();
            __threadfence();
            *(volatile unsigned*)&serving = ticket + 1; // only its holder writes it
            done = true;
        }
    }
};
