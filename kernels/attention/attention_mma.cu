// attention and its gradients on the tensor cores from compute capability 8.0 on, for 16-bit operands; for 9.0 there is attention_hopper.cu.
//stheno:targets sm_80 sm_90a sm_100 sm_120 ptx
#include "attention_mma.cuh"

ENTRIES(64_bf16, IN_BF16, 64, u16)
ENTRIES(128_bf16, IN_BF16, 128, u16)
ENTRIES(64_f16, IN_F16, 64, u16)
ENTRIES(128_f16, IN_F16, 128, u16)
ENTRIES(256_bf16, IN_BF16, 256, u16)
ENTRIES(256_f16, IN_F16, 256, u16)
