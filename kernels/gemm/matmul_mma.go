package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// tensorCores names the kernels of float32 products on the tensor cores that are compiled for a device.
type tensorCores uint8

const (
	noTensorCores tensorCores = iota
	mmaCores                  // matmul_mma.cu
	hopperCores               // matmul_hopper.cu
)

// tensorCoresOf returns those of a device. The host runs the Go bodies of matmul_hopper.cu. Code that a driver compiles from PTX has none: it
// is for all devices.
func tensorCoresOf(dev kernels.Device) tensorCores {
	target, _, err := kernels.Target(dev.Major, dev.Minor)
	switch {
	case dev.Major == 0 || dev.Major == 9 && dev.Minor == 0:
		return hopperCores
	case err != nil || target == manifest.PTX || dev.Major < 8:
		return noTensorCores
	}
	return mmaCores
}

// Kinds of devices.
func isHost(dev kernels.Device) bool   { return dev.Major == 0 }
func isGPU(dev kernels.Device) bool    { return dev.Major != 0 }
func isA100(dev kernels.Device) bool   { return dev.Major == 8 && dev.Minor == 0 }
func isHopper(dev kernels.Device) bool { return dev.Major == 9 && dev.Minor == 0 }
func hasMMA(dev kernels.Device) bool   { return tensorCoresOf(dev) == mmaCores }
func hasWGMMA(dev kernels.Device) bool { return tensorCoresOf(dev) == hopperCores }

// tensorTile is the rows of C that a block of matmul_hopper.cu or matmul_mma.cu computes.
const tensorTile = 128

// mmaSplit is the kernel of matmul_mma.cu for split operands, with two stages of slices of 64 bytes along K.
var mmaSplit = candidate{
	name: "mma_split", form: BF16Split, able: limits{on: isA100, also: splittable}, tile: tile{m: tensorTile, n: tensorTile, threads: 256, shared: 2 * 3 * (tensorTile + tensorTile) * 64},
	split: splitPolicy{blocksPerSM: 1, minK: 128}, kernels: byTrans("matmul_mma", "matmul_mma_f32_", splitProductBody), cut: cutGrid, emit: emitSplit,
}
