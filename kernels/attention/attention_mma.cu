// attention and its gradients on the tensor cores from compute capability 8.0 on, for rows of up to 128 elements of 16 bits and up to 64 of float32; for 9.0 there are attention_hopper.cu and
// attention_wgmma_float.cu.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
//stheno:tests sm_90a
#include "attention_mma.cuh"

ENTRIES(64_bf16, IN_BF16, 64, u16)
ENTRIES(128_bf16, IN_BF16, 128, u16)
ENTRIES(64_f16, IN_F16, 64, u16)
ENTRIES(128_f16, IN_F16, 128, u16)
ENTRIES(64_tf32, IN_TF32, 64, float)
ENTRIES(64_f32, IN_PARTS, 64, float)
