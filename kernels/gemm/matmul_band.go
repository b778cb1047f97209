package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// rowPanel is the kernel of matmul_band.cu: a block computes a panel of rows of C, tile by tile, with K of A in shared memory.
var rowPanel = &candidate{
	name: "band_f32", able: limits{on: isHopper, plain: true, long: span{to: maxChunk}}, tile: tile{m: 64, n: 128, threads: 128},
	kernel: own.Kernel("matmul_band", "matmul_band_f32", productBody[float32](true)), orient: longRows, cut: cutPanel, args: lowKArguments,
}

// cutPanel gives a block as many tiles of a panel as leave the device the least to do, by tiles in turn, of which the first waits for its operands.
func cutPanel(c *candidate, x *problem) (cut, bool) {
	const pitch = 128 + 4                           // elements of shared memory between two steps along K
	shared := 3 * arith.RoundUp(x.K, 2) * pitch * 4 // A's rows and two tiles of B
	panels, tiles := kernels.CeilDiv(x.M, c.m)*x.Batch, kernels.CeilDiv(x.N, c.n)
	slots := x.sms() * max(1, min(4, int64(x.dev.SharedOptin)/(shared+1024)))
	var each, least int64
	for n := int64(1); n <= min(tiles, 32); n++ {
		if t := kernels.CeilDiv(panels*kernels.CeilDiv(tiles, n), slots) * (n + 1); each == 0 || t <= least {
			each, least = n, t
		}
	}
	blocks := panels * kernels.CeilDiv(tiles, each)
	return cut{each: each, blocks: blocks, shared: shared}, kernels.CheckGrid(blocks) == nil
}
