package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Kinds of devices, by the kernels on the tensor cores that are compiled for them: hasWGMMA those of matmul_hopper.cu, whose Go bodies the
// host runs, hasMMA those of matmul_mma.cu. Code that a driver compiles from PTX has none: it is for all devices.
func isHost(dev kernels.Device) bool   { return dev.Kind == kernels.CPU }
func isGPU(dev kernels.Device) bool    { return dev.Kind == kernels.GPU }
func isA100(dev kernels.Device) bool   { return dev.Major == 8 && dev.Minor == 0 }
func isHopper(dev kernels.Device) bool { return dev.Major == 9 && dev.Minor == 0 }
func hasWGMMA(dev kernels.Device) bool { return isHost(dev) || isHopper(dev) }
func hasMMA(dev kernels.Device) bool {
	if dev.Major < 8 || isHopper(dev) {
		return false
	}
	target, _, err := kernels.Target(dev.Major, dev.Minor)
	return err == nil && target != manifest.PTX
}

// tensorTile is the rows of C that a block of matmul_hopper.cu or matmul_mma.cu computes.
const tensorTile = 128

// mmaSplit is the kernel of matmul_mma.cu for split operands, with two stages of slices of 64 bytes along K.
var mmaSplit = &candidate{
	name: "mma_split", form: BF16Split, able: limits{on: isA100, also: splittable}, tile: tile{m: tensorTile, n: tensorTile, threads: 256, shared: 2 * 3 * (tensorTile + tensorTile) * 64},
	split: splitPolicy{blocksPerSM: 1, minK: 128}, kernels: byTrans("matmul_mma", "matmul_mma_f32_", splitProductBody), cut: cutGrid, special: emitSplit,
}
