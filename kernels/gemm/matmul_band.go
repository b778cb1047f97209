package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// matmulBand is the kernel of matmul_band.cu, as it is compiled there: rows of a warp, warps of a block, columns of a tile, and elements of shared
// memory between two terms.
var matmulBand = own.Kernel("matmul_band", "matmul_band_f32", matmulBody[float32](true))

const (
	bandRows    = 16
	bandWarps   = 4
	bandColumns = 128
	bandPitch   = bandColumns + 4
)

// bandPolicy tunes products of few terms by bands of C.
type bandPolicy struct {
	least, most   int64 // terms
	elements      int64 // of C for each multiprocessor, at least
	rows, columns int64 // of C, at least
}

var bandPolicies = kernels.Measured[bandPolicy]{
	// H200, us, before, bands and PyTorch: 7123 x 22 x 44994, A^T B^T, 977, 619, 707; 9000 x 24 x 9000 177, 130, 182; 10962 x 24 x 17680, A^T, 476, 289, 424; 47 x 24 x 122281 28.7, 19.0, 19.2;
	// 11 x (17892 x 20 x 215), B^T, 154, 101, 127; 50 x (4973 x 34 x 115) 127, 93, 107. most: 5000 x 48 x 5001, A^T, 97, 81, 104; 20674 x 46 x 4339, A^T B^T, 280, 286, 300; but 2000 x 50 x 20000 117, 124, 176; 8682 x 55 x 5745, B^T, 172, 230, 190.
	// least: 10000 x 10 x 10000 by outer 123, 127. elements: 819 x 26 x 4044, A^T, 13.8, 13.1, 16.5; 3 x (208 x 35 x 665), B^T, 8.2, 8.0; 17 x (81 x 31 x 402), B^T, 9.2, 10.0. Bands of 8 warps: 619 -> 629, 130 -> 145, 3000 x 40 x 30001 249 -> 232.
	{90, bandPolicy{least: 17, most: 48, elements: 1 << 14, rows: 33, columns: 96}},
}

// bandShared is the shared memory of a block with sums of k terms, in bytes: the factors of its rows and of two tiles.
func bandShared(k int64) int64 { return 3 * arith.RoundUp(k, 2) * bandPitch * 4 }

// bandTiles returns how many tiles of a band a block takes: as many as leave the device the least to do, by tiles in turn, of which the first
// waits for its factors.
func bandTiles(dev kernels.Device, x product) (best int64) {
	bands, tiles := kernels.CeilDiv(x.m, bandRows*bandWarps)*x.batch, kernels.CeilDiv(x.n, bandColumns)
	slots := int64(dev.SMs) * max(1, min(4, int64(dev.SharedOptin)/(bandShared(x.k)+1024)))
	least := int64(0)
	for most := int64(1); most <= min(tiles, 32); most++ {
		if t := kernels.CeilDiv(bands*kernels.CeilDiv(tiles, most), slots) * (most + 1); best == 0 || t <= least {
			best, least = most, t
		}
	}
	return best
}

// appendBand appends the launch of a product by bands of C, if it is one of few terms and no epilogue whose C is large.
func appendBand(p *kernels.Plan, dev kernels.Device, c result, x product) bool {
	pol := bandPolicies.On(dev)
	if dev.Major != 9 || dev.Minor != 0 || c.dt != kernels.Float32 || c.epilogue.chain != 0 || x.k < pol.least || x.k > pol.most ||
		c.m < pol.rows || c.n < pol.columns || c.count() < pol.elements*int64(dev.SMs) || max(c.m, c.n) > mostTerms {
		return false
	}
	tiles := bandTiles(dev, x)
	blocks := kernels.CeilDiv(x.m, bandRows*bandWarps) * x.batch * kernels.CeilDiv(kernels.CeilDiv(x.n, bandColumns), tiles)
	if kernels.CheckGrid(blocks) != nil {
		return false
	}
	p.Launch(matmulBand, int(blocks), 32*bandWarps, x.arguments(out, x.k, tiles)).Shared = int(bandShared(x.k))
	return true
}
