package gemm

import "github.com/stheno-ml/stheno/kernels"

// mmaSingle is the kernel of matmul_mma_single.cu, which splits float32 operands in registers. A block has four slices of A and three of B, whose rows
// are followed by 8 unused elements, and twice the three parts of a slice of A.
var mmaSingle = &candidate{
	name: "single_f32", dtype: kernels.Float32, strided: true, shares: true, orient: wide,
	able:  limits{on: func(dev kernels.Device) bool { return isHopper(dev) && !dev.FMA }, side: span{17, 128}, k: span{from: 48}},
	tile:  tile{m: 64, n: 128, step: 32, threads: 128, filled: true, shared: 4*32*(64+8)*4 + 3*32*(128+8)*4 + 2*3*64*32*2},
	worth: []limits{{on: func(kernels.Device) bool { return false }}}, // the model alone chooses it
	split: splitPolicy{blocksPerSM: 2, minK: 128, kMultiple: 32}, cut: cutSingle, args: splitArguments,
	kernel: own.Kernel("matmul_mma_single", "matmul_mma_single", productBody[float32](false)),
}

func cutSingle(c *candidate, x *problem) (cut, bool) { return c.split.cut(x, c.count(x)), true }
