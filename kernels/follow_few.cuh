// A kernel that is short whatever it computes.
#pragma once
#include "follow.cuh"

// A grid of up to so many blocks leaves most SMs to the kernels beside it, so its dependents may wait on them from the start. From larger grids on, blocks that wait
// delay other branches of a graph: bench/notes/basic.md has the times.
constexpr unsigned FEW_BLOCKS = 16;

// follow_and_admit waits for the prerequisite kernels, and launches the dependents: of a small grid before it waits.
__device__ __forceinline__ void follow_and_admit() {
    const bool few = gridDim.x <= FEW_BLOCKS;
    if (few) admit();
    follow();
    if (!few) admit(); // once: it takes time
}
