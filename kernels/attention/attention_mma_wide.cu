// attention and its gradients on the tensor cores from compute capability 8.0 on, for rows of 129 to 256 elements of 16 bits and 65 to 128 of float32: see attention_mma.cu for shorter ones.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
#include "attention_mma.cuh"

ENTRIES(256_bf16, IN_BF16, 256, u16)
ENTRIES(256_f16, IN_F16, 256, u16)
ENTRIES(128_tf32, IN_TF32, 128, float)
ENTRIES(128_f32, IN_PARTS, 128, float)
