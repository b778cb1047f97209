package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
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

// A block of matmul_mma.cu computes a tile of mmaTile rows of C, by panels of 64 bytes along k, 2 or more of them in shared memory.
const (
	mmaTile          = 128
	mmaPlanesThreads = 256                              // for float32, in tiles of mmaTile x mmaTile
	mmaPlanesBytes   = 2 * 3 * (mmaTile + mmaTile) * 64 // of shared memory
)

var (
	mmaProducts = planesKernels("matmul_mma", "matmul_mma_f32_")
	mmaReduced  = [kernels.BF16 + 1][]reducedForm{
		kernels.TF32: {
			{256, 1, 256, 4 * (mmaTile + 256) * 64, reducedKernelTF32("matmul_mma", "matmul_mma_tf32_nt")},
			{128, 1, 128, 3 * (mmaTile + 128) * 64, reducedKernelTF32("matmul_mma", "matmul_mma_tf32_one_nt")},
		},
		kernels.BF16: {
			{256, 1, 256, 4 * (mmaTile + 256) * 64, reducedKernels("matmul_mma", "matmul_mma_bf16_")},
			{128, 1, 128, 3 * (mmaTile + 128) * 64, reducedKernels("matmul_mma", "matmul_mma_bf16_one_")},
		},
	}
	mmaRoundTF32 = own.Kernel("matmul_mma", "matmul_mma_round_tf32", mmaRoundBody)
)

// mmaRoundBody is roundTF32Body, and rounds.
func mmaRoundBody(c kernels.Call) {
	roundTF32Body(c)
	args := kernels.Args[roundTF32Args](c)
	for _, x := range args.Operands[:c.Grid[1]] {
		to, lines, cols := kernels.Slice[float32](c, x.To), x.Rows, x.Cols
		if x.Trans {
			lines, cols = cols, lines
		}
		for line := range args.Batch * lines {
			row := to[line*x.Pitch:][:x.Pitch]
			for i, v := range row[:cols] {
				row[i] = kernels.TF32.Round(v)
			}
			clear(row[cols:])
		}
	}
}

// appendMMAPlanes appends the launches of a product of planes by matmul_mma.cu.
func appendMMAPlanes(p *kernels.Plan, dev kernels.Device, c result, x planesProduct) {
	tiles := kernels.CeilDiv(c.m, mmaTile) * kernels.CeilDiv(c.n, mmaTile) * c.batch
	kernel := mmaProducts[arith.Flag(x.transA)][arith.Flag(x.transB)]
	appendSplit(p, dev, c, tiles, splitPolicy{blocks: 1, terms: hopperPolicies.On(dev).least}, x.k, func(to kernels.Ref, e Epilogue, splits, chunk int64) {
		operands := [4]any{x.at[0], x.at[1], x.again[0], x.again[1]}
		p.Launch(kernel, int(tiles*splits), mmaPlanesThreads, x.arguments(operands, c, to, chunk, e)).Shared = mmaPlanesBytes
	})
}
