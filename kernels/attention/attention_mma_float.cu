// attention and its gradients on the tensor cores from compute capability 8.0 on, for float32 operands, rounded to TF32 (tf32) or, on 8.0 and 9.0, float32 accurate (f32): elsewhere FMA units
// are as fast as three products of TF32, and those entry points are empty.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
#include "attention_mma.cuh"

ENTRIES(64_tf32, IN_TF32, 64, float)
ENTRIES(128_tf32, IN_TF32, 128, float)
#if __CUDA_ARCH__ >= 1000
#undef BODY
#define BODY(...)
#endif
ENTRIES(64_f32, IN_PARTS, 64, float)
ENTRIES(128_f32, IN_PARTS, 128, float)
